"""Mutated event streams for the meter: it removes only injected usage, and counts do not depend on the reads."""

import random
import re
from dataclasses import dataclass

from exporters.relay.dialects import chat
from exporters.relay.dialects.paths import METERED
from exporters.relay.metering import injected_usage
from tests.fuzz.mutate import cut, mutated
from tests.support.api_streams import MESSAGES, RESPONSES, Api, block_delta, delta, named
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import DONE, ROLE, USAGE, content

CHAT = "/v1/chat/completions"
CORPUS = (
    ROLE + content("a") + content("b", "stop") + USAGE + DONE,
    (ROLE + content("a") + content("b", "stop") + USAGE + DONE).replace(b"\n", b"\r\n"),
    ROLE,
    content("x"),
    USAGE,
    DONE,
    b": ping\n\n",
    b"event: message\nid: 7\ndata: {\ndata: }\n\n",
    b'data: {"choices":[{"text":"\xc3\xbc"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1},"timings":{"a":1.50}}\n\n',
    b'data: {"error":{"message":"x"}}\n\n',
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}}]}\n\n',
    b'data: {"choices":[{"delta":{"tool_calls":[{"index":1}]},"finish_reason":"tool_calls"}]}\n\n',
)
TOOL_CALLS = {
    RESPONSES.path: delta("function_call_arguments", "{") + named({"type": "response.function_call_arguments.done"}),
    MESSAGES.path: named({"type": "content_block_start", "content_block": {"type": "tool_use"}, "index": 1})
    + block_delta("input_json_delta", "partial_json", "{")
    + named({"type": "content_block_stop", "index": 1}),
}
NAMED_STRINGS = (
    *b'event: |"type":"|response.completed|response.failed|message_stop|error|"delta":|"delta":5|"text":""'.split(b"|"),
    *b'"usage":|"usage":null|"response":|"sequence_number":|"status":"incomplete"|"stop_reason":'.split(b"|"),
)
STRINGS = (
    *b"\n|\n\n|\r|\r\n|\r\r|\r\n\r\n|\n\r\n|\r\n\n| |:|\0|\xff|\xef\xbb\xbf".split(b"|"),
    *b'data: |data:|data|event: x\n|"usage":|"choices":[]|"usage":null|[DONE]|{|}'.split(b"|"),
    *b'1e400|-1|99999999999999999999|null|"\\ud800"'.split(b"|"),
    b"[" * 200,
)


@dataclass(frozen=True, slots=True)
class Case:
    """The reads of an event stream of the API with this path."""

    path: str
    reads: list[bytes]


def case(rng: random.Random) -> Case:
    """A stream of the APIs that have usage injected."""
    return Case(CHAT, cut(rng, mutated(rng, CORPUS, STRINGS), b"\n\n"))


def named_case(rng: random.Random) -> Case:
    """A stream of the other APIs, whose events have names."""
    api = rng.choice((RESPONSES, MESSAGES))
    return Case(api.path, cut(rng, mutated(rng, _corpus(api), (*NAMED_STRINGS, *STRINGS)), b"\n\n"))


def _corpus(api: Api) -> tuple[bytes, ...]:
    tool_call = TOOL_CALLS[api.path]
    whole = api.start + api.reasoning + api.output * 3 + tool_call + api.end
    return (
        whole,
        tool_call,
        whole.replace(b"\n", b"\r\n"),
        api.start,
        api.output,
        api.output * 3,
        api.end,
        api.failure,
        DONE,
    )


def _metered(path: str, pieces: list[bytes], *, strips_usage: bool) -> tuple[bytes, tuple[object, ...]]:
    """The forwarded bytes and the counts."""
    meter = stream_meter(strips_usage=strips_usage, dialect=METERED[path])
    out = b"".join([*(meter.stream(piece, 1.0) for piece in pieces), meter.stream_end(1.0)])
    outcome = meter.outcome(200, streams=True, complete=True)
    meter.finish(outcome, 2.0)
    tokens = meter.prompt_tokens, meter.completion_tokens, meter.cached_tokens, meter.finish_reason, meter.done
    answers = meter.answer_at, meter.first_tool_call_at, meter.reasoning_tokens
    return out, (meter.chunks, len(meter.gaps), *tokens, *answers, outcome)


def without_usage(data: bytes) -> bytes:
    """The stream without injected usage, parsed line by line as in the standard."""
    out, event = bytearray(), bytearray()
    values: list[bytes] = []
    always = False

    def forwarded() -> bytes:
        nonlocal always
        usage, choices = _usage_and_choices(values)
        always = always or (usage and choices)
        injected = usage and not choices and not always
        return injected_usage.without_usage(bytes(event), b"\n".join(values)) if injected else bytes(event)

    for line in re.findall(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z", data):
        event += line
        text = line.rstrip(b"\r\n")
        if text.startswith(b"data:"):
            values.append(text[5:].removeprefix(b" "))
        # A second blank line belongs to the next event.
        if not text and event != line:
            out += forwarded()
            event, values = bytearray(), []
    return bytes(out + forwarded())


def _usage_and_choices(values: list[bytes]) -> tuple[bool, bool]:
    try:
        event = chat.decode(b"\n".join(values))
    except ValueError:
        return False, False
    return event.usage is not None, bool(event.choices)


# The meter handles a bare CR, but not if a read with mixed line ends looks like a single event.
BARE_CR = re.compile(rb"\r(?!\n)").search


async def check(case: Case) -> bool:
    """Meter the stream in these reads, in one read and byte by byte; return whether it has output.

    Raises:
        AssertionError: a property does not hold. Any other exception is a bug, too.
    """
    data = b"".join(case.reads)
    cuts = [data], case.reads, [data[at : at + 1] for at in range(len(data))]
    assert all(_metered(case.path, pieces, strips_usage=False)[0] == data for pieces in cuts), "bytes"
    if BARE_CR(data):
        return False
    _, counts = _metered(case.path, [data], strips_usage=False)
    for pieces in cuts:
        assert _metered(case.path, pieces, strips_usage=False)[1] == counts, "depends on the reads"
        if case.path == CHAT:
            stripped = without_usage(data), counts
            assert _metered(CHAT, pieces, strips_usage=True) == stripped, "depends on the reads, without usage"
    return counts[0] != 0
