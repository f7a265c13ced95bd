"""The origin of the engine, from `--upstream`."""

import ssl
from dataclasses import dataclass

from exporters.configuration.tls import SYSTEM, Trust
from exporters.text.addresses import Address, parse_url


@dataclass(frozen=True, slots=True)
class Origin:
    """Address, TLS settings and path prefix of the engine."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str
    host_header: str
    """The Host header, without a default port: some servers and gateways compare it with a plain name."""

    @property
    def authority(self) -> str:
        return str(Address(self.host, self.port))


def origin(url: str, trust: Trust = SYSTEM) -> Origin:
    """Parse `http://host:port[/prefix]`; raises UsageError if the URL or the file of authorities is invalid."""
    parts = parse_url("--upstream", url, "http://host:port or https://host:port")
    tls = trust.context() if parts.scheme == "https" else None
    default = 443 if tls else 80
    address = Address(parts.host, parts.port or default)
    return Origin(*address, tls, parts.path.rstrip("/"), host_header=str(address).removesuffix(f":{default}"))
