"""The client of the admin endpoints of a sidecar, and plain requests to a server that a flag names."""

import argparse
import http.client
from collections.abc import Mapping

from exporters.text.addresses import Url, parse_url
from exporters.text.errors import NotReachableError, UsageError

TIMEOUT = 10.0
TOKEN_FLAG = "--admin-token-file"  # noqa: S105 - the name of a flag
_JSON = {"content-type": "application/json"}


class NoResponseError(NotReachableError):
    """The sidecar has not responded in time, or the connection was lost before."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the URL of the sidecar and the file of its token."""
    parser.add_argument(
        "--sidecar",
        default="http://127.0.0.1:9464",
        metavar="URL",
        help="URL of the sidecar's metrics port (default %(default)s)",
    )
    parser.add_argument(
        TOKEN_FLAG, required=True, metavar="FILE", help="token file, the same as --admin-token-file of the sidecar"
    )


def send(
    method: str, url: Url, path: str, body: bytes = b"", headers: Mapping[str, str] = _JSON, timeout: float = TIMEOUT
) -> tuple[int, str]:
    """Status and body of the response.

    Not by urllib, which would send a token to redirects and to proxies from the environment.

    Raises:
        OSError, http.client.HTTPException: the request failed.
    """
    connect = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = connect(url.host, url.port, timeout=timeout)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.read().decode(errors="replace")
    finally:
        connection.close()


def sidecar_url(text: str) -> Url:
    """The URL of --sidecar."""
    url = parse_url("--sidecar", text, "http://host:port or https://host:port")
    if url.path not in {"", "/"}:
        raise UsageError(f"--sidecar: {text!r} has a path; remove {url.path!r}")
    return url


def post(url: str, path: str, token: bytes, body: bytes = b"", timeout: float = TIMEOUT) -> tuple[int, str]:
    """Status and body of the response of a sidecar.

    Raises:
        NoResponseError: the request was sent, but there is no response.
        NotReachableError: nothing listens at the URL.
        UsageError: the URL is invalid, the token is rejected or the endpoint does not exist.
    """
    headers = {"authorization": f"Bearer {token.decode()}", **_JSON}
    try:
        status, text = send("POST", sidecar_url(url), path, body, headers, timeout)
    except (OSError, http.client.HTTPException) as error:
        message = f"--sidecar: {url}: request failed: {str(error) or type(error).__name__}"
        lost = isinstance(error, TimeoutError | ConnectionResetError | BrokenPipeError | http.client.IncompleteRead)
        raise (NoResponseError if lost else NotReachableError)(message) from error
    if status == 401:
        raise UsageError(f"{TOKEN_FLAG}: the sidecar rejected the token; use the file of its {TOKEN_FLAG}")
    if status == 404:
        raise UsageError(f"--sidecar: {url} has no {path}; start the sidecar with {TOKEN_FLAG} FILE")
    return status, text


def no_sidecar(url: str, status: int, text: str) -> UsageError:
    """The error for a response that no sidecar sends."""
    return UsageError(f"--sidecar: {url} is not a sidecar: it responded {status} with {text[:80]!r}")
