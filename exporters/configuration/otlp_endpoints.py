"""Parses the OTLP flags, without the OpenTelemetry SDK."""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

import msgspec

from exporters.configuration.collector_tls import CollectorTls
from exporters.text.addresses import Address, parse_url
from exporters.text.errors import UsageError

TRACES_PATH = "/v1/traces"
TIMEOUT = 3.0
"""Seconds for one batch with its retries."""
_SCHEMES = ("http", "https", "grpc", "grpcs")
_EXAMPLES = "http://127.0.0.1:4318 or grpc://127.0.0.1:4317"
_RECEIVERS = "grpc://127.0.0.1:4317 or http://127.0.0.1:4318"
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_CREDENTIALS = re.compile(r"[^/]*//[^/]*@")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]*")


class Semconv(StrEnum):
    """A version of the GenAI semantic conventions, named by the release of the core conventions."""

    V1_36 = "1.36"
    """The version that older back ends expect."""

    V1_44 = "1.44"
    """The version in the separate repository of the GenAI conventions."""


class Collector(msgspec.Struct, frozen=True, kw_only=True):
    """The OTLP receiver that spans are sent to."""

    url: str  # http(s)://host:port/path for HTTP/protobuf, grpc(s)://host:port for gRPC
    headers: dict[str, str] = {}  # may contain a token
    semconv: Semconv = Semconv.V1_44
    good_share: float = 1.0  # of the good requests, whose traces are kept
    timeout: float = TIMEOUT
    gzip: bool = False
    tls: CollectorTls = CollectorTls()

    def __repr__(self) -> str:
        return f"Collector({self.url!r}, headers={sorted(self.headers)}, semconv={self.semconv.value!r})"


class Receiver(msgspec.Struct, frozen=True):
    """An address on which the sidecar receives the engine's spans."""

    grpc: bool  # else HTTP/protobuf
    host: str
    port: int

    @property
    def address(self) -> str:
        return str(Address(self.host, self.port))


def semconv(text: str) -> Semconv:
    """Parse a version; raises UsageError if the version is not supported."""
    try:
        return Semconv(text)
    except ValueError as error:
        known = " or ".join(version.value for version in Semconv)
        raise UsageError(f"--otlp-semconv: {text!r} is not a supported version; use {known}") from error


def url(text: str, flag: str = "--otlp", *, default_path: str = TRACES_PATH) -> str:
    """The URL of a collector, completed with port and, for HTTP, path; `flag` names the source in messages.

    Raises:
        UsageError: the URL is invalid.
    """
    if _CREDENTIALS.match(text):
        raise UsageError(f"{flag}: the URL contains credentials; use --otlp-header 'authorization=Basic ...' instead")
    parts = parse_url(flag, text, _EXAMPLES, _SCHEMES)
    grpc = parts.scheme.startswith("grpc")
    path = parts.path.rstrip("/")
    if grpc and path:
        raise UsageError(f"{flag}: {text!r} has a path, but gRPC takes none; remove {path!r}")
    address = Address(parts.host, parts.port or (4317 if grpc else 4318))
    return f"{parts.scheme}://{address}{'' if grpc else path or default_path}"


def receiver(text: str) -> Receiver:
    """Parse the URL to listen on, which the engine also has; raises UsageError if the sidecar cannot listen on it."""
    parts = parse_url("--engine-spans", text, _RECEIVERS, _SCHEMES)
    if parts.scheme in {"https", "grpcs"}:
        raise UsageError(f"--engine-spans: {text!r} requires TLS, which is not supported; write {_RECEIVERS}")
    grpc = parts.scheme == "grpc"
    if _CREDENTIALS.match(text) or parts.path not in ({"", "/"} if grpc else {"", "/", TRACES_PATH}):
        raise UsageError(f"--engine-spans: cannot listen on {text!r}; write {_RECEIVERS}")
    return Receiver(grpc, parts.host, parts.port or (4317 if grpc else 4318))


def headers(pairs: Iterable[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The headers to send: `NAME=VALUE` pairs override the environment. Messages never show a value.

    Raises:
        UsageError: a pair is not a valid header.
    """
    merged = dict(environment)
    for number, text in enumerate(pairs, 1):
        name, equals, value = text.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not is_header(name, value):
            raise UsageError(
                f"--otlp-header: header number {number} is invalid (its value is not shown); "
                "write NAME=VALUE in printable ASCII, such as authorization='Bearer ...'"
            )
        merged[name.lower()] = value
    return merged


def is_header(name: str, value: str) -> bool:
    """Whether both are valid in a header for the collector."""
    return bool(_HEADER_NAME.fullmatch(name) and _HEADER_VALUE.fullmatch(value))
