"""Reports to a sidecar that its engine is warm."""

from dataclasses import dataclass, field

from exporters.http.admin_client import TOKEN_FLAG, no_sidecar, post, sidecar_url
from exporters.text.errors import UsageError
from exporters.text.token_file import read_token


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The metrics port of a sidecar, and its admin token."""

    url: str
    token: bytes = field(repr=False)

    @classmethod
    def parse(cls, url: str, token_file: str | None) -> "Sidecar":
        """The sidecar of the flags.

        Raises:
            UsageError: the URL or the token is invalid.
        """
        if token_file is None:
            raise UsageError(f"--ready: needs the admin token of the sidecar; add {TOKEN_FLAG} FILE")
        sidecar_url(url)
        return cls(url, read_token(token_file, TOKEN_FLAG).encode())

    def report_warm(self) -> None:
        """Report that the engine is warm.

        Raises:
            NotReachableError: the sidecar does not respond.
            UsageError: it does not accept the report.
        """
        status, text = post(self.url, "/admin/warm", self.token)
        if status != 200:
            raise no_sidecar(self.url, status, text)
