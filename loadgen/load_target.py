"""The target of the load; a remote target needs --allow-remote."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.addresses import Address, is_loopback
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
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--target {url}: invalid URL: {str(error).lower()}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"--target {url}: not a base URL; write it as http://127.0.0.1:8000")
    if parts.query or parts.fragment or parts.username:
        raise UsageError(f"--target {url}: user, query and fragment are not supported; remove them")
    if not is_loopback(parts.hostname) and not allow_remote:
        raise UsageError(
            f"--target {url}: {parts.hostname} is another machine; use 127.0.0.1, or set --allow-remote if you may "
            "load-test it"
        )
    tls = parts.scheme == "https"
    return Target(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/").removesuffix("/v1"))
