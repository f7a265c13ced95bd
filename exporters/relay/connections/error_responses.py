"""The relay's own errors, as JSON in the format of the API: OpenAI's, or Anthropic's below `/v1/messages`."""

import json
from http import HTTPStatus

from exporters.relay.connections.message_heads import id_headers
from exporters.relay.dialects.paths import is_anthropic

_OPENAI_TYPES = {403: "permission_error", 503: "overloaded_error"}
_ANTHROPIC_TYPES = {
    403: "permission_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}


def error(
    status: int,
    message: str,
    code: str,
    *,
    close: bool,
    path: str = "",
    request_id: str | None = None,
    bodiless: bool = False,
) -> bytes:
    """A complete HTTP/1.1 error response, without its body if `bodiless`; `code` is stable for programs.

    `path` is empty and `request_id` is None if the request has no valid head.
    """
    body = _body(status, message, code, path, request_id)
    ids = "" if request_id is None else id_headers(path, request_id).decode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{ids}"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"connection: {'close' if close else 'keep-alive'}\r\n\r\n"
    )
    return head.encode() if bodiless else head.encode() + body


def error_event(status: int, message: str, code: str, path: str, request_id: str) -> bytes:
    """The event that reports an error in a stream whose response has begun; empty if the API has none.

    `/v1/responses` has one only with the number of the event, which is unknown.
    """
    if path == "/v1/responses":
        return b""
    name = b"event: error\n" if is_anthropic(path) else b""
    return b"%sdata: %s\n\n" % (name, _body(status, message, code, path, request_id))


def _body(status: int, message: str, code: str, path: str, request_id: str | None) -> bytes:
    message = f"vllm-slo: {message}"
    body: dict[str, object]
    if is_anthropic(path):
        kind = _ANTHROPIC_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        body = {"type": "error", "error": {"type": kind, "message": message}}
    else:
        kind = _OPENAI_TYPES.get(status, "invalid_request_error" if status < 500 else "upstream_error")
        body = {"error": {"message": message, "type": kind, "param": None, "code": code}}
    if request_id is not None:
        body["request_id"] = request_id
    return json.dumps(body).encode()


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
