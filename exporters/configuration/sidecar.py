"""The flags of `vllm-slo sidecar`: each is a field, from which help, environment variable and parsing derive."""

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec

from exporters.configuration.flags import (
    DURATION,
    DURATION_OR_ZERO,
    FILE,
    PATH,
    REQUIRED,
    SIZE,
    Group,
    Kind,
    choice,
    count,
    flag,
    member,
    or_never,
    text,
)
from exporters.configuration.otlp_endpoints import Collector, Receiver, receiver
from exporters.configuration.tls import SYSTEM, Certificate, Trust
from exporters.requestlog.rotation import RotationLimits
from exporters.requestlog.standard_output import STANDARD_OUTPUT
from exporters.text.errors import InvalidValueError, UsageError
from exporters.text.logs import FORMAT_HELP, FORMATS, LEVEL_HELP, LEVELS
from exporters.text.units import parse_size
from exporters.vocabulary.ceilings import Ceilings
from exporters.vocabulary.slo_file import SHIPPED, Measure, SloFile

MAX_MODELS = 50
"""Default number of models with a label value of their own: an engine may list thousands of LoRA adapters."""


class LogContent(StrEnum):
    """What the request log has of prompts and completions."""

    OFF = "off"
    HASH = "hash"
    """A salted hash of the prompt."""
    FULL = "full"
    """The hash and both texts."""


class TlsPort(StrEnum):
    """The ports that use the server certificate."""

    CLIENTS = "clients"
    METRICS = "metrics"
    BOTH = "both"


class LogKind(StrEnum):
    """The kind of a followed log."""

    REQUEST_LOG = "request log"
    """The sidecar's own."""
    ACCESS_LOG = "access log"
    """One of a gateway, with a line of JSON for each request."""


REQUEST_LOG = "vllm-slo"
"""The value of --follow-format for the request log."""


class FollowedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `--follow`."""

    path: str
    format: str = REQUEST_LOG
    fields: str | None = None
    """The file of the field map of an access log."""
    state: str

    @property
    def kind(self) -> LogKind:
        return LogKind.REQUEST_LOG if self.fields is None else LogKind.ACCESS_LOG


MAX_LOGGED_CONTENT = 64 * 1024
"""Bytes of a prompt or a completion; escaped as JSON, both together are shorter than `MAX_LINE` of the log's reader."""

MAX_BUFFERED = 128 * 1024 * 1024
LEAST_BUFFERED = 16 * 1024 * 1024
"""The default of --max-buffered, and the least share of a relay in bytes."""

_FOLLOWING = tuple(LogKind)
"""Flags of the relay have no effect with these."""
_ACCESS_LOG = (LogKind.ACCESS_LOG,)
"""Flags that say what a request log contains have no effect with this."""

_relay = partial(flag, Group("relay"), no_effect=_FOLLOWING)
_limit = partial(
    flag, Group("limits", "DURATION is, for example, 250ms, 30s or 10m; SIZE is 64KiB or 256MiB"), no_effect=_FOLLOWING
)
_measurement = partial(flag, Group("measurement"))
_metrics = partial(flag, Group("metrics"))
_trace = partial(flag, Group("traces"), no_effect=_FOLLOWING)
_follow = partial(flag, Group("follow a log", "series from a growing log, without a relay"))
_logging = partial(flag, Group("logging"))


def _content_limit(text: str) -> int:
    limit = parse_size(text)
    if limit > MAX_LOGGED_CONTENT:
        raise InvalidValueError(f"{text} is above the maximum of 64KiB, so that programs can read each line")
    return limit


