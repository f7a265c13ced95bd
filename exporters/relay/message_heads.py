"""The heads of requests and responses as they go on: hop-by-hop headers stay where they belong."""

import msgspec

from exporters.relay.http1_parser import Head, Header, Reply, tokens
from exporters.relay.paths import forwarded

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
_STOPPED = _HOP_BY_HOP | _OURS
_STOPPED_WITH_ENCODING = _STOPPED | {b"accept-encoding"}


class Answer(msgspec.Struct):
    """A response's head for the client, and what it promises of the body."""

    data: bytes
    event_stream: bool
    chunked: bool
    delimited: bool
    """Whether the client can tell the end of the body from anything but the close."""
    reusable: bool
    """Whether the connection can carry another request."""


def request_head(head: Head, authority: str, prefix: str, framing: Header | None, *, identity: bool) -> bytes:
    """The request's head for the engine; `identity` asks for a body that can be read on the way."""
    stopped = _STOPPED_WITH_ENCODING if identity else _STOPPED
    if b"connection" in head.fields:
        stopped = stopped | tokens(head.headers)
    lines = [
        f"{head.method} {prefix}{forwarded(head.target)} HTTP/1.1\r\nhost: {authority}\r\n".encode(),
        *[b"%s: %s\r\n" % header for header in head.headers if header[0] not in stopped],
    ]
    if identity:
        lines.append(b"accept-encoding: identity\r\n")
    if framing is not None:
        lines.append(b"%s: %s\r\n" % framing)
    lines.append(b"\r\n")
    return b"".join(lines)


def answer(request: Head, reply: Reply, *, shortens_streams: bool, last: bool) -> Answer:
    """The engine's response head for this client; `last` closes the connection after it.

    `shortens_streams` says that an event will be taken out of an event stream, whose length is then not to be promised.
    """
    stopped = _STOPPED
    if b"connection" in reply.fields:
        stopped = stopped | tokens(reply.headers)
    event_stream = reply.fields.get(b"content-type", b"").startswith(b"text/event-stream")
    length = None if event_stream and shortens_streams else reply.fields.get(b"content-length")
    bodiless = request.method == "HEAD" or reply.status in {204, 304}
    lines = [
        b"HTTP/1.1 %d %s\r\n" % (reply.status, reply.reason),
        *[b"%s: %s\r\n" % header for header in reply.headers if header[0] not in stopped],
    ]
    chunked = False
    if length is not None and reply.status != 204:
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
    return Answer(b"".join(lines), event_stream, chunked, delimited, reusable)
