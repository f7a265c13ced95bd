"""The heads of requests and responses, as they come in and as they go on: hop-by-hop headers stay where they belong."""

from dataclasses import dataclass

import msgspec

from exporters.relay.paths import forwarded

Header = tuple[bytes, bytes]
"""A name in lower case and its value."""

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# Set by whoever writes the head, from what it knows of the body and of the peer.
_OURS = frozenset({b"host", b"content-length", b"expect"})


class Head(msgspec.Struct):
    """A request's line and headers."""

    method: str
    target: str
    headers: list[Header]
    old_client: bool  # HTTP/1.0
    keep_alive: bool

    def get(self, name: str) -> str | None:
        wanted = name.encode()
        return next((value.decode("latin-1") for key, value in self.headers if key == wanted), None)


@dataclass(frozen=True, slots=True)
class Answer:
    """A response's head for the client, and what it promises of the body."""

    data: bytes
    event_stream: bool
    chunked: bool
    reusable: bool
    """Whether the client can tell the end of the body, so that the connection can carry another request."""


def request_head(head: Head, authority: str, prefix: str, framing: Header | None, *, identity: bool) -> bytes:
    """The request's head for the engine; `identity` asks for a body that can be read on the way."""
    lines = [f"{head.method} {prefix}{forwarded(head.target)} HTTP/1.1\r\nhost: {authority}\r\n".encode("latin-1")]
    named = _named_by_connection(head.headers)
    for name, value in head.headers:
        if name in _HOP_BY_HOP or name in _OURS or name in named or (identity and name == b"accept-encoding"):
            continue
        lines.append(b"%s: %s\r\n" % (name, value))
    if identity:
        lines.append(b"accept-encoding: identity\r\n")
    if framing is not None:
        lines.append(b"%s: %s\r\n" % framing)
    lines.append(b"\r\n")
    return b"".join(lines)


def answer(request: Head, status: int, reason: bytes, headers: list[Header], *, last: bool) -> Answer:
    """The engine's response head for this client; `last` closes the connection after it."""
    named = _named_by_connection(headers)
    lines = [b"HTTP/1.1 %d %s\r\n" % (status, reason)]
    length: bytes | None = None
    event_stream = chunked = False
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name not in _HOP_BY_HOP and name not in named:
            if name == b"content-type":
                event_stream = value.startswith(b"text/event-stream")
            lines.append(b"%s: %s\r\n" % (name, value))
    bodiless = request.method == "HEAD" or status in {204, 304}
    if length is not None and status != 204:
        lines.append(b"content-length: %s\r\n" % length)
    elif not bodiless and not request.old_client:
        chunked = True
        lines.append(b"transfer-encoding: chunked\r\n")
    delimited = length is not None or bodiless or not request.old_client
    reusable = request.keep_alive and delimited and not last
    if not reusable:
        lines.append(b"connection: close\r\n")
    elif request.old_client:
        lines.append(b"connection: keep-alive\r\n")
    lines.append(b"\r\n")
    return Answer(b"".join(lines), event_stream, chunked, reusable)


def _named_by_connection(headers: list[Header]) -> set[bytes]:
    return {
        token.strip().lower() for name, value in headers if name == b"connection" for token in value.split(b",")
    } - _OURS
