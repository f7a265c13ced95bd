"""The bearer token for the engine's metrics and models, and the log lines if the engine denies access."""

import logging
from urllib.parse import urlsplit

from exporters.text.token_file import read_token

DENIED = frozenset({401, 403})
"""Statuses of a missing or wrong token."""

logger = logging.getLogger("vllm_slo.engines")


class EngineToken:
    """The token of `--engine-token-file`; none until the file has been read."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._token: str | None = None

    def read(self) -> None:
        """Read the file again; if it is invalid, keep the token.

        Raises:
            UsageError: the file is invalid; the message contains no secret.
        """
        self._token = read_token(self._path, "--engine-token-file", " in one line")

    def headers(self, url: str) -> dict[str, str]:
        """The header of a request to the engine; none if its URL has other credentials."""
        return {} if self._token is None or _has_credentials(url) else {"authorization": f"Bearer {self._token}"}


class AccessLog:
    """Logs when an endpoint starts or stops to deny access, but not each response."""

    def __init__(self, *, has_token: bool) -> None:
        self._has_token = has_token
        self._denied: dict[str, int] = {}

    def denied(self, url: str, status: int, consequence: str) -> None:
        if self._denied.get(url) == status:
            return
        self._denied[url] = status
        if _has_credentials(url):
            reason = "it rejects the credentials in its URL"
        elif self._has_token:
            reason = "it rejects the token of --engine-token-file; write a valid one and send SIGHUP"
        else:
            reason = "it requires a token; set --engine-token-file"
        logger.warning("%s returned status %d: %s. Until then, %s", shown_url(url), status, reason, consequence)

    def accepted(self, url: str) -> None:
        if self._denied.pop(url, None) is not None:
            logger.info("%s accepts requests again", shown_url(url))


def _has_credentials(url: str) -> bool:
    return "@" in urlsplit(url).netloc


def shown_url(url: str) -> str:
    """The URL without credentials and query, which may contain secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
