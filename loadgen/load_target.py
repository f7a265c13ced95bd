"""The target of the load; a remote target needs --allow-remote."""

from dataclasses import dataclass

from exporters.addresses import Address, is_loopback, parse_url
from exporters.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """The base URL of an OpenAI-compatible API; `path` is the prefix of `/v1/...`."""

    host: str
    port: int
    tls: bool = False
    path: str = ""

    @property
    def netloc(self) -> str:
        return str(Address(self.host, self.port))

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.path}"


def parse(url: str, *, allow_remote: bool) -> Target:
    """The target at the base URL `url`.

    Raises:
        UsageError: the URL is invalid, or remote without `allow_remote`.
    """
    parts = parse_url("--target", url, "a base URL without a query, such as http://127.0.0.1:8000")
    if parts.user:
        raise UsageError("--target: a user is not supported; remove it from the URL")
    if not is_loopback(parts.host) and not allow_remote:
        raise UsageError(
            f"--target: {parts.host} is another machine; use 127.0.0.1, or set --allow-remote if you may load-test it"
        )
    tls = parts.scheme == "https"
    return Target(parts.host, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/").removesuffix("/v1"))
