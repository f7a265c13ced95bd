"""The webhook as a process, for the container lab: `python -m compose.lab.webhook_process`."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from compose.lab.webhook import NotificationStore, format_notification, serve
from exporters.text.addresses import parse_address
from exporters.text.errors import UsageError, parse_flag
from exporters.text.logs import add_logging_flags, configure_logging

_log = logging.getLogger(__name__)


def main() -> int:
    """Serve until SIGTERM or SIGINT; writes each notification to the log and to the file."""
    parser = argparse.ArgumentParser(
        prog="python -m compose.lab.webhook_process", description="Receive webhook requests of Alertmanager."
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:9095", metavar="HOST:PORT", help="listen address (default: %(default)s)"
    )
    parser.add_argument(
        "--file", type=Path, required=True, metavar="FILE", help="file to which each notification appends a JSON line"
    )
    add_logging_flags(parser)
    arguments = parser.parse_args()
    try:
        configure_logging(arguments.log_level, arguments.log_format, "webhook")
        store = NotificationStore(arguments.file, lambda each: _log.info("%s", format_notification(each)))
        asyncio.run(_serve(store, *parse_flag("--listen", arguments.listen, parse_address)))
    except (UsageError, OSError) as error:
        print(f"webhook: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(notifications: NotificationStore, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(notifications, host, port):
        await stop.wait()


if __name__ == "__main__":
    raise SystemExit(main())
