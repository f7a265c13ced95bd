"""W3C trace context: reads the client's `traceparent`, and writes one with our span as the parent of the engine's."""

import os
import re
from dataclasses import dataclass

from exporters.configuration.trace_sampling import in_share
from exporters.http.parser import Header

_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class Caller:
    """The client's span from its `traceparent`; ids are lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool


@dataclass(frozen=True, slots=True)
class OwnSpan:
    """Our span of one request, in the caller's trace or in a new trace."""

    trace_id: str
    span_id: str


def parse_traceparent(headers: list[Header]) -> Caller | None:
    """The client's span, or None unless there is exactly one `traceparent` and it is valid."""
    values = [value for name, value in headers if name == b"traceparent"]
    if len(values) != 1:
        return None
    match = _TRACEPARENT.fullmatch(values[0].strip(b" \t"))
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    # Only later versions may have more fields.
    if version == b"00" and more is not None:
        return None
    return Caller(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def new_span(caller: Caller | None) -> OwnSpan:
    """A child of the caller's span, or the root span of a new trace."""
    if caller is not None:
        return OwnSpan(caller.trace_id, os.urandom(8).hex())
    ids = os.urandom(24).hex()
    return OwnSpan(ids[:32], ids[32:])


def sampled_if_good(caller: Caller | None, span: OwnSpan, good_share: float) -> bool:
    """Whether the trace is kept if the request will be good: as its caller sampled it, else by the share."""
    return in_share(span.trace_id, good_share) if caller is None else caller.sampled


def with_traceparent(headers: list[Header], caller: Caller | None, span: OwnSpan, *, sampled: bool) -> list[Header]:
    """The headers for the engine: our span is the parent. vLLM sends no span if it is not sampled.

    `tracestate` is forwarded only with a valid `traceparent`.
    """
    dropped = {b"traceparent"} if caller is not None else {b"traceparent", b"tracestate"}
    own = b"traceparent", f"00-{span.trace_id}-{span.span_id}-{'01' if sampled else '00'}".encode()
    return [*(header for header in headers if header[0] not in dropped), own]
