"""The error responses of the relay itself, as JSON in OpenAI's shape."""

import json
from http import HTTPStatus

TYPES = {
    400: "invalid_request_error",
    403: "permission_error",
    408: "invalid_request_error",
    413: "invalid_request_error",
    426: "invalid_request_error",
    431: "invalid_request_error",
}


def error(status: int, message: str, code: str, *, close: bool, bodiless: bool = False) -> bytes:
    """A whole HTTP/1.1 response, `bodiless` to a HEAD; `code` is one word that a program can match."""
    body = json.dumps(
        {
            "error": {
                "message": f"vllm-slo: {message}",
                "type": TYPES.get(status, "upstream_error"),
                "param": None,
                "code": code,
            }
        }
    ).encode()
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        "content-type: application/json\r\n"
        f"content-length: {len(body)}\r\n"
        f"connection: {'close' if close else 'keep-alive'}\r\n\r\n"
    )
    return head.encode() if bodiless else head.encode() + body


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
