"""The target of the load, which must be this machine unless a flag allows another."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.addresses import Address, is_loopback
from exporters.errors import UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """The base of an OpenAI-compatible API; `path` goes before `/v1/...`."""

    host: str
    port: int
    tls: bool = False
    path: str = ""

    @property
    def netloc(self) -> str:
        return str(Address(self.host, self.port))

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.path}"

    @property
    def is_loopback(self) -> bool:
        """By the name alone: what a resolver returns can change."""
        return is_loopback(self.host)


def parse(url: str, *, allow_remote: bool) -> Target:
    """The target that `url` names.

    Raises:
        UsageError: it is no base URL, or a remote one without `allow_remote`.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--target {url}: is no URL: {str(error).lower()}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"--target {url}: is no URL of an API; write it as http://127.0.0.1:8000")
    if parts.query or parts.fragment or parts.username:
        raise UsageError(f"--target {url}: has more than scheme, host, port and path; leave the rest out")
    tls = parts.scheme == "https"
    target = Target(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/").removesuffix("/v1"))
    if not target.is_loopback and not allow_remote:
        raise UsageError(
            f"--target {url}: {parts.hostname} is not this machine, and load on the wrong host hurts; "
            "use 127.0.0.1, or give --allow-remote if it is yours to load"
        )
    return target
