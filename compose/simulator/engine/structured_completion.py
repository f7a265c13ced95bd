"""Completions that are JSON: an answer in the format that the request asks for, or the arguments of a tool call."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.tokenizer import END_OF_TEXT, TOKEN_BYTES, encode

_DEPTH = 8
"""Levels of a schema for which values are made; below, and where a schema refers to itself, they are null."""

_ANY_OBJECT = {"type": "object"}


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool to call; `named`: by `tool_choice`."""

    name: str
    named: bool


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """JSON that a request asks for: by its format, or as the arguments of a tool."""

    schema: Any
    tool: ToolCall | None = None


@dataclass(frozen=True, slots=True)
class StructuredCompletion:
    """A completion with a given text, whose pieces need escaping in JSON."""

    plain: ClassVar[bool] = False
    written: str
    length: int  # tokens, the end marker included
    finish: FinishReason
    tool: ToolCall | None

    def piece(self, index: int) -> bytes:
        """The text of the n-th token."""
        return self.written[index * TOKEN_BYTES : (index + 1) * TOKEN_BYTES].encode()

    def token(self, index: int) -> int:
        """The id of the n-th token."""
        piece = self.piece(index)
        return encode(piece.decode())[0] if piece else END_OF_TEXT

    def text(self, length: int) -> str:
        """The first `length` tokens."""
        return self.written[: length * TOKEN_BYTES]


def structured_completion(
    output: RequestedOutput, rng: random.Random, *, max_tokens: int, invalid: float
) -> StructuredCompletion:
    """JSON of the schema; the share `invalid` of completions lacks the last character."""
    text = json.dumps(_value(output.schema, output.schema, rng, _DEPTH))
    if rng.random() < invalid:
        text = text[:-1]
    tokens = -(-len(text) // TOKEN_BYTES) + 1
    if tokens > max_tokens:
        return StructuredCompletion(text, max_tokens, FinishReason.LENGTH, output.tool)
    return StructuredCompletion(text, tokens, FinishReason.STOP, output.tool)


def chat_output(body: Mapping[str, Any]) -> RequestedOutput | None:
    """What a request of the chat or completions API asks for."""
    tools = [_mapping(_mapping(tool).get("function")) for tool in _items(body, "tools")]
    choice = body.get("tool_choice")
    named = _mapping(_mapping(choice).get("function")).get("name")
    answered = _mapping(_items(body, "messages")[-1:]).get("role") == "tool"
    format_ = _mapping(body.get("response_format"))
    constraint = _mapping(body.get("structured_outputs"))
    schema = _format_schema(format_ | {"schema": _mapping(format_.get("json_schema")).get("schema")})
    if constraint.get("json") is not None:
        schema = constraint["json"]
    elif constraint.get("json_object"):
        schema = _ANY_OBJECT
    return _output([(tool.get("name"), tool.get("parameters")) for tool in tools], choice, named, schema, answered)


def responses_output(body: Mapping[str, Any]) -> RequestedOutput | None:
    """What a request of the Responses API asks for."""
    tools = [_mapping(tool) for tool in _items(body, "tools") if _mapping(tool).get("type") == "function"]
    choice = body.get("tool_choice")
    answered = _mapping(_items(body, "input")[-1:]).get("type") == "function_call_output"
    schema = _format_schema(_mapping(_mapping(body.get("text")).get("format")))
    functions = [(tool.get("name"), tool.get("parameters")) for tool in tools]
    return _output(functions, choice, _mapping(choice).get("name"), schema, answered)


def messages_output(body: Mapping[str, Any]) -> RequestedOutput | None:
    """What a request of the Messages API asks for."""
    tools = [_mapping(tool) for tool in _items(body, "tools")]
    choice = _mapping(body.get("tool_choice"))
    last = _items(_mapping(_items(body, "messages")[-1:]), "content")
    answered = any(_mapping(block).get("type") == "tool_result" for block in last)
    schema = _format_schema(_mapping(_mapping(body.get("output_config")).get("format")))
    functions = [(tool.get("name"), tool.get("input_schema")) for tool in tools]
    return _output(functions, choice.get("type"), choice.get("name"), schema, answered)


def _output(
    tools: list[tuple[Any, Any]], choice: Any, named: Any, schema: Any, answered: bool
) -> RequestedOutput | None:
    """A named tool, else the first one if a call is required or the last message is not a result of a tool."""
    if named is not None:
        tools = [tool for tool in tools if tool[0] == named]
    elif choice == "none" or (answered and choice not in ("required", "any")):  # not a set: it may be an object
        tools = []
    for name, parameters in tools:
        return RequestedOutput(parameters or _ANY_OBJECT, ToolCall(str(name), named is not None))
    return None if schema is None else RequestedOutput(schema)


def _format_schema(format_: Mapping[str, Any]) -> Any:
    match format_.get("type"):
        case "json_schema":
            return format_.get("schema") or _ANY_OBJECT
        case "json_object":
            return _ANY_OBJECT
        case _:
            return None


def _mapping(value: Any) -> dict[str, Any]:
    """An object, also if it is the only item of a list; empty if the value is neither."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value if isinstance(value, dict) else {}


def _items(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    return value if isinstance(value, list) else []


def _value(schema: Any, root: Any, rng: random.Random, depth: int) -> Any:
    """A value of the schema, as far as it says of which type it is; all properties of an object are present."""
    schema = _mapping(_resolved(_mapping(schema), root))
    choices = schema.get("enum") or schema.get("anyOf") or schema.get("oneOf")
    if depth == 0:
        return None
    if "const" in schema:
        return schema["const"]
    if isinstance(choices, list):
        chosen = rng.choice(choices)
        return chosen if "enum" in schema else _value(chosen, root, rng, depth - 1)
    kind = schema.get("type", "object" if "properties" in schema else None)
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "object":
            properties = _mapping(schema.get("properties"))
            return {name: _value(value, root, rng, depth - 1) for name, value in properties.items()}
        case "array":
            return [_value(schema.get("items"), root, rng, depth - 1)]
        case "integer" | "number":
            return rng.randrange(100)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return "simulated"


def _resolved(schema: Mapping[str, Any], root: Any) -> Any:
    """The definition in the root to which the schema refers, or the schema itself."""
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not reference.startswith("#"):
        return schema
    for name in reference.split("/")[1:]:
        root = _mapping(root).get(name)
    return root
