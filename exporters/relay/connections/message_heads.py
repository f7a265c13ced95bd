"""Writes the heads of forwarded requests and responses, without hop-by-hop headers."""

from functools import lru_cache

import msgspec

from exporters.http.parser import KEPT_RESPONSE_HEADS, Header, RequestHead, ResponseHead
from exporters.relay.dialects.paths import forwarded_target, is_anthropic

_DROPPED = frozenset(
    {
        # Hop-by-hop headers.
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
        # Headers that depend on the peer or the framing.
        b"host",
        b"content-length",
        b"expect",
    }
)
_DROPPED_FOR_IDENTITY = _DROPPED | {b"accept-encoding"}

_DROPPED_FROM_RESPONSE = _DROPPED | {b"x-request-id"}
_DROPPED_FROM_ANTHROPIC_RESPONSE = _DROPPED_FROM_RESPONSE | {b"request-id"}


class ResponseFraming(msgspec.Struct, frozen=True):
    """The framing of a response to the client."""

    event_stream: bool
    chunked: bool
    delimited: bool
    """Whether the body ends without closing the connection."""
    reusable: bool
    """Whether the connection can carry another request."""


def request_head(head: RequestHead, host: str, prefix: str, framing: Header | None, *, identity: bool) -> bytes:
    """The request head for the engine; `identity` requests an uncompressed response, which can be measured."""
    dropped = _DROPPED_FOR_IDENTITY if identity else _DROPPED
    lines = [
        f"{head.method} {prefix}{forwarded_target(head.target)} HTTP/1.1\r\nhost: {host}\r\n".encode(),
        *[b"%s: %s\r\n" % header for header in head.headers if header[0] not in dropped],
    ]
    if identity:
        lines.append(b"accept-encoding: identity\r\n")
    if framing is not None:
        lines.append(b"%s: %s\r\n" % framing)
    lines.append(b"\r\n")
    return b"".join(lines)


def websocket_request_head(head: RequestHead, host: str, prefix: str) -> bytes:
    """The head of a request for a WebSocket, for the engine."""
    return _with_upgrade(request_head(head, host, prefix, None, identity=False))


def websocket_response_head(head: ResponseHead, path: str, request_id: str) -> bytes:
    """The head of a response with status 101, for the client."""
    lines = [b"%s: %s\r\n" % header for header in head.headers if header[0] not in _DROPPED_FROM_RESPONSE]
    return _with_upgrade(
        b"".join((b"HTTP/1.1 101 %s\r\n" % head.reason, id_headers(path, request_id), *lines, b"\r\n"))
    )


def _with_upgrade(head: bytes) -> bytes:
    return head[:-2] + b"connection: Upgrade\r\nupgrade: websocket\r\n\r\n"


def id_headers(path: str, request_id: str) -> bytes:
    """The headers in which the official clients look for the id of a request, for the client."""
    value = request_id.encode()
    if is_anthropic(path):
        return b"x-request-id: %s\r\nrequest-id: %s\r\n" % (value, value)
    return b"x-request-id: %s\r\n" % value


def response_head(
    request: RequestHead, head: ResponseHead, path: str, request_id: str, *, shortens_streams: bool, last: bool
) -> tuple[bytes, ResponseFraming]:
    """The response head for the client, and its framing; `last` closes the connection after the response.

    With `shortens_streams`, an event stream has no content-length, because its usage event is removed. An id that the
    engine has given to the request is replaced by `request_id`.
    """
    length = None if head.status == 204 or (shortens_streams and head.event_stream) else head.content_length
    kind = (
        *(length is not None, request.method == "HEAD", request.http_1_0, request.keep_alive, is_anthropic(path)),
        last,
    )
    kept = head.kept or head
    before, after, framing = (_around_ids if head.chunked or head.kept else _around_ids.__wrapped__)(kept, *kind)
    ids = id_headers(path, request_id)
    if length is not None:
        ids += b"content-length: %s\r\n" % length
    return b"".join((before, ids, after)), framing


@lru_cache(KEPT_RESPONSE_HEADS)
def _around_ids(
    head: ResponseHead,
    sized: bool,
    head_only: bool,
    http_1_0: bool,
    keep_alive: bool,
    anthropic: bool,
    last: bool,
) -> tuple[bytes, bytes, ResponseFraming]:
    """The head for the client before and after the headers with id and length, and its framing."""
    dropped = _DROPPED_FROM_ANTHROPIC_RESPONSE if anthropic else _DROPPED_FROM_RESPONSE
    bodiless = head_only or head.status in {204, 304}
    lines = [b"%s: %s\r\n" % header for header in head.headers if header[0] not in dropped]
    chunked = False
    if not sized and not bodiless and not http_1_0:
        chunked = True
        lines.append(b"transfer-encoding: chunked\r\n")
    delimited = sized or bodiless or not http_1_0
    reusable = keep_alive and delimited and not last
    if not reusable:
        lines.append(b"connection: close\r\n")
    elif http_1_0:
        lines.append(b"connection: keep-alive\r\n")
    lines.append(b"\r\n")
    framing = ResponseFraming(head.event_stream, chunked, delimited, reusable)
    return b"HTTP/1.1 %d %s\r\n" % (head.status, head.reason), b"".join(lines), framing
