"""Reports to a sidecar that its engine is warm."""

import http.client
from dataclasses import dataclass, field

from exporters.text.addresses import Url, parse_url
from exporters.text.errors import NotReachableError, UsageError
from exporters.text.token_file import read_token

TOKEN_FLAG = "--admin-token-file"  # noqa: S105 - the name of a flag
_PATH = "/admin/warm"
_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The metrics port of a sidecar, and its admin token."""

    url: str
    parts: Url
    token: str = field(repr=False)

    @classmethod
    def parse(cls, url: str, token_file: str | None) -> "Sidecar":
        """The sidecar of the flags.

        Raises:
            UsageError: the URL or the token is invalid.
        """
        if token_file is None:
            raise UsageError(f"--ready: needs the admin token of the sidecar; add {TOKEN_FLAG} FILE")
        parts = parse_url("--sidecar", url, "http://host:port or https://host:port")
        return cls(url, parts, read_token(token_file, TOKEN_FLAG))

    def report_warm(self) -> None:
        """Report that the engine is warm.

        Raises:
            NotReachableError: the sidecar does not respond.
            UsageError: it does not accept the report.
        """
        # Not urllib, which would send the token to redirects and proxies from the environment.
        connect = http.client.HTTPSConnection if self.parts.scheme == "https" else http.client.HTTPConnection
        connection = connect(self.parts.host, self.parts.port, timeout=_TIMEOUT)
        try:
            connection.request("POST", _PATH, headers={"authorization": f"Bearer {self.token}"})
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            message = f"--sidecar: {self.url}: request failed: {str(error) or type(error).__name__}"
            raise NotReachableError(message) from error
        finally:
            connection.close()
        match status:
            case 200:
                return
            case 401:
                raise UsageError(f"{TOKEN_FLAG}: the sidecar rejected the token; use the file of its {TOKEN_FLAG}")
            case 404:
                raise UsageError(f"--sidecar: {self.url} has no {_PATH}; start the sidecar with {TOKEN_FLAG} FILE")
        raise UsageError(f"--sidecar: {self.url} is not a sidecar: it responded {status}")
