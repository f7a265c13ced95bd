"""The client of the admin endpoints, for the commands that use them."""

import argparse
import http.client

from exporters.text.addresses import parse_url
from exporters.text.errors import NotReachableError, UsageError

TIMEOUT = 10.0
TOKEN_FLAG = "--admin-token-file"  # noqa: S105 - the name of a flag


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


def post(url: str, path: str, token: bytes, body: bytes = b"", timeout: float = TIMEOUT) -> tuple[int, str]:
    """Status and body of the response of a sidecar.

    Raises:
        NoResponseError: the request was sent, but there is no response.
        NotReachableError: nothing listens at the URL.
        UsageError: the URL is invalid, the token is rejected or the endpoint does not exist.
    """
    # Not urllib, which would send the token to redirects and proxies from the environment.
    parts = parse_url("--sidecar", url, "http://host:port or https://host:port")
    if parts.path not in {"", "/"}:
        raise UsageError(f"--sidecar: {url!r} has a path; remove {parts.path!r}")
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(parts.host, parts.port, timeout=timeout)
    headers = {"authorization": f"Bearer {token.decode()}", "content-type": "application/json"}
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        message = f"--sidecar: {url}: request failed: {str(error) or type(error).__name__}"
        lost = isinstance(error, TimeoutError | ConnectionResetError | BrokenPipeError | http.client.IncompleteRead)
        raise (NoResponseError if lost else NotReachableError)(message) from error
    finally:
        connection.close()
    if response.status == 401:
        raise UsageError(f"{TOKEN_FLAG}: the sidecar rejected the token; use the file of its {TOKEN_FLAG}")
    if response.status == 404:
        raise UsageError(f"--sidecar: {url} has no {path}; start the sidecar with --admin-token-file FILE")
    return response.status, text


def no_sidecar(url: str, status: int, text: str) -> UsageError:
    """The error for a response that no sidecar sends."""
    return UsageError(f"--sidecar: {url} is not a sidecar: it responded {status} with {text[:80]!r}")
