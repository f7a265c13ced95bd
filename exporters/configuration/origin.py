"""The origin of the engine, from `--upstream`."""

import ssl
from dataclasses import dataclass

from exporters.addresses import Address, parse_url
from exporters.configuration.tls import SYSTEM, Trust


@dataclass(frozen=True, slots=True)
class Origin:
    """Address, TLS settings and path prefix of the engine."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str

    @property
    def authority(self) -> str:
        return str(Address(self.host, self.port))


def origin(url: str, trust: Trust = SYSTEM) -> Origin:
    """Parse `http://host:port[/prefix]`.

    Raises:
        UsageError: the URL is invalid, or the file of authorities cannot be read.
    """
    parts = parse_url("--upstream", url, "http://host:port or https://host:port")
    tls = trust.context() if parts.scheme == "https" else None
    return Origin(parts.host, parts.port or (443 if tls else 80), tls, parts.path.rstrip("/"))
