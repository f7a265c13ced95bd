"""The relay's own error responses, as JSON in OpenAI's format."""

import json
from http import HTTPStatus


def error(status: int, message: str, code: str, *, close: bool, bodiless: bool = False) -> bytes:
    """A complete HTTP/1.1 error response, without its body if `bodiless`; `code` is stable for programs."""
    if status == HTTPStatus.FORBIDDEN:
        kind = "permission_error"
    elif status == HTTPStatus.SERVICE_UNAVAILABLE:
        kind = "overloaded_error"
    else:
        kind = "invalid_request_error" if status < 500 else "upstream_error"
    body = json.dumps(
        {"error": {"message": f"vllm-slo: {message}", "type": kind, "param": None, "code": code}}
    ).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"connection: {'close' if close else 'keep-alive'}\r\n\r\n"
    )
    return head.encode() if bodiless else head.encode() + body


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
