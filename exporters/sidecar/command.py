"""`vllm-slo sidecar`: its flags, checked before anything starts."""

import argparse
import asyncio
import os
from pathlib import Path

from opentelemetry.util.re import parse_env_headers

from exporters import slos
from exporters.relay.upstream import origin
from exporters.sidecar import otlp
from exporters.sidecar.config import SidecarConfig
from exporters.sidecar.request_log import RequestLog
from exporters.sidecar.supervisor import supervise
from exporters.usage import UsageError
from exporters.yamlfile import duration


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--upstream", required=True, metavar="URL", help="the engine, such as http://127.0.0.1:8000")
    parser.add_argument(
        "--listen", default="127.0.0.1:8001", metavar="H:P", help="where clients connect (default %(default)s)"
    )
    parser.add_argument(
        "--metrics",
        default="127.0.0.1:9464",
        metavar="H:P",
        help="where /metrics, /healthz and /readyz are (default %(default)s)",
    )
    parser.add_argument(
        "--slos", default=str(slos.SHIPPED), metavar="FILE", help="the SLO file (default: the one that is shipped)"
    )
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="relay processes (default %(default)s)")
    parser.add_argument("--request-log", metavar="FILE", help="append one JSON line per request here")
    parser.add_argument(
        "--engine-metrics", metavar="URL", help="the engine's metrics page (default: the upstream's /metrics)"
    )
    parser.add_argument(
        "--allow-path",
        action="append",
        default=[],
        metavar="PATH",
        help="relay this path too; by default only inference and model paths pass (repeatable)",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="a model name to show; the engine's /v1/models adds to these (repeatable)",
    )
    parser.add_argument(
        "--no-inject-usage",
        action="store_true",
        help="do not ask the engine for usage where the client did not; tokens of such streams are then unknown",
    )
    parser.add_argument(
        "--cut-first-token", metavar="DURATION", help="end a request without a first token after this (default: never)"
    )
    parser.add_argument(
        "--cut-idle",
        default="10m",
        metavar="DURATION",
        help="end a request whose engine has been silent for this, or 'never' (default %(default)s)",
    )
    parser.add_argument(
        "--drain",
        default="30s",
        metavar="DURATION",
        help="how long open requests may finish on SIGTERM (default %(default)s)",
    )
    parser.add_argument(
        "--otlp",
        metavar="URL",
        help="send a span per request to this collector: http://HOST:4318 (HTTP/protobuf) or grpc://HOST:4317, "
        "https:// and grpcs:// with TLS (default: no spans)",
    )
    parser.add_argument(
        "--otlp-header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="send this header along, over those of OTEL_EXPORTER_OTLP_HEADERS (repeatable)",
    )
    parser.add_argument(
        "--otlp-semconv",
        default=otlp.Semconv.V1_44.value,
        metavar="VERSION",
        help="version of the GenAI attribute names: 1.36 or 1.44 (default %(default)s)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Check everything that can be wrong, then supervise."""
    if arguments.workers < 1:
        raise UsageError(f"--workers: {arguments.workers} relays cannot serve; use 1 or more")
    origin(arguments.upstream)
    path = Path(arguments.slos)
    slos.load(path)
    log = Path(arguments.request_log).absolute() if arguments.request_log else None
    config = SidecarConfig(
        upstream=arguments.upstream,
        slos=str(path.absolute()),
        listen=arguments.listen,
        metrics=arguments.metrics,
        workers=arguments.workers,
        request_log=str(log) if log else None,
        engine_metrics=arguments.engine_metrics,
        allow_paths=tuple(arguments.allow_path),
        models=tuple(arguments.model),
        inject_usage=not arguments.no_inject_usage,
        cut_first_token=_duration_or_never(arguments.cut_first_token, "--cut-first-token"),
        cut_idle=_duration_or_never(arguments.cut_idle, "--cut-idle"),
        drain=0.0 if arguments.drain == "0" else _duration(arguments.drain, "--drain"),
        otlp=_collector(arguments),
    )
    if log is not None:
        RequestLog(log).close()
    return asyncio.run(supervise(config))


def _collector(arguments: argparse.Namespace) -> otlp.Collector | None:
    if arguments.otlp is None:
        if arguments.otlp_header:
            raise UsageError("--otlp-header: there is no collector to send it to; add --otlp URL")
        return None
    standard = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    return otlp.Collector(
        url=otlp.url(arguments.otlp),
        headers=otlp.headers(arguments.otlp_header, parse_env_headers(standard, liberal=True)),
        semconv=otlp.semconv(arguments.otlp_semconv),
    )


def _duration_or_never(text: str | None, flag: str) -> float | None:
    return None if text is None or text == "never" else _duration(text, flag)


def _duration(text: str, flag: str) -> float:
    seconds = duration(text)
    if seconds is None:
        raise UsageError(f"{flag}: {text!r} is no duration; write a number with a unit, such as 250ms, 30s or 10m")
    return seconds
