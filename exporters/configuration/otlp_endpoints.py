"""Parses the flags about OTLP, before anything starts and without the OpenTelemetry SDK."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from exporters.addresses import Address
from exporters.errors import UsageError

TRACES_PATH = "/v1/traces"
_EXAMPLES = "http://127.0.0.1:4318 or grpc://127.0.0.1:4317"
_RECEIVERS = "grpc://127.0.0.1:4317 or http://127.0.0.1:4318"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class Semconv(StrEnum):
    """A version of the GenAI semantic conventions, by the release of the core conventions that it belongs to."""

    V1_36 = "1.36"
    """For older instrumentations and their back ends."""

    V1_44 = "1.44"
    """From the separate repository of the GenAI conventions."""


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    """One OTLP receiver."""

    url: str  # http(s)://host:port/path for HTTP/protobuf, grpc(s)://host:port for gRPC
    headers: dict[str, str] = {}  # may hold a token
    semconv: Semconv = Semconv.V1_44

    def __repr__(self) -> str:
        return f"Collector({self.url!r}, headers={sorted(self.headers)}, semconv={self.semconv.value!r})"


class Receiver(msgspec.Struct, frozen=True):
    """An address on which the engine's spans are received."""

    grpc: bool  # else HTTP/protobuf
    host: str
    port: int

    @property
    def address(self) -> str:
        return str(Address(self.host, self.port))


def semconv(text: str) -> Semconv:
    """A version by its number.

    Raises:
        UsageError: it is not known here.
    """
    try:
        return Semconv(text)
    except ValueError as error:
        known = " or ".join(version.value for version in Semconv)
        raise UsageError(f"--otlp-semconv: {text!r} is no version known here; use {known}") from error


def url(text: str) -> str:
    """The address of a collector with its port and, for HTTP, its path.

    Raises:
        UsageError: it is none.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--otlp: {text!r} is no address: {error}; write {_EXAMPLES}") from error
    if parts.username is not None or parts.password is not None:
        raise UsageError("--otlp: an address takes no user and password; use --otlp-header 'authorization=Basic ...'")
    if parts.scheme not in {"http", "https", "grpc", "grpcs"} or not host or parts.query or parts.fragment:
        raise UsageError(f"--otlp: {text!r} is no address; write {_EXAMPLES}")
    grpc = parts.scheme.startswith("grpc")
    path = parts.path.rstrip("/")
    if grpc and path:
        raise UsageError(f"--otlp: {text!r} has a path, which gRPC does not take; leave out {path!r}")
    where = f"{parts.scheme}://{Address(host, port or (4317 if grpc else 4318))}"
    return where if grpc else where + (path or TRACES_PATH)


def receiver(text: str) -> Receiver:
    """Parse the address to listen on, in the form that the engine is configured with.

    Raises:
        UsageError: it is none to listen on.
    """
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--engine-spans: {text!r} is no address: {error}; write {_RECEIVERS}") from error
    if parts.scheme in {"https", "grpcs"}:
        raise UsageError(f"--engine-spans: {text!r} asks for TLS, which is not offered; write {_RECEIVERS}")
    grpc = parts.scheme == "grpc"
    if (
        parts.scheme not in {"http", "grpc"}
        or not host
        or "@" in parts.netloc
        or parts.path not in ({"", "/"} if grpc else {"", "/", TRACES_PATH})
        or parts.query
        or parts.fragment
    ):
        raise UsageError(f"--engine-spans: {text!r} is no address to listen on; write {_RECEIVERS}")
    return Receiver(grpc, host, port or (4317 if grpc else 4318))


def headers(pairs: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The headers to send: each `NAME=VALUE` overrides those of the environment; a message never shows a value.

    Raises:
        UsageError: one of them is no header.
    """
    merged = dict(environment)
    for number, text in enumerate(pairs, 1):
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise UsageError(
                f"--otlp-header: number {number} is no header (its value is not shown here); "
                "write NAME=VALUE in printable ASCII, such as authorization='Bearer ...'"
            )
        merged[name.lower()] = value
    return merged
