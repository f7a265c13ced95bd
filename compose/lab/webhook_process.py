"""`vllm-slo webhook`: receives Alertmanager's notifications and prints them."""

import argparse
import asyncio
import logging
import os
import signal
from pathlib import Path

from compose.lab.webhook import NotificationStore, format_notification, serve
from exporters.text.addresses import parse_address
from exporters.text.errors import UsageError, parse_flag, system_reason
from exporters.text.logs import add_logging_flags, configure_logging

_log = logging.getLogger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:9095", metavar="HOST:PORT", help="listen address (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="file to which each notification appends a JSON line (default: none)"
    )
    add_logging_flags(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT; writes each notification to the log, and to the file if there is one."""
    configure_logging(arguments.log_level, arguments.log_format, "webhook")
    host, port = parse_flag("--listen", arguments.listen, parse_address)
    try:
        store = NotificationStore(arguments.out, lambda each: _log.info("%s", format_notification(each)))
    except OSError as error:
        raise UsageError(f"--out {arguments.out}: {system_reason(error)}") from error
    try:
        asyncio.run(_serve(store, host, port))
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else system_reason(error)
        raise UsageError(f"--listen: cannot listen on {arguments.listen}: {reason}") from error
    return 0


async def _serve(notifications: NotificationStore, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(notifications, host, port):
        _log.info("waiting for notifications at http://%s:%d", host, port)
        await stop.wait()
