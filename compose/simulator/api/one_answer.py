"""Parses the requests of which vLLM answers at once, embeddings, tokenize and detokenize, and makes their responses."""

import base64
import random
import struct
from typing import Any

from compose.simulator.api.chat_request import chat_prompt
from compose.simulator.engine.completion import Completion
from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.request import EngineRequest, FieldError, RequestError, ServedModel, fields, required
from compose.simulator.engine.tokenizer import decode, encode

DIMENSIONS = 16
_ONE_STEP = Completion(1, FinishReason.STOP, 0, 1)


def parse_embeddings(raw_body: Any, served: ServedModel) -> list[EngineRequest]:
    """A request to the engine for each input; it ends with its prefill.

    Raises:
        RequestError: the body is invalid, or an input exceeds the context.
    """
    body = fields(raw_body)
    served.check_name(body)
    prompts = _prompts(required(body, "input"))
    for prompt in prompts:
        if not prompt:
            raise RequestError("The decoder prompt cannot be empty", param=None)
        served.check_prompt(len(prompt))
    return [EngineRequest(prompt=prompt, max_tokens=0, completion=_ONE_STEP, stream=False) for prompt in prompts]


def embeddings_body(id_: str, created: int, model: str, prompts: list[list[int]], encoding: Any) -> dict[str, Any]:
    """The body of a response; equal inputs have equal embeddings."""
    tokens = sum(map(len, prompts))
    return {
        "id": id_,
        "object": "list",
        "created": created,
        "model": model,
        "data": [
            {"index": index, "object": "embedding", "embedding": _embedding(prompt, encoding)}
            for index, prompt in enumerate(prompts)
        ],
        "usage": {
            "prompt_tokens": tokens,
            "total_tokens": tokens,
            "completion_tokens": 0,
            "prompt_tokens_details": None,
            "completion_tokens_details": None,
        },
    }


def tokenize(raw_body: Any, served: ServedModel) -> dict[str, Any]:
    """The tokens of a prompt or of messages.

    Raises:
        RequestError: the body is invalid.
    """
    body = fields(raw_body)
    served.check_name(body)
    tokens = chat_prompt(body) if "messages" in body else encode(_text(required(body, "prompt")))
    return {"count": len(tokens), "max_model_len": served.max_model_len, "tokens": tokens, "token_strs": None}


def detokenize(raw_body: Any, served: ServedModel) -> dict[str, Any]:
    """The text of tokens; raises as `tokenize` does."""
    body = fields(raw_body)
    served.check_name(body)
    tokens = required(body, "tokens")
    if tokens != [] and not _are_tokens(tokens):
        raise FieldError("list_type", "tokens", "Input should be a valid list", tokens)
    return {"prompt": decode(tokens)}


def _prompts(given: Any) -> list[list[int]]:
    inputs = [given] if isinstance(given, str) or _are_tokens(given) else given
    if (
        not isinstance(inputs, list)
        or not inputs
        or not all(isinstance(one, str) or _are_tokens(one) for one in inputs)
    ):
        raise FieldError("string_type", "input", "Input should be a valid string", given)
    return [encode(one) if isinstance(one, str) else one for one in inputs]


def _are_tokens(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(type(token) is int and token >= 0 for token in given)


def _embedding(prompt: list[int], encoding: Any) -> list[float] | str:
    rng = random.Random(str(prompt))  # noqa: S311 - a model, not a secret
    values = [rng.uniform(-1, 1) for _ in range(DIMENSIONS)]
    if encoding == "base64":
        return base64.b64encode(struct.pack(f"<{DIMENSIONS}f", *values)).decode()
    return values


def _text(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise FieldError("string_type", "prompt", "Input should be a valid string", prompt)
    return prompt
