"""Network addresses as HOST:PORT: parsing and formatting."""

import ipaddress
from typing import NamedTuple

from exporters.errors import InvalidValueError


class Address(NamedTuple):
    """A host name or IP address (IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, example: str = "127.0.0.1:8001", *, needs_host: bool = False) -> Address:
    """The address of `HOST:PORT`, `[IPV6]:PORT` or, unless it `needs_host`, `:PORT` for every interface.

    Raises:
        InvalidValueError: the text is no such address; the message has the `example`.
    """
    host, _, port = text.rpartition(":")
    valid_port = port.isascii() and port.isdecimal() and int(port) <= 65535
    if ":" not in text or not valid_port or any(map(str.isspace, host)) or (needs_host and not host):
        raise InvalidValueError(f"{text!r} is no address; write HOST:PORT, such as {example}")
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - `:PORT` asks for every interface


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine; a name other than localhost does not, whatever it resolves to."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