_LOG = replace(PATH, parse=lambda text: text if text == STANDARD_OUTPUT else PATH.parse(text))
_ADDRESS, _PATH, _NAME, _URL = text("HOST:PORT"), text("PATH"), text("NAME"), text("URL")
_CONTENT, _TLS_PORT = member("CONTENT", LogContent), member("PORT", TlsPort)
_SIZE_OR_NEVER, _DURATION_OR_NEVER = or_never(SIZE), or_never(DURATION)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)  # headers for the collector may contain a token
class SidecarFlags:
    """The values of the flags; times in seconds, sizes in bytes."""

    upstream: str = _relay(_URL, REQUIRED, no_effect=())
    """URL of the engine, such as http://127.0.0.1:8000 (required)"""
    upstream_ca: str | None = _relay(FILE, None, no_effect=())
    """CA certificates of the engine, in PEM (default: the system's)"""
    upstream_insecure: bool = _relay(None, False, no_effect=())
    """do not verify the engine's certificate"""
    listen: str = _relay(_ADDRESS, "127.0.0.1:8001")
    """address for clients (default %(default)s)"""
    tls_cert: str | None = _relay(FILE, None)
    """server certificate and its chain, in PEM; enables TLS on --tls-port; SIGHUP reloads it"""
    tls_key: str | None = _relay(FILE, None)
    """private key of --tls-cert, in PEM"""
    tls_port: TlsPort = _relay(_TLS_PORT, TlsPort.CLIENTS)  # noqa: RUF009 - it declares a field
    """the port that uses --tls-cert: clients (--listen), metrics (--metrics) or both (default %(default)s)"""
    allow_paths: tuple[str, ...] = _relay(_PATH, (), option="--allow-path", no_effect=(LogKind.REQUEST_LOG,))
    """additional path to relay; the default is inference and model paths only (repeatable)"""
    expose_engine_metrics: bool = _relay(None, False)
    """relay GET /metrics to the engine, for routers that read it at the serving address; these requests are in no
    series and in no log"""
    workers: int = _relay(count("relays"), 1)
    """number of relay processes (default %(default)s)"""
    max_head: int = _limit(SIZE, 64 * 1024)
    """maximum size of request line and headers; larger requests get status 431 (default %(default)s)"""
    max_body: int | None = _limit(_SIZE_OR_NEVER, 256 * 1024 * 1024)
    """maximum size of request bodies, or 'never'; larger requests get status 413 (default %(default)s)"""
    max_buffered: int | None = _limit(SIZE, None, no_effect=())
    """maximum memory for request bodies that are incomplete or that the engine has not read, shared equally by the
    relays; from 7/8 of it on, no further bytes of uploads are read, and uploads that have stalled for 30 s get status
    503 (default 128MiB, or 16MiB for each of --workers if that is more)"""
    connect_timeout: float = _limit(DURATION, 10.0)
    """timeout of connections to the engine; the request then gets status 502 (default %(default)s)"""
    client_idle: float | None = _limit(_DURATION_OR_NEVER, 75.0)
    """close a connection that has sent no byte of its next request for this time, with status 408 if a request has
    begun, or 'never' (default %(default)s)"""
    cut_stalled_client: float | None = _limit(_DURATION_OR_NEVER, 300.0)
    """disconnect a client that has not read its response for this time, or 'never' (default %(default)s)"""
    cut_first_token: float | None = _limit(_DURATION_OR_NEVER, None)
    """end a request that has no first token after this time (default: never)"""
    cut_idle: float | None = _limit(_DURATION_OR_NEVER, 600.0)
    """end a request if the engine has sent nothing for this time, or 'never' (default %(default)s)"""
    drain_delay: float = _limit(DURATION_OR_ZERO, 5.0)
    """time from SIGTERM, which fails /readyz, until no further connection is accepted (default %(default)s)"""
    drain: float = _limit(DURATION_OR_ZERO, 15.0)
    """time after that for open requests to finish (default %(default)s)"""
    linger: float = _limit(DURATION_OR_ZERO, 8.0, no_effect=())
    """maximum time after that until a scrape has read the final counts (default %(default)s)"""
    slos: str = _measurement(replace(PATH, parse=lambda text: str(Path(text).absolute())), str(SHIPPED))
    """SLO file (default: the shipped one)"""
    watch_files: bool = _measurement(None, False)
    """reload as on SIGHUP when the SLO file, the server certificate or a token file has changed, such as a mounted
    ConfigMap or Secret"""
    models: tuple[str, ...] = _measurement(_NAME, (), option="--model")
    """model name to use as a label value, in addition to the engine's /v1/models (repeatable)"""
    max_models: int = _measurement(count("models"), MAX_MODELS)
    """maximum number of model names used as label values: those of --model first, then as the engine lists them; the
    others are `other` (default %(default)s)"""
    inject_usage: bool = _measurement(None, True, option="--no-inject-usage", no_effect=_FOLLOWING)
    """do not add include_usage to streams; if the client omits it, their token counts are unknown"""
    check_structured_output: bool = _measurement(None, False, no_effect=_ACCESS_LOG)
    """check whether answers that have to be JSON are valid; up to 1 MiB of such an answer is kept in memory"""
    request_log: str | None = _measurement(_LOG, None, no_effect=_FOLLOWING)
    """append one JSON object per request to this file, or to standard output (-)"""
    request_log_max_size: int | None = _measurement(_SIZE_OR_NEVER, 256 * 1024 * 1024, no_effect=_FOLLOWING)
    """rotate the request log before it exceeds this size, or 'never' (default %(default)s)"""
    request_log_max_age: float | None = _measurement(_DURATION_OR_NEVER, 86400.0, no_effect=_FOLLOWING)
    """rotate the request log this time after its first line, or 'never' (default %(default)s)"""
    request_log_total: int | None = _measurement(_SIZE_OR_NEVER, 8 * 1024**3, no_effect=_FOLLOWING)
    """maximum size of the request log with its rotated files, or 'never'; the oldest files are deleted (default
    %(default)s)"""
    log_content: LogContent = _measurement(_CONTENT, LogContent.HASH, no_effect=_ACCESS_LOG)  # noqa: RUF009 - it declares a field
    """what the request log has of prompts and completions: off, hash (a salted hash of the prompt) or full (the hash
    and both texts) (default %(default)s)"""
    log_content_limit: int = _measurement(replace(SIZE, parse=_content_limit), 16 * 1024, no_effect=_FOLLOWING)
    """with --log-content full: cut each prompt and each completion at this size, up to 64KiB (default %(default)s)"""
    log_prefix_hashes: bool = _measurement(None, False, no_effect=_ACCESS_LOG)
    """add hashes of blocks of prompts to the request log, and count the tokens that a prefix cache could share"""
    prompt_hash_salt_file: str | None = _measurement(FILE, None, no_effect=_FOLLOWING)
    """file with the salt of the hashes of prompts, so that those of several sidecars are comparable (default: random at
    each start)"""
    engine_metrics: tuple[str, ...] = _measurement(_URL, ())
    """URL of the engine's metrics; one flag per engine behind a gateway (default: /metrics of the upstream)"""
    engine_names: tuple[str, ...] = _measurement(text("URL=NAME"), (), option="--engine-name")
    """value of the label `engine` for the engine at this --upstream or --engine-metrics (repeatable; default:
    HOST:PORT, and HOSTNAME:PORT for a single engine at a loopback address)"""
    engine_token_file: str | None = _measurement(FILE, None)
    """file with the bearer token for the engine's metrics and /v1/models, such as its --api-key; SIGHUP reads it again
    (default: no token)"""
    roofline_file: str | None = _measurement(FILE, None, option="--roofline")
    """output of `vllm-slo roofline --format json`, exposed for comparison"""
    metrics: str = _metrics(_ADDRESS, "127.0.0.1:9464")
    """address of /metrics, /healthz, /readyz, /engine/livez and /engine/readyz (default %(default)s)"""
    metrics_auth_file: str | None = _metrics(FILE, None)
    """credentials for these endpoints, one 'bearer TOKEN' or 'basic USER:PASSWORD' per line; /healthz, /readyz and
    those of the engine need none (default: no authentication)"""
    wedged_after: float = _metrics(DURATION, 60.0)
    """time for which the engine must be wedged or down until /engine/livez fails (default %(default)s)"""
    probe: bool = _metrics(None, False)
    """send the engine a request of one token, at most each 15 s, while nothing else proves that it works"""
    unready_when_saturated: bool = _metrics(None, False)
    """let /engine/readyz also fail while requests wait for the engine's capacity"""
    ready_when_warm: bool = _metrics(None, False)
    """let /engine/readyz also fail until `vllm-slo load warm-up --ready` has reported that the engine is warm; needs
    --admin-token-file"""
    admin_token_file: str | None = _metrics(FILE, None)
    """file with the bearer token of /admin/, which `vllm-slo flip`, `drain` and `load warm-up` use; it is valid for no
    other endpoint (default: /admin/ is disabled)"""
    state: str | None = _metrics(PATH, None)
    """file that keeps the config changes across restarts of the sidecar"""
    collector: str | None = _trace(_URL, None, option="--otlp")
    """collector that receives a span per request: http://HOST:4318 (HTTP/protobuf) or grpc://HOST:4317, with TLS
    https:// and grpcs:// (default: OTEL_EXPORTER_OTLP_ENDPOINT, else no spans)"""
    collector_headers: tuple[str, ...] = _trace(text("NAME=VALUE"), (), option="--otlp-header", secret=True)
    """header for the collector; overrides OTEL_EXPORTER_OTLP_HEADERS (repeatable)"""
    otlp_semconv: str | None = _trace(text("VERSION"), None)
    """version of the GenAI attribute names: 1.36 or 1.44 (default: OTEL_SEMCONV_STABILITY_OPT_IN, else 1.44)"""
    trace_good: str | None = _trace(text("PERCENTAGE"), None)
    """share of good requests whose traces are kept; those of bad and failed requests always are, and a sampled flag of
    the client takes precedence (default: OTEL_TRACES_SAMPLER, else 1%%)"""
    engine_spans: tuple[Receiver, ...] = _trace(Kind("URL", receiver), ())
    """URL to receive the engine's spans on, grpc://HOST:PORT or http://HOST:PORT; they add queue, prefill and decode
    times that are not in the response (repeatable; default: none)"""
    followed: str | None = _follow(FILE, None, option="--follow")
    """count the requests of this log instead of relaying (default: relay requests)"""
    followed_format: str | None = _follow(text("FORMAT"), None, option="--follow-format")
    """format of the log: vllm-slo (a request log), nginx, envoy, litellm, or a YAML file that maps the fields of
    another log of JSON lines (default: vllm-slo)"""
    follow_state: str | None = _follow(FILE, None)
    """file that keeps the position in the log and the counts; needed by --follow"""
    log_level: str = _logging(choice("LEVEL", LEVELS), "info", help=LEVEL_HELP)
    log_format: str = _logging(choice("FORMAT", FORMATS), "text", help=FORMAT_HELP)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SidecarConfig(SidecarFlags):
    """The flags, checked, with what the files and variables contain that they name."""

    trust: Trust = SYSTEM
    certificate: Certificate | None = None  # None: no port uses TLS
    roofline: Ceilings | None = None  # exposed for comparison with the measurements
    otlp: Collector | None = None  # None: the sidecar exports no spans
    follow: FollowedLog | None = None  # instead of relaying

    @property
    def reloaded_files(self) -> tuple[str, ...]:
        """The files that SIGHUP reads again."""
        tokens = (self.metrics_auth_file, self.admin_token_file, self.engine_token_file)
        return tuple(path for path in (self.slos, self.tls_cert, self.tls_key, *tokens) if path is not None)

    @property
    def log_rotation(self) -> RotationLimits:
        return RotationLimits(
            size=self.request_log_max_size, age=self.request_log_max_age, total=self.request_log_total
        )

    @property
    def buffer_size(self) -> int:
        """Bytes of request bodies that all relays hold."""
        return max(MAX_BUFFERED, LEAST_BUFFERED * self.workers) if self.max_buffered is None else self.max_buffered

    @property
    def wants_spans(self) -> bool:
        """Whether requests get a span, the parent of the engine's span; else trace headers are not changed."""
        return self.otlp is not None or bool(self.engine_spans)

    @property
    def logged_content_limit(self) -> int | None:
        """The maximum size of a logged prompt or completion; None if they are not logged."""
        return self.log_content_limit if self.log_content is LogContent.FULL else None

    def check(self, slos: SloFile) -> None:
        """Check that the sidecar measures what the SLOs judge; raises UsageError if it does not."""
        if self.follow is not None and self.follow.kind is LogKind.ACCESS_LOG:
            return  # these SLOs have no series
        names = [slo.name for slo in slos.slos if slo.measure is Measure.VALID_OUTPUT]
        if names and not self.check_structured_output:
            raise UsageError(
                f"{self.slos}: the SLO {names[0]!r} judges valid_output, which needs --check-structured-output; "
                "add this flag or remove the SLO"
            )
