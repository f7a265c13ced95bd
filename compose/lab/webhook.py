"""Receives and stores Alertmanager's notifications; `vllm-slo webhook` prints them."""

import argparse
import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from exporters.text.addresses import parse_address
from exporters.text.connect_errors import connect_reason
from exporters.text.errors import UsageError, parse_flag, system_reason
from exporters.text.logs import add_logging_flags, configure_logging

_log = logging.getLogger(__name__)


class _Alert(msgspec.Struct):
    status: str
    labels: dict[str, str]
    startsAt: str  # noqa: N815 - Alertmanager's spelling
    annotations: dict[str, str] = {}
    fingerprint: str = ""


class _Payload(msgspec.Struct):
    version: str
    receiver: str
    alerts: list[_Alert]


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """One alert of one webhook request; `arrived_at` in unix seconds, `status` is `firing` or `resolved`."""

    arrived_at: float = msgspec.field(name="arrived")
    receiver: str
    status: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    started: str
    fingerprint: str

    @property
    def name(self) -> str:
        return self.labels.get("alertname", "(no name)")

    def has(self, **labels: str) -> bool:
        return all(self.labels.get(key) == value for key, value in labels.items())


class PayloadError(ValueError):
    """The body is not a webhook request of Alertmanager."""


def parse_notifications(body: bytes, arrived_at: float) -> list[Notification]:
    """The alerts of one webhook request.

    Raises:
        PayloadError: the body is invalid.
    """
    try:
        payload = msgspec.json.decode(body, type=_Payload)
    except msgspec.DecodeError as error:
        raise PayloadError(f"not an Alertmanager notification: {error}") from error
    if payload.version != "4":
        raise PayloadError(f"not an Alertmanager notification: version {payload.version!r}, expected '4'")
    return [
        Notification(
            arrived_at=arrived_at,
            receiver=payload.receiver,
            status=alert.status,
            labels=alert.labels,
            annotations=alert.annotations,
            started=alert.startsAt,
            fingerprint=alert.fingerprint,
        )
        for alert in payload.alerts
    ]


class NotificationStore:
    """Stores each notification once, also in a file if there is one; Alertmanager repeats the unchanged alerts."""

    def __init__(self, file: Path | None, on_notification: Callable[[Notification], None]) -> None:
        self.received: list[Notification] = []
        self._keys: set[tuple[str, ...]] = set()
        self._file, self._on_notification = file, on_notification
        if file is not None:
            file.touch()

    def add(self, body: bytes, arrived_at: float) -> None:
        """Store the alerts of one webhook request.

        Raises:
            PayloadError: the body is invalid.
        """
        for notification in parse_notifications(body, arrived_at):
            labels = (f"{key}={value}" for key, value in sorted(notification.labels.items()))
            key = (notification.status, notification.started, *labels)
            if key in self._keys:
                continue
            self._keys.add(key)
            self.received.append(notification)
            if self._file is not None:
                with self._file.open("ab") as file:
                    file.write(msgspec.json.encode(notification) + b"\n")
            self._on_notification(notification)


def alert_title(labels: Mapping[str, str]) -> str:
    """The name of an alert with its SLO and class."""
    subject = "/".join(labels[key] for key in ("slo", "class") if key in labels)
    return f"{labels.get('alertname', '(no name)')}{' ' + subject if subject else ''}"


def format_notification(notification: Notification) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(notification.arrived_at))
    severity = notification.labels.get("severity", "alert")
    summary = notification.annotations.get("summary", "")
    return f"{severity} {notification.status} {at}: {alert_title(notification.labels)}" + (
        f" - {summary}" if summary and notification.status == "firing" else ""
    )


@asynccontextmanager
async def serve(notifications: NotificationStore, host: str, port: int) -> AsyncIterator[None]:
    """Serve the webhook: POST to any path, GET /healthz."""

    async def receive(request: web.Request) -> web.Response:
        try:
            notifications.add(await request.read(), time.time())
        except PayloadError as error:
            return web.Response(status=400, text=f"{error}\n")
        return web.Response(text="ok\n")

    async def healthy(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/healthz", healthy)
    app.router.add_post("/{receiver:.*}", receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        yield
    finally:
        await runner.cleanup()


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
        raise UsageError(f"--listen: cannot listen on {arguments.listen}: {connect_reason(error)}") from error
    return 0


async def _serve(notifications: NotificationStore, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with serve(notifications, host, port):
        _log.info("waiting for notifications at http://%s:%d", host, port)
        await stop.wait()
