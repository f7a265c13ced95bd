"""The `OTEL_*` variables of the OpenTelemetry specification that set up the export of spans; flags take precedence."""

import ssl
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote

from exporters.configuration import otlp_endpoints
from exporters.configuration.collector_tls import CollectorTls
from exporters.configuration.otlp_endpoints import Semconv
from exporters.text import pem_file
from exporters.text.connect_errors import tls_reason
from exporters.text.errors import UsageError

DISABLED = "OTEL_SDK_DISABLED"
SAMPLER = "OTEL_TRACES_SAMPLER"
SAMPLER_ARG = "OTEL_TRACES_SAMPLER_ARG"
TRACES_EXPORTER = "OTEL_TRACES_EXPORTER"
RESOURCE_ATTRIBUTES = "OTEL_RESOURCE_ATTRIBUTES"
SEMCONV = "OTEL_SEMCONV_STABILITY_OPT_IN"
LATEST_GENAI = "gen_ai_latest_experimental"

_SHARES = {"always_on": 1.0, "parentbased_always_on": 1.0, "always_off": 0.0, "parentbased_always_off": 0.0}
_RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")

Environment = Mapping[str, str]


class Variable(NamedTuple):
    """A variable that is set; empty ones count as unset."""

    name: str
    value: str


class Endpoint(NamedTuple):
    """The collector's URL, and the variable that it is from."""

    variable: str
    url: str


def disabled(environment: Environment) -> bool:
    """Whether no spans are exported at all."""
    return _lower(environment, DISABLED) == "true"


def endpoint(environment: Environment) -> Endpoint | None:
    """The collector of the variables; raises UsageError if a variable is invalid."""
    found = _of_traces(environment, "ENDPOINT")
    if found is None or _lower(environment, TRACES_EXPORTER) == "none":
        return None
    name, text = found
    if _selects(environment, "PROTOCOL", "grpc", "http/protobuf"):
        scheme, separator, rest = text.partition("://")
        text = f"{({'http': 'grpc', 'https': 'grpcs'}).get(scheme.lower(), scheme)}{separator}{rest}"
    elif "TRACES" not in name and text.lower().startswith("http"):
        text = f"{text.rstrip('/')}{otlp_endpoints.TRACES_PATH}"
    return Endpoint(name, otlp_endpoints.url(text, name, default_path="/"))


def good_share(environment: Environment) -> float | None:
    """The share of good requests by the sampler; None if it is not set or not supported.

    Raises:
        UsageError: the ratio is invalid.
    """
    sampler = _lower(environment, SAMPLER)
    if sampler not in _RATIO_SAMPLERS:
        return _SHARES.get(sampler)
    text = environment.get(SAMPLER_ARG, "").strip() or "1"
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise UsageError(f"{SAMPLER_ARG}: {text!r} is not a valid ratio; write a number from 0 to 1, such as 0.01")
    return ratio


def semconv(environment: Environment) -> Semconv:
    """The version of the GenAI attribute names; as in OpenTelemetry, a list without the latest one selects 1.36."""
    chosen = [value.strip() for value in _lower(environment, SEMCONV).split(",")]
    return Semconv.V1_44 if chosen == [""] or LATEST_GENAI in chosen else Semconv.V1_36


def headers(environment: Environment) -> dict[str, str]:
    """The headers for the collector. Messages never show a value; raises UsageError if one is invalid."""
    found = _of_traces(environment, "HEADERS")
    pairs = [pair for pair in found.value.split(",") if pair.strip()] if found else []
    result = {}
    for number, pair in enumerate(pairs, 1):
        name, equals, value = (unquote(part).strip() for part in pair.partition("="))
        if not equals or not otlp_endpoints.is_header(name, value):
            raise UsageError(
                f"{found.name}: header number {number} is invalid (its value is not shown); "  # type: ignore[union-attr]
                "write name=value,name=value in printable ASCII, with %2C for a comma in a value"
            )
        result[name.lower()] = value
    return result


