"""`vllm-slo traces`: keeps the spans of the last hour, and shows them as pages."""

import argparse
import asyncio
import contextlib
import logging
import signal
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from exporters.analysis.traces.server import TraceServer
from exporters.analysis.traces.span_store import SpanStore
from exporters.sidecar.http_api.bounded_server import BoundedServer
from exporters.sidecar.http_api.http_server import log_no_malformed_requests
from exporters.sidecar.supervision.listeners import listen
from exporters.text.command_flags import Option, add_fields
from exporters.text.errors import UsageError, parse_flag
from exporters.text.logs import add_logging_flags, configure_logging
from exporters.text.units import parse_duration, parse_size

LEAST_BYTES = 16 * 1024 * 1024

logger = logging.getLogger("vllm_slo.traces")


@dataclass(frozen=True, slots=True, kw_only=True)
class TracesFlags:
    """The flags of the server."""

    listen: Annotated[str, Option("HOST:PORT")] = "127.0.0.1:4318"
    """address of the pages and of the OTLP receiver, HTTP/protobuf on /v1/traces (default: %(default)s)"""
    trace_file: Annotated[str, Option("FILE")] = "traces.db"
    """SQLite file of the spans; created if it does not exist (default: %(default)s)"""
    keep: Annotated[str, Option("TIME")] = "1h"
    """delete spans this time after their arrival (default: %(default)s)"""
    trace_max_size: Annotated[str, Option("SIZE")] = "256MiB"
    """delete the oldest spans above this size of the file, at least 16MiB (default: %(default)s)"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_fields(parser, TracesFlags)
    add_logging_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT."""
    keep = parse_flag("--keep", arguments.keep, parse_duration)
    max_bytes = parse_flag("--trace-max-size", arguments.trace_max_size, parse_size)
    if max_bytes < LEAST_BYTES:
        raise UsageError(f"--trace-max-size: {arguments.trace_max_size} is too small; write at least 16MiB")
    configure_logging(arguments.log_level, arguments.log_format, "traces")
    (listener,) = listen(arguments.listen, "--listen")
    with listener, contextlib.closing(SpanStore(Path(arguments.trace_file), keep=keep, max_bytes=max_bytes)) as store:
        store.delete_old(time.time())
        store.shrink()
        asyncio.run(_serve(TraceServer(store, keep, time.time), listener))
    return 0


async def _serve(server: TraceServer, listener: socket.socket) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log_no_malformed_requests()
    site = BoundedServer(server.application(), auto_decompress=False, shutdown_timeout=1.0)
    cleaning = asyncio.ensure_future(server.delete_old())
    try:
        await site.start(sock=listener)
        logger.info("pages and OTLP receiver on http://%s:%s", *listener.getsockname()[:2])
        await stop.wait()
    finally:
        cleaning.cancel()
        await asyncio.gather(cleaning, return_exceptions=True)
        await site.close()
        await server.close()
