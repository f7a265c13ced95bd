"""The flags of spans, each merged with its variables of OpenTelemetry."""

import argparse
import contextlib
import logging
from collections.abc import Mapping

from exporters.configuration import otel_environment, otlp_endpoints
from exporters.configuration.collector_tls import CollectorTls
from exporters.configuration.trace_sampling import parse_share
from exporters.errors import UsageError, parse_flag
from exporters.sidecar.supervision.listeners import listen_when_free

TRACE_GOOD = "1%"
"""The default of --trace-good."""

logger = logging.getLogger("vllm_slo.sidecar")


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    traces = parser.add_argument_group("traces")
    traces.add_argument(
        "--otlp",
        metavar="URL",
        help="collector that receives a span per request: http://HOST:4318 (HTTP/protobuf) or grpc://HOST:4317, with "
        "TLS https:// and grpcs:// (default: OTEL_EXPORTER_OTLP_ENDPOINT, else no spans)",
    )
    traces.add_argument(
        "--otlp-header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="header for the collector; overrides OTEL_EXPORTER_OTLP_HEADERS (repeatable)",
    )
    traces.add_argument(
        "--otlp-semconv",
        metavar="VERSION",
        help="version of the GenAI attribute names: 1.36 or 1.44 (default: OTEL_SEMCONV_STABILITY_OPT_IN, else 1.44)",
    )
    traces.add_argument(
        "--trace-good",
        metavar="PERCENTAGE",
        help="share of good requests whose traces are kept; those of bad and failed requests always are, and a sampled "
        "flag of the client takes precedence (default: OTEL_TRACES_SAMPLER, else 1%%)",
    )
    traces.add_argument(
        "--engine-spans",
        action="append",
        default=[],
        metavar="URL",
        help="URL to receive the engine's spans on, grpc://H:P or http://H:P; they add queue, prefill and decode times "
        "that are not in the response (repeatable; default: none)",
    )


def read(arguments: argparse.Namespace, environment: Mapping[str, str]) -> otlp_endpoints.Collector | None:
    """The collector, or None if no spans are exported.

    Raises:
        UsageError: a flag or a variable is invalid.
    """
    if otel_environment.disabled(environment):
        return None
    if arguments.otlp is not None:
        url = otlp_endpoints.url(arguments.otlp)
    elif endpoint := otel_environment.endpoint(environment):
        url = endpoint.url
    elif arguments.otlp_header:
        raise UsageError("--otlp-header: needs a collector; add --otlp URL")
    else:
        return None
    share = otel_environment.good_share(environment) if arguments.trace_good is None else None
    if share is None:
        share = parse_flag(
            "--trace-good", TRACE_GOOD if arguments.trace_good is None else arguments.trace_good, parse_share
        )
    otel_environment.check_resource_attributes(environment)
    return otlp_endpoints.Collector(
        url=url,
        headers=otlp_endpoints.headers(arguments.otlp_header, otel_environment.headers(environment)),
        semconv=otel_environment.semconv(environment)
        if arguments.otlp_semconv is None
        else otlp_endpoints.semconv(arguments.otlp_semconv),
        good_share=share,
        timeout=otel_environment.timeout(environment),
        gzip=otel_environment.gzip(environment),
        tls=otel_environment.tls(environment) if url.startswith(("https:", "grpcs:")) else CollectorTls(),
    )


def log_environment(
    collector: otlp_endpoints.Collector | None, arguments: argparse.Namespace, environment: Mapping[str, str]
) -> None:
    """Log what variables of OpenTelemetry have changed without a flag."""
    for warning in otel_environment.warnings(environment):
        logger.warning("%s", warning)
    if otel_environment.disabled(environment):
        logger.warning("%s=true: no spans are exported", otel_environment.DISABLED)
        return
    if collector is None:
        return
    if arguments.otlp is None and (endpoint := otel_environment.endpoint(environment)):
        logger.info("%s: spans are exported to %s", endpoint.variable, collector.url)
    if arguments.otlp_semconv is None and otel_environment.semconv(environment) is otlp_endpoints.Semconv.V1_36:
        logger.info(
            "%s has no %s: spans have the GenAI attribute names of 1.36",
            otel_environment.SEMCONV,
            otel_environment.LATEST_GENAI,
        )


def receivers(urls: list[str]) -> tuple[otlp_endpoints.Receiver, ...]:
    """The addresses for the engine's spans, which are free."""
    parsed = tuple(map(otlp_endpoints.receiver, urls))
    with contextlib.ExitStack() as sockets:  # only a check: gRPC does not accept sockets
        for receiver in parsed:
            (listener,) = listen_when_free(receiver.address, "--engine-spans")
            sockets.enter_context(listener)
    return parsed