def timeout(environment: Environment) -> float:
    """Seconds for one batch with its retries; raises UsageError if the variable is invalid."""
    found = _of_traces(environment, "TIMEOUT")
    if found is None:
        return otlp_endpoints.TIMEOUT
    if not (found.value.isascii() and found.value.isdecimal() and int(found.value)):
        raise UsageError(
            f"{found.name}: {found.value!r} is not a valid timeout; write milliseconds as an integer, such as 3000"
        )
    return int(found.value) / 1000


def gzip(environment: Environment) -> bool:
    """Whether messages are compressed; raises UsageError if the compression is not supported."""
    return _selects(environment, "COMPRESSION", "gzip", "none")


def tls(environment: Environment) -> CollectorTls:
    """The files of the variables; raises UsageError if a file cannot be used."""
    ca, certificate, key = (
        _of_traces(environment, name) for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
    )
    if certificate and not key:
        raise UsageError(
            f"{certificate.name}: needs a private key; set {certificate.name.removesuffix('CERTIFICATE')}KEY"
        )
    if key and not certificate:
        raise UsageError(f"{key.name}: needs a certificate; set {key.name.removesuffix('KEY')}CERTIFICATE")
    ca_file, certificate_file, key_file = (
        None if variable is None else pem_file.read(variable.value, variable.name)
        for variable in (ca, certificate, key)
    )
    if key is not None and key_file is not None and b"ENCRYPTED" in key_file.content:
        raise UsageError(f"{key.name}: {key.value} has a passphrase; remove it with: openssl pkey -in {key.value}")
    if ca is not None:
        _check_tls(CollectorTls(ca=ca_file), ca)
    if certificate is not None:
        _check_tls(CollectorTls(certificate=certificate_file, key=key_file), certificate)
    return CollectorTls(ca=ca_file, certificate=certificate_file, key=key_file)


def check_resource_attributes(environment: Environment) -> None:
    """Check the attributes, which the SDK reads; raises UsageError if one is invalid."""
    text = environment.get(RESOURCE_ATTRIBUTES, "")
    for pair in text.split(","):
        name, equals, _ = pair.partition("=")
        if pair.strip() and not (equals and name.strip()):
            raise UsageError(
                f"{RESOURCE_ATTRIBUTES}: {pair.strip()!r} is not a valid attribute; write name=value,name=value"
            )


def warnings(environment: Environment) -> Iterator[str]:
    """Values that have no effect."""
    text = environment.get(DISABLED, "").strip()
    if text.lower() not in {"", "true", "false"}:
        yield f"{DISABLED}: {text!r} is neither true nor false; it counts as false"
    sampler = environment.get(SAMPLER, "").strip()
    if sampler and sampler.lower() not in {*_SHARES, *_RATIO_SAMPLERS}:
        known = ", ".join((*_SHARES, *_RATIO_SAMPLERS))
        yield f"{SAMPLER}: {sampler!r} is not supported and has no effect; use {known}"


def _check_tls(files: CollectorTls, variable: Variable) -> None:
    try:
        files.context()
    except ssl.SSLError as error:
        why = tls_reason(error) if error.reason else "it is corrupt"
        raise UsageError(f"{variable.name}: {variable.value} cannot be used: {why}") from error


def _selects(environment: Environment, suffix: str, other: str, default: str) -> bool:
    """Whether the variable has the value that is not the default; raises UsageError if it has a third one."""
    found = _of_traces(environment, suffix)
    if found is None or found.value.lower() == default:
        return False
    if found.value.lower() != other:
        raise UsageError(f"{found.name}: {found.value!r} is not supported; use {other} or {default}")
    return True


def _of_traces(environment: Environment, suffix: str) -> Variable | None:
    """The variable for traces, which takes precedence, or the one for all signals."""
    for name in (f"OTEL_EXPORTER_OTLP_TRACES_{suffix}", f"OTEL_EXPORTER_OTLP_{suffix}"):
        if value := environment.get(name, "").strip():
            return Variable(name, value)
    return None


def _lower(environment: Environment, name: str) -> str:
    return environment.get(name, "").strip().lower()
