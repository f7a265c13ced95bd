"""W3C trace context: whose trace a request is part of, and what makes the engine's span hang under ours."""

import os
import re
from dataclasses import dataclass

from exporters.relay.http1_parser import Header

_TRACEPARENT = re.compile(rb"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01


@dataclass(frozen=True, slots=True)
class Caller:
    """The client's span, as its `traceparent` names it; ids in lower-case hex."""

    trace_id: str
    span_id: str
    sampled: bool


@dataclass(frozen=True, slots=True)
class OwnSpan:
    """Our span of one request: in the caller's trace, or in one of its own."""

    trace_id: str
    span_id: str


def caller(headers: list[Header]) -> Caller | None:
    """Who called; None without a `traceparent`, with several, or with one that breaks the specification."""
    given = [value for name, value in headers if name == b"traceparent"]
    if len(given) != 1:
        return None
    found = _TRACEPARENT.fullmatch(given[0].strip(b" \t"))
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == b"00" and more is not None:  # only a later version may have more fields
        return None
    return Caller(trace_id.decode(), span_id.decode(), bool(int(flags, 16) & _SAMPLED))


def own_span(caller: Caller | None) -> OwnSpan:
    """A span under the caller's, or the root of another trace."""
    if caller is not None:
        return OwnSpan(caller.trace_id, os.urandom(8).hex())
    ids = os.urandom(24).hex()
    return OwnSpan(ids[:32], ids[32:])


def forwarded(headers: list[Header], caller: Caller | None, span: OwnSpan) -> list[Header]:
    """The headers for the engine: our span as the parent, always sampled, because vLLM drops its span otherwise.

    `tracestate` stays with the `traceparent` that it came with, and goes when that one could not be read.
    """
    gone = {b"traceparent"} if caller is not None else {b"traceparent", b"tracestate"}
    kept = [header for header in headers if header[0] not in gone]
    kept.append((b"traceparent", f"00-{span.trace_id}-{span.span_id}-01".encode()))
    return kept
