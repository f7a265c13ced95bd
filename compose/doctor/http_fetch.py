"""One request to the engine or the sidecar, with the times between which its response was made."""

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from compose.doctor.finding import Place, Unread
from exporters.text.errors import system_reason

TIMEOUT = 2.0
"""Seconds for the connection, and for each read; all requests run at the same time."""

MAX_BYTES = 64 * 1024 * 1024
"""Larger responses are cut; one rank of vLLM has 60 KiB of metrics."""

_NO_HEADERS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Response:
    """`date` is the header; times in unix seconds of this machine."""

    status: int
    body: str
    date: str | None
    sent_at: float
    received_at: float


def fetch(
    place: Place, path: str, headers: Mapping[str, str] = _NO_HEADERS, body: str | None = None
) -> Response | Unread:
    """The response with any status to `GET path`, or with a body to `POST path`.

    Not by urllib, which would send a token to redirects and to proxies from the environment.
    """
    parts = urlsplit(place.url)
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = connect(parts.hostname or "", parts.port, timeout=TIMEOUT)
        try:
            sent_at = time.time()
            connection.request(
                "GET" if body is None else "POST",
                parts.path.rstrip("/") + path,
                body,
                {"content-type": "application/json", **headers} if body is not None else dict(headers),
            )
            response = connection.getresponse()
            received_at = time.time()
            text = response.read(MAX_BYTES).decode(errors="replace")
        finally:
            connection.close()
    except TimeoutError:
        return place.unreachable(f"no response within {TIMEOUT:g} s")
    except OSError as error:
        return place.unreachable(system_reason(error))
    except http.client.HTTPException as error:
        return place.unreachable(f"the response is not HTTP: {type(error).__name__}")
    return Response(response.status, text, response.headers["date"], sent_at, received_at)
