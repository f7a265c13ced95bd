"""The engine's address, as `--upstream` gives it."""

import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from exporters.addresses import Address
from exporters.configuration.tls import SYSTEM, Trust
from exporters.errors import UsageError


@dataclass(frozen=True, slots=True)
class Origin:
    """Address of the engine."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str

    @property
    def authority(self) -> str:
        return str(Address(self.host, self.port))


def origin(url: str, trust: Trust = SYSTEM) -> Origin:
    """Read `http://host:port[/prefix]`.

    Raises:
        UsageError: the address is not of this form, or the file of authorities cannot be read.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--upstream: {url!r} is no address: {error}; write http://host:port") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
        raise UsageError(f"--upstream: {url!r} is no address; write http://host:port or https://host:port")
    tls = trust.context() if parts.scheme == "https" else None
    return Origin(parts.hostname, port or (443 if tls else 80), tls, parts.path.rstrip("/"))
