"""Merges the flags of spans with the variables of OpenTelemetry."""

import contextlib
import logging
from collections.abc import Iterable, Mapping

from exporters.configuration import otel_environment, otlp_endpoints
from exporters.configuration.collector_tls import CollectorTls
from exporters.configuration.sidecar import SidecarFlags
from exporters.configuration.trace_sampling import parse_share
from exporters.sidecar.supervision.listeners import listen_when_free
from exporters.text.errors import UsageError, parse_flag

TRACE_GOOD = "1%"
"""The default of --trace-good."""

logger = logging.getLogger("vllm_slo.sidecar")


def read(given: SidecarFlags, environment: Mapping[str, str]) -> otlp_endpoints.Collector | None:
    """The collector, or None if no spans are exported; raises UsageError if a flag or a variable is invalid."""
    if otel_environment.disabled(environment):
        return None
    if given.collector is not None:
        url = otlp_endpoints.url(given.collector)
    elif endpoint := otel_environment.endpoint(environment):
        url = endpoint.url
    elif given.collector_headers:
        raise UsageError("--otlp-header: needs a collector; add --otlp URL")
    else:
        return None
    share = otel_environment.good_share(environment) if given.trace_good is None else None
    if share is None:
        share = parse_flag("--trace-good", TRACE_GOOD if given.trace_good is None else given.trace_good, parse_share)
    otel_environment.check_resource_attributes(environment)
    return otlp_endpoints.Collector(
        url=url,
        headers=otlp_endpoints.headers(given.collector_headers, otel_environment.headers(environment)),
        semconv=otel_environment.semconv(environment)
        if given.otlp_semconv is None
        else otlp_endpoints.semconv(given.otlp_semconv),
        good_share=share,
        timeout=otel_environment.timeout(environment),
        gzip=otel_environment.gzip(environment),
        tls=otel_environment.tls(environment) if url.startswith(("https:", "grpcs:")) else CollectorTls(),
    )


def log_environment(
    collector: otlp_endpoints.Collector | None, given: SidecarFlags, environment: Mapping[str, str]
) -> None:
    """Log what variables of OpenTelemetry have changed without a flag."""
    for warning in otel_environment.warnings(environment):
        logger.warning("%s", warning)
    if otel_environment.disabled(environment):
        logger.warning("%s=true: no spans are exported", otel_environment.DISABLED)
        return
    if collector is None:
        return
    if given.collector is None and (endpoint := otel_environment.endpoint(environment)):
        logger.info("%s: spans are exported to %s", endpoint.variable, collector.url)
    if given.otlp_semconv is None and otel_environment.semconv(environment) is otlp_endpoints.Semconv.V1_36:
        logger.info(
            "%s has no %s: spans have the GenAI attribute names of 1.36",
            otel_environment.SEMCONV,
            otel_environment.LATEST_GENAI,
        )


def check_receivers(receivers: Iterable[otlp_endpoints.Receiver]) -> None:
    """Check that the addresses for the engine's spans are free; raises UsageError if one is in use."""
    with contextlib.ExitStack() as sockets:  # only a check: gRPC does not accept sockets
        for receiver in receivers:
            (listener,) = listen_when_free(receiver.address, "--engine-spans")
            sockets.enter_context(listener)
