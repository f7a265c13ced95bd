"""What every API asks of the engine, the checks that all APIs share, and the errors that vLLM answers with."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compose.simulator.engine.completion import Completion, draw_completion
from compose.simulator.engine.structured_completion import RequestedOutput, StructuredCompletion, structured_completion


class RequestError(Exception):
    """A request is rejected with this body and status."""

    def __init__(self, message: str, *, param: str | None, code: int = 400, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.code = code
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


class FieldError(RequestError):
    """A body is rejected for one field before the API sees it: vLLM then answers in OpenAI's format on every API."""

    def __init__(self, kind: str, loc: str, message: str, value: Any, ctx: Mapping[str, Any] | None = None) -> None:
        mistake = {"type": kind, "loc": f"body.{loc}", "msg": message, "input": _summary(value)}
        text = f"1 validation error:\n  {mistake | ({} if ctx is None else {'ctx': ctx})}"
        super().__init__(text, param=f"body.{loc}", kind="Bad Request")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """The part of an accepted request that the engine computes."""

    prompt: list[int]
    max_tokens: int
    completion: Completion | StructuredCompletion
    stream: bool
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ServedModel:
    """The limits of the served model, the random numbers of completions, and the share of JSON that is invalid."""

    name: str
    max_model_len: int
    rng: random.Random
    invalid_output: float = 0.0

    def check_name(self, body: Mapping[str, Any]) -> None:
        """Check the `model` of a request.

        Raises:
            RequestError: it is another one.
        """
        name = body.get("model")
        if name is not None and name != self.name:
            raise RequestError(
                f"The model `{name}` does not exist. Valid aliases: {self.name}.",
                param="model",
                code=404,
                kind="NotFoundError",
            )

    def check_prompt(self, tokens: int) -> None:
        """Check that a prompt fits in the context.

        Raises:
            RequestError: it does not.
        """
        if tokens > self.max_model_len:
            counted = self.max_model_len + 1  # vLLM tokenizes no further
            raise RequestError(
                f"This model's maximum context length is {self.max_model_len} tokens. However, your prompt contains at "
                f"least {counted} input tokens, which exceeds this limit even without any output tokens. Please reduce "
                f"the length of the input prompt. (parameter=input_tokens, value={counted})",
                param="input_tokens",
            )

    def max_tokens(self, prompt_tokens: int, limit: int | None, name: str) -> int:
        """The largest number of tokens of a completion; `limit` comes from the field `name` of the request.

        As in vLLM, a limit that exceeds the rest of the context is reduced to it.

        Raises:
            RequestError: no completion is possible.
        """
        if limit is not None and limit > self.max_model_len:
            raise RequestError(
                f"{name}={limit} cannot be greater than max_model_len={self.max_model_len}. Please request fewer "
                f"output tokens. (parameter={name}, value={limit})",
                param=name,
            )
        self.check_prompt(prompt_tokens)
        rest = self.max_model_len - prompt_tokens
        most = rest if limit is None else min(limit, rest)
        if most < 1:
            raise RequestError(
                f"max_tokens must be at least 1, got {most}. (parameter=max_tokens, value={most})", param="max_tokens"
            )
        return most

    def draw(
        self, body: Mapping[str, Any], max_tokens: int, output: RequestedOutput | None
    ) -> Completion | StructuredCompletion:
        """The completion of a request, JSON if `output` says so; the random numbers are its own if it has a `seed`."""
        seed = body.get("seed")
        rng = random.Random(seed) if isinstance(seed, int) else self.rng  # noqa: S311 - a model, not a secret
        if output is not None:
            return structured_completion(output, rng, max_tokens=max_tokens, invalid=self.invalid_output)
        return draw_completion(
            rng,
            max_tokens=max_tokens,
            min_tokens=integer(body, "min_tokens", least=0) or 0,
            ignore_eos=boolean(body, "ignore_eos"),
        )


def fields(body: Any) -> Mapping[str, Any]:
    """The fields of a JSON body.

    Raises:
        RequestError: it is not an object.
    """
    if not isinstance(body, dict):
        raise RequestError("the request body must be a JSON object", param=None)
    return body


def required(body: Mapping[str, Any], name: str) -> Any:
    """The value of a field without which vLLM rejects a body.

    Raises:
        FieldError: the field is missing.
    """
    if body.get(name) is None:
        raise FieldError("missing", name, "Field required", body)
    return body[name]


def boolean(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise RequestError(f"{name} must be true or false, not {value!r}", param=name)
    return bool(value)


def integer(body: Mapping[str, Any], name: str, *, least: int) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if type(value) is not int or value < least:
        raise RequestError(f"{name} must be a whole number from {least}, not {value!r}", param=name)
    return value


def parsed_integer(body: Mapping[str, Any], name: str) -> int | None:
    """A whole number, of any sign.

    Raises:
        FieldError: it is something else.
    """
    value = body.get(name)
    if value is None or type(value) is int:
        return value
    if isinstance(value, str):
        text = "Input should be a valid integer, unable to parse string as an integer"
        raise FieldError("int_parsing", name, text, value)
    raise FieldError("int_type", name, "Input should be a valid integer", value)


def text_of(content: Any) -> str | None:
    """The text of a message's content, a string or a list of parts; None if it is neither."""
    if isinstance(content, list):  # text parts count, images and audio do not
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else None


def _summary(value: Any) -> Any:
    if isinstance(value, str):
        return value
    return f"<{type(value).__name__} of {len(value)} items>" if isinstance(value, list | dict) else str(value)
