"""Runs the webhook as a process of its own, for the container lab: `python -m compose.webhook_process`."""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from compose.console import told
from compose.webhook import Inbox, Notification, serving
from exporters.addresses import parse_address
from exporters.errors import UsageError, parse_flag


def main() -> int:
    """Serve until SIGTERM or SIGINT; each notification is one line of output and one of the file."""
    parser = argparse.ArgumentParser(
        prog="python -m compose.webhook_process", description="Receive Alertmanager's webhooks."
    )
    parser.add_argument("--listen", default="127.0.0.1:9095", metavar="H:P", help="where to serve (%(default)s)")
    parser.add_argument("--file", type=Path, required=True, metavar="FILE", help="append one JSON line a notification")
    arguments = parser.parse_args()
    try:
        asyncio.run(_serve(Inbox(arguments.file, _tell), *parse_flag("--listen", arguments.listen, parse_address)))
    except (UsageError, OSError) as error:
        print(f"receiver: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(inbox: Inbox, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serving(inbox, host, port):
        await stop.wait()


def _tell(notification: Notification) -> None:
    print(told(notification), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
