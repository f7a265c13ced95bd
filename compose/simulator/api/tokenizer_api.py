"""The bodies of tokenize and detokenize requests and responses, as in vLLM."""

from typing import Any

from compose.simulator.api.chat_request import chat_prompt
from compose.simulator.engine.request import FieldError, ServedModel, fields, required
from compose.simulator.engine.tokenizer import decode, encode


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
    if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
        raise FieldError("list_type", "tokens", "Input should be a valid list", tokens)
    return {"prompt": decode(tokens)}


def _text(prompt: Any) -> str:
    if not isinstance(prompt, str):
        raise FieldError("string_type", "prompt", "Input should be a valid string", prompt)
    return prompt
