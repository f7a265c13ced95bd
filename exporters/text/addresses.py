"""Network addresses and URLs in flags: parsing and formatting."""

import ipaddress
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import urlsplit

from exporters.text.errors import InvalidValueError, UsageError


class Address(NamedTuple):
    """A host name or IP address (IPv6 without brackets) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, example: str = "127.0.0.1:8001", *, needs_host: bool = False) -> Address:
    """Parse `HOST:PORT`, `[IPV6]:PORT` or, unless `needs_host`, `:PORT` for all interfaces.

    Raises:
        InvalidValueError: the text is not such an address; the message has the `example`.
    """
    host, _, port = text.rpartition(":")
    valid_port = port.isascii() and port.isdecimal() and int(port) <= 65535
    write = f"write HOST:PORT, such as {example}"
    if ":" not in text or not valid_port or any(map(str.isspace, host)) or (needs_host and not host):
        raise InvalidValueError(f"{text!r} is not a valid address; {write}")
    try:
        check_host(host)
    except ValueError as error:
        raise InvalidValueError(f"{text!r} is not a valid address: {error}; {write}") from error
    return Address(host.strip("[]") or "0.0.0.0", int(port))  # noqa: S104 - `:PORT` means all interfaces


class Url(NamedTuple):
    """The parts of a URL; without a port, `port` is None."""

    scheme: str
    user: str | None
    host: str
    port: int | None
    path: str


def parse_url(flag: str, text: str, examples: str, schemes: Collection[str] = ("http", "https")) -> Url:
    """Parse the URL of a flag, which needs one of the schemes and a host and takes no query or fragment.

    Raises:
        UsageError: the text is not such a URL; the message starts with the flag and has the `examples`.
    """
    reason = ""
    try:
        parts = urlsplit(text)
        if parts.scheme in schemes and parts.hostname and not parts.query and not parts.fragment:
            check_host(parts.hostname)
            return Url(parts.scheme, parts.username, parts.hostname, parts.port, parts.path)
    except ValueError as error:
        reason = f": {error}"
    raise UsageError(f"{flag}: {text!r} is not a valid URL{reason}; write {examples}")


def check_host(host: str) -> None:
    """Check what the resolver requires of a name.

    Raises:
        ValueError: the name cannot be resolved; the text is the reason in a message.
    """
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError("a label of its host is empty, longer than 63 bytes or has an invalid character") from error


def is_ip(host: str) -> bool:
    """Whether `host` is an address and not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether `host` is localhost or a loopback address; other names are not resolved."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
