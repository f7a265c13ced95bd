"""The flags of `vllm-slo sidecar` as one value."""

from enum import StrEnum

import msgspec

from exporters.ceilings import Ceilings
from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.configuration.tls import SYSTEM, Certificate, Trust
from exporters.errors import UsageError
from exporters.requestlog.rotation import UNLIMITED, RotationLimits
from exporters.slos import Measure, SloFile

MAX_MODELS = 50
"""Default number of models with a label value of their own: an engine may list thousands of LoRA adapters."""


class LogContent(StrEnum):
    """What the request log has of prompts and completions."""

    OFF = "off"
    HASH = "hash"
    """A salted hash of the prompt."""
    FULL = "full"
    """The hash and both texts."""


class LogFormat(StrEnum):
    """The format of a followed log."""

    VLLM_SLO = "vllm-slo"
    """The sidecar's request log."""
    NGINX = "nginx"
    """An access log of nginx with the documented `log_format`."""


class FollowedLog(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of `--follow`."""

    path: str
    format: LogFormat
    state: str


class SidecarConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Flags of `vllm-slo sidecar`; times in seconds."""

    upstream: str
    trust: Trust = SYSTEM
    slos: str
    listen: str
    certificate: Certificate | None = None  # None: clients connect without TLS
    metrics: str
    metrics_auth_file: str | None = None  # a path, because only the exporter reads the secrets
    admin_token_file: str | None = None  # as above; None: no endpoints under /admin/
    state: str | None = None
    workers: int = 1
    request_log: str | None = None
    log_rotation: RotationLimits = UNLIMITED
    engine_metrics: tuple[str, ...] = ()  # empty: /metrics of the upstream
    engine_names: tuple[str, ...] = ()  # URL=NAME
    engine_token_file: str | None = None  # a path, as above; None: the engine is asked without a token
    roofline: Ceilings | None = None  # exposed for comparison with the measurements
    allow_paths: tuple[str, ...] = ()
    expose_engine_metrics: bool = False
    models: tuple[str, ...] = ()
    max_models: int = MAX_MODELS
    inject_usage: bool = True
    check_structured_output: bool = False
    log_content: LogContent = LogContent.HASH
    log_content_limit: int = 16 * 1024  # bytes of a prompt, and of a completion, with LogContent.FULL
    log_prefix_hashes: bool = False
    max_head: int = 64 * 1024  # bytes of a request line and its headers
    max_body: int | None = 256 * 1024 * 1024  # bytes
    max_buffered: int = 128 * 1024 * 1024  # bytes of request bodies that all relays hold
    connect_timeout: float = 10.0
    client_idle: float | None = 75.0  # without a byte of the next request
    cut_stalled_client: float | None = 300.0  # without reading a byte of the response
    cut_first_token: float | None = None
    cut_idle: float | None = 600.0
    drain_delay: float = 5.0  # from the failure of /readyz until no connection is accepted
    drain: float = 15.0  # after that, for open requests
    linger: float = 8.0  # after that, for a scrape of the final counts
    otlp: Collector | None = None  # None: the sidecar exports no spans
    engine_spans: tuple[Receiver, ...] = ()
    follow: FollowedLog | None = None  # instead of relaying
    log_level: str = "info"
    log_format: str = "text"

    @property
    def wants_spans(self) -> bool:
        """Whether requests get a span, the parent of the engine's span; else trace headers are not changed."""
        return self.otlp is not None or bool(self.engine_spans)

    @property
    def logged_content_limit(self) -> int | None:
        """The maximum size of a logged prompt or completion; None if they are not logged."""
        return self.log_content_limit if self.log_content is LogContent.FULL else None

    def check(self, slos: SloFile) -> None:
        """Check that the sidecar measures what the SLOs judge.

        Raises:
            UsageError: it does not.
        """
        if self.follow is not None and self.follow.format is LogFormat.NGINX:
            return  # these SLOs have no series
        names = [slo.name for slo in slos.slos if slo.measure is Measure.VALID_OUTPUT]
        if names and not self.check_structured_output:
            raise UsageError(
                f"{self.slos}: the SLO {names[0]!r} judges valid_output, which needs --check-structured-output; "
                "add this flag or remove the SLO"
            )
