"""`vllm-slo sidecar`: its flags, checked before anything starts."""

import argparse
import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from opentelemetry.util.re import parse_env_headers

from exporters import slos
from exporters.configuration import otlp_endpoints
from exporters.configuration.origin import origin
from exporters.configuration.sidecar_config import SidecarConfig
from exporters.configuration.tls import SYSTEM, Certificate, Trust
from exporters.engines.config_change_store import ConfigChangeStore
from exporters.engines.scrape_targets import targets
from exporters.errors import UsageError, parse_flag
from exporters.logging_setup import add_logging_flags, configure_logging
from exporters.quantities import parse_duration, parse_size
from exporters.requestlog.writer import RequestLog
from exporters.roofline.ceilings import read_ceilings
from exporters.sidecar.http_api.admin import read_token
from exporters.sidecar.http_api.credentials import Credentials
from exporters.sidecar.supervision.listeners import listen
from exporters.sidecar.supervision.supervisor import supervise

logger = logging.getLogger("vllm_slo.sidecar")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    relay = parser.add_argument_group("relay")
    relay.add_argument("--upstream", required=True, metavar="URL", help="the engine, such as http://127.0.0.1:8000")
    relay.add_argument(
        "--upstream-ca",
        metavar="FILE",
        help="authorities that the engine's certificate is checked against, in PEM (default: the system's)",
    )
    relay.add_argument("--upstream-insecure", action="store_true", help="do not check the engine's certificate at all")
    relay.add_argument(
        "--listen", default="127.0.0.1:8001", metavar="H:P", help="where clients connect (default %(default)s)"
    )
    relay.add_argument(
        "--tls-cert",
        metavar="FILE",
        help="serve clients with TLS: the certificate and its chain, in PEM; SIGHUP reads it again",
    )
    relay.add_argument("--tls-key", metavar="FILE", help="the key of --tls-cert, in PEM")
    relay.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="PATH",
        help="relay this path too; by default only inference and model paths pass (repeatable)",
    )
    relay.add_argument("--workers", type=int, default=1, metavar="N", help="relay processes (default %(default)s)")

    limits = parser.add_argument_group("limits", "DURATION as 250ms, 30s or 10m; SIZE as 64KiB or 256MiB")
    limits.add_argument(
        "--max-head",
        default="64KiB",
        metavar="SIZE",
        help="refuse a request whose line and headers are larger, with 431 (default %(default)s)",
    )
    limits.add_argument(
        "--max-body",
        default="256MiB",
        metavar="SIZE",
        help="refuse a larger request body, with 413, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--connect-timeout",
        default="10s",
        metavar="DURATION",
        help="give the engine up, with 502, when it has not accepted a connection by then (default %(default)s)",
    )
    limits.add_argument(
        "--client-idle",
        default="75s",
        metavar="DURATION",
        help="close a connection that has sent no byte of its next request for this, with 408 where one has "
        "begun, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--cut-stalled-client",
        default="5m",
        metavar="DURATION",
        help="disconnect a client that has read no byte of its response for this, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--cut-first-token", metavar="DURATION", help="end a request without a first token after this (default: never)"
    )
    limits.add_argument(
        "--cut-idle",
        default="10m",
        metavar="DURATION",
        help="end a request whose engine has been silent for this, or 'never' (default %(default)s)",
    )
    limits.add_argument(
        "--drain",
        default="30s",
        metavar="DURATION",
        help="how long open requests may finish on SIGTERM (default %(default)s)",
    )

    measuring = parser.add_argument_group("measuring")
    measuring.add_argument(
        "--slos", default=str(slos.SHIPPED), metavar="FILE", help="the SLO file (default: the one that is shipped)"
    )
    measuring.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="a model name to show; the engine's /v1/models adds to these (repeatable)",
    )
    measuring.add_argument(
        "--no-inject-usage",
        action="store_true",
        help="do not ask the engine for usage where the client did not; tokens of such streams are then unknown",
    )
    measuring.add_argument("--request-log", metavar="FILE", help="append one JSON line per request here")
    measuring.add_argument(
        "--engine-metrics",
        action="append",
        default=[],
        metavar="URL",
        help="the engine's metrics page; once for each engine behind a gateway (default: the upstream's /metrics)",
    )
    measuring.add_argument(
        "--roofline",
        metavar="FILE",
        help="what `vllm-slo roofline --format json` printed: show its ceilings beside what is measured",
    )

    metrics = parser.add_argument_group("metrics")
    metrics.add_argument(
        "--metrics",
        default="127.0.0.1:9464",
        metavar="H:P",
        help="where /metrics, /healthz and /readyz are (default %(default)s)",
    )
    metrics.add_argument(
        "--metrics-auth-file",
        metavar="FILE",
        help="who may see them: 'bearer TOKEN' or 'basic USER:PASSWORD' on each line; /healthz and /readyz stay open "
        "(default: everybody)",
    )
    metrics.add_argument(
        "--admin-token-file",
        metavar="FILE",
        help="one word: the bearer token that alone opens /admin/ there, for `vllm-slo flip`; no credential of "
        "--metrics-auth-file does, and it opens nothing else (default: there is no /admin/)",
    )
    metrics.add_argument(
        "--state",
        metavar="FILE",
        help="keep the engines' config changes in this file over restarts of the sidecar",
    )

    traces = parser.add_argument_group("traces")
    traces.add_argument(
        "--otlp",
        metavar="URL",
        help="send a span per request to this collector: http://HOST:4318 (HTTP/protobuf) or grpc://HOST:4317, "
        "https:// and grpcs:// with TLS (default: no spans)",
    )
    traces.add_argument(
        "--otlp-header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="send this header along, over those of OTEL_EXPORTER_OTLP_HEADERS (repeatable)",
    )
    traces.add_argument(
        "--otlp-semconv",
        default=otlp_endpoints.Semconv.V1_44.value,
        metavar="VERSION",
        help="version of the GenAI attribute names: 1.36 or 1.44 (default %(default)s)",
    )
    traces.add_argument(
        "--engine-spans",
        action="append",
        default=[],
        metavar="URL",
        help="receive the engine's own spans here, as grpc://H:P or http://H:P, for the times in the engine of "
        "requests whose answer does not tell them (repeatable; default: nowhere)",
    )
    add_logging_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check all flags and files, then supervise."""
    if arguments.workers < 1:
        raise UsageError(f"--workers: {arguments.workers} relays cannot serve; use 1 or more")
    trust = _trust(arguments)
    origin(arguments.upstream, trust)
    targets(arguments.upstream, arguments.engine_metrics)
    certificate = _certificate(arguments)
    if arguments.metrics_auth_file:
        Credentials(arguments.metrics_auth_file).read()
    if arguments.admin_token_file:
        read_token(arguments.admin_token_file, "--admin-token-file")
    state = Path(arguments.state).absolute() if arguments.state else None
    if state is not None:
        ConfigChangeStore(state).check()
    path = Path(arguments.slos)
    slos.load(path)
    log = Path(arguments.request_log).absolute() if arguments.request_log else None
    config = SidecarConfig(
        upstream=arguments.upstream,
        trust=trust,
        slos=str(path.absolute()),
        listen=arguments.listen,
        certificate=certificate,
        metrics=arguments.metrics,
        metrics_auth_file=arguments.metrics_auth_file,
        admin_token_file=arguments.admin_token_file,
        state=str(state) if state else None,
        workers=arguments.workers,
        request_log=str(log) if log else None,
        engine_metrics=tuple(arguments.engine_metrics),
        roofline=read_ceilings(Path(arguments.roofline)) if arguments.roofline else None,
        allow_paths=tuple(arguments.allow_path),
        models=tuple(arguments.model),
        inject_usage=not arguments.no_inject_usage,
        max_head=parse_flag("--max-head", arguments.max_head, parse_size),
        max_body=None if arguments.max_body == "never" else parse_flag("--max-body", arguments.max_body, parse_size),
        connect_timeout=parse_flag("--connect-timeout", arguments.connect_timeout, parse_duration),
        client_idle=_duration_or_never(arguments.client_idle, "--client-idle"),
        cut_stalled_client=_duration_or_never(arguments.cut_stalled_client, "--cut-stalled-client"),
        cut_first_token=_duration_or_never(arguments.cut_first_token, "--cut-first-token"),
        cut_idle=_duration_or_never(arguments.cut_idle, "--cut-idle"),
        drain=0.0 if arguments.drain == "0" else parse_flag("--drain", arguments.drain, parse_duration),
        otlp=_collector(arguments),
        engine_spans=_receivers(arguments.engine_spans),
        log_level=arguments.log_level,
        log_format=arguments.log_format,
    )
    if log is not None:
        RequestLog(log).close()
    configure_logging(config.log_level, config.log_format, "supervisor")
    for warning in _warnings(arguments):
        logger.warning("%s", warning)
    return asyncio.run(supervise(config))


def _trust(arguments: argparse.Namespace) -> Trust:
    trust = Trust(ca=arguments.upstream_ca, insecure=arguments.upstream_insecure)
    if trust == SYSTEM:
        return trust
    flag = "--upstream-ca" if trust.ca else "--upstream-insecure"
    if trust.ca and trust.insecure:
        raise UsageError("--upstream-insecure: nothing would be checked against --upstream-ca; leave out one of them")
    if not any(url.startswith("https:") for url in (arguments.upstream, *arguments.engine_metrics)):
        raise UsageError(f"{flag}: {arguments.upstream} is reached without TLS; write https:// or leave out {flag}")
    trust.context()
    return trust


def _certificate(arguments: argparse.Namespace) -> Certificate | None:
    cert, key = arguments.tls_cert, arguments.tls_key
    if not cert and not key:
        return None
    if not key:
        raise UsageError("--tls-cert: there is no key for it; add --tls-key FILE")
    if not cert:
        raise UsageError("--tls-key: there is no certificate for it; add --tls-cert FILE")
    certificate = Certificate(cert=cert, key=key)
    certificate.check()
    return certificate


def _warnings(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.upstream_insecure:
        yield "--upstream-insecure: THE ENGINE'S CERTIFICATE IS NOT CHECKED; whoever answers in its place reads all"
    secrets = {
        "--metrics-auth-file": arguments.metrics_auth_file,
        "--admin-token-file": arguments.admin_token_file,
        "--tls-key": arguments.tls_key,
    }
    for flag, path in secrets.items():
        if path and Path(path).stat().st_mode & stat.S_IROTH:
            yield f"{flag}: every user of this machine can read {path}; chmod o-r {path}"


def _collector(arguments: argparse.Namespace) -> otlp_endpoints.Collector | None:
    if arguments.otlp is None:
        if arguments.otlp_header:
            raise UsageError("--otlp-header: there is no collector to send it to; add --otlp URL")
        return None
    environment = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or os.environ.get(
        "OTEL_EXPORTER_OTLP_HEADERS", ""
    )
    return otlp_endpoints.Collector(
        url=otlp_endpoints.url(arguments.otlp),
        headers=otlp_endpoints.headers(arguments.otlp_header, parse_env_headers(environment, liberal=True)),
        semconv=otlp_endpoints.semconv(arguments.otlp_semconv),
    )


def _receivers(urls: list[str]) -> tuple[otlp_endpoints.Receiver, ...]:
    receivers = tuple(map(otlp_endpoints.receiver, urls))
    with contextlib.ExitStack() as sockets:  # a check only: gRPC accepts no socket of another process
        for receiver in receivers:
            (listener,) = listen(receiver.address, "--engine-spans")
            sockets.enter_context(listener)
    return receivers


def _duration_or_never(text: str | None, flag: str) -> float | None:
    return None if text is None or text == "never" else parse_flag(flag, text, parse_duration)
