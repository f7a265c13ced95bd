"""Receives what Alertmanager sends, so that a page can be seen arriving."""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web


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
    """One alert of one delivery: when it arrived (unix seconds), what it says, `firing` or `resolved`."""

    arrived: float
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
    """The body is not what Alertmanager sends."""


def parse(body: bytes, arrived: float) -> list[Notification]:
    """The alerts of one delivery.

    Raises:
        PayloadError: says what is wrong with the body.
    """
    try:
        payload = msgspec.json.decode(body, type=_Payload)
    except msgspec.DecodeError as error:
        raise PayloadError(f"no notification of Alertmanager: {error}") from error
    if payload.version != "4":
        raise PayloadError(f"no notification of Alertmanager: version {payload.version!r} is not known; expected '4'")
    return [
        Notification(
            arrived=arrived,
            receiver=payload.receiver,
            status=alert.status,
            labels=alert.labels,
            annotations=alert.annotations,
            started=alert.startsAt,
            fingerprint=alert.fingerprint,
        )
        for alert in payload.alerts
    ]


class Inbox:
    """Everything that has arrived, once: a delivery repeats the alerts of its group that have not changed."""

    def __init__(self, file: Path, on_arrival: Callable[[Notification], None]) -> None:
        self.notifications: list[Notification] = []
        self._seen: set[tuple[str, ...]] = set()
        self._file, self._on_arrival = file, on_arrival
        file.touch()

    def take(self, body: bytes, arrived: float) -> None:
        for notification in parse(body, arrived):
            labels = (f"{key}={value}" for key, value in sorted(notification.labels.items()))
            key = (notification.status, notification.started, *labels)
            if key in self._seen:
                continue
            self._seen.add(key)
            self.notifications.append(notification)
            with self._file.open("ab") as file:
                file.write(msgspec.json.encode(notification) + b"\n")
            self._on_arrival(notification)


@asynccontextmanager
async def serving(inbox: Inbox, host: str, port: int) -> AsyncIterator[None]:
    """Serves the inbox: POST to any path, GET /healthz."""

    async def receive(request: web.Request) -> web.Response:
        try:
            inbox.take(await request.read(), time.time())
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
