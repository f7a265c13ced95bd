"""Whether an answer is the JSON that its request asked for: its output is kept, and parsed when it is complete."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from exporters.relay.bodies.first_elements import First
from exporters.relay.bodies.request_body import ABSENT, NOT_JSON, may_be_parsed_again
from exporters.relay.dialects.dialect import MAX_CHOICES
from exporters.vocabulary.engine_values import is_given
from exporters.vocabulary.signals import OutputKind, OutputResult

LIMIT = 1024 * 1024
"""Bytes of output that are kept of an answer; a larger one is not checked."""

CALL_BYTES = 128
"""Bytes that count for a tool call itself, so that many empty calls take no more memory."""

_GOOD = {OutputResult.VALID: True, OutputResult.INVALID: False}
_FORMATS = {"json_object": OutputKind.JSON, "json_schema": OutputKind.JSON_SCHEMA}


class _Format(msgspec.Struct):
    type: str | None = None


class _Formatted(msgspec.Struct):
    format: _Format | None = None


class _Constraint(msgspec.Struct):
    json: msgspec.Raw = ABSENT
    json_object: bool | None = None


class _Request(msgspec.Struct):
    """The fields of all APIs that ask for JSON or offer tools."""

    response_format: _Format | None = None  # chat and completions
    structured_outputs: _Constraint | None = None  # vLLM's own, as the next one
    guided_json: msgspec.Raw = ABSENT
    text: _Formatted | None = None  # Responses
    output_config: _Formatted | None = None  # Messages, as the next one
    output_format: _Format | None = None
    tools: First[list[msgspec.Raw], 1] | None = None
    tool_choice: str | _Format | None = None

    @property
    def kind(self) -> OutputKind | None:
        """What the text has to be."""
        constraint = self.structured_outputs or _Constraint()
        if any(map(is_given, (constraint.json, self.guided_json))):
            return OutputKind.JSON_SCHEMA
        if constraint.json_object:
            return OutputKind.JSON
        nested = self.text or self.output_config
        format_ = self.response_format or self.output_format or (nested.format if nested is not None else None)
        return None if format_ is None else _FORMATS.get(format_.type or "")

    @property
    def offers_tools(self) -> bool:
        choice = self.tool_choice.type if isinstance(self.tool_choice, _Format) else self.tool_choice
        return bool(self.tools) and choice != "none"


class _Object(msgspec.Struct):
    """Any JSON object."""


_decode_request = msgspec.json.Decoder(_Request).decode
# Neither creates the values, which takes up to 60 ms for 1 MiB; the syntax is checked all the same, in 0.3 to 2.5 ms.
_check_json = msgspec.json.Decoder(msgspec.Raw).decode
_check_object = msgspec.json.Decoder(_Object).decode


class Checked(NamedTuple):
    """The result of a complete answer."""

    kind: OutputKind
    result: OutputResult

    @property
    def good(self) -> bool | None:
        """Whether the SLO event is good; None if there is none."""
        return _GOOD.get(self.result)


@dataclass(slots=True)
class _Choice:
    """The output of one choice: its text, the arguments of its tool calls, and whether it ends at the token limit."""

    text: bytearray = field(default_factory=bytearray)
    calls: dict[int, bytearray] = field(default_factory=dict)
    cut: bool = False

    def result(self, *, text_is_json: bool, empty_call: bytes) -> OutputResult | None:
        """None if nothing has to be JSON. With tool calls, any text is a comment."""
        if not self.calls and not text_is_json:
            return None
        if self.cut:
            return OutputResult.TRUNCATED
        try:
            for arguments in self.calls.values():
                _check_object(arguments or empty_call)
            if not self.calls:
                _check_json(self.text)
        except NOT_JSON:
            return OutputResult.INVALID
        return OutputResult.VALID


class StructuredOutput:
    """Collects the output of one answer, and checks it when it is complete; implements `Output`."""

    __slots__ = ("_calls_tools", "_choices", "_count", "_kind", "_size", "_too_large", "empty_call")

    def __init__(self, kind: OutputKind | None, choices: int) -> None:
        """`kind` is what the text has to be; None if only tools are offered."""
        self._kind = kind
        self._count = choices
        self._choices: defaultdict[int, _Choice] = defaultdict(_Choice)
        self._size = 0
        self._too_large = choices > MAX_CHOICES
        self._calls_tools = False
        self.empty_call = b""

    @property
    def expected(self) -> bool:
        """Whether the output, as far as it has arrived, has to be JSON."""
        return self._kind is not None or self._calls_tools

    def text(self, piece: str, choice: int = 0) -> None:
        if self._kind is not None and not self._too_large:
            self._add(self._choices[choice].text, piece)

    def call(self, call: int, piece: str, choice: int = 0) -> None:
        self._calls_tools = True
        if not self._too_large:
            calls = self._choices[choice].calls
            if call not in calls:
                calls[call] = bytearray()
                self._size += CALL_BYTES
            self._add(calls[call], piece)

    def calls_tool(self) -> None:
        self._calls_tools = True

    def cut(self, choice: int = 0) -> None:
        if not self._too_large:
            self._choices[choice].cut = True

    def release(self) -> None:
        """Keep no more of an answer that is too large."""
        self._too_large = True
        self._choices.clear()

    def check(self) -> Checked | None:
        """The result of the complete answer, the worst of its choices; None if nothing has to be JSON."""
        if self._too_large:
            result = OutputResult.TOO_LARGE if self.expected else None
        else:
            results = {
                choice.result(text_is_json=self._kind is not None, empty_call=self.empty_call)
                for choice in self._choices.values()
            }
            if self._kind is not None and len(self._choices) < self._count:
                results.add(OutputResult.INVALID)  # a choice without any output
            worst = (OutputResult.INVALID, OutputResult.TRUNCATED, OutputResult.VALID)
            result = next((each for each in worst if each in results), None)
        self.release()
        kind = OutputKind.TOOL_CALL if self._calls_tools else self._kind
        return None if kind is None or result is None else Checked(kind, result)

    def _add(self, part: bytearray, piece: str) -> None:
        data = piece.encode()
        part += data
        self._size += len(data)
        if self._size > LIMIT:
            self.release()


def requested(body: bytes, choices: int) -> StructuredOutput | None:
    """Collects the output of a request with this body, if it may have to be JSON, and the body may be parsed again."""
    if not may_be_parsed_again(body):
        return None
    try:
        request = _decode_request(body)
    except NOT_JSON:
        return None  # the engine rejects it
    kind = request.kind
    return StructuredOutput(kind, choices) if kind is not None or request.offers_tools else None
