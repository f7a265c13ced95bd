"""Tells what happens in the lab as it happens: lines with their time, and on a terminal a table that renews itself."""

import asyncio
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from compose import status_table
from compose.lab import Lab
from compose.status_table import View
from compose.webhook import Notification
from exporters.prometheus_api import PrometheusError

_REDRAW = 2.0  # each look is six queries
_LINE = 10.0
_HEALTH = 1.0


def terminal() -> Console:
    """Standard output; in a log, as wide as the tables need."""
    return Console(width=None if sys.stdout.isatty() else 120)


class Screen:
    """Where one run of the lab is told; times count from its making."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """One line, with the time since the start."""
        body = f"[{style}]{escape(text)}[/]" if style else escape(text)
        self.console.print(f"[dim]{self.seconds:6.1f} s[/]  {body}", highlight=False, soft_wrap=True)

    def arrived(self, notification: Notification) -> None:
        """Something has reached the webhook."""
        loud = {"firing": "bold red", "resolved": "bold green"}.get(notification.status, "")
        self.say(told(notification), loud if notification.receiver == "page" else "dim")

    async def follow(self, lab: Lab) -> None:
        """Show the lab until cancelled."""
        if not self.console.is_terminal:
            while True:
                await asyncio.sleep(_LINE)
                self.say(status_table.line(await self._look(lab)))
        with Live(console=self.console, auto_refresh=False) as live:
            while True:
                live.update(status_table.draw(await self._look(lab)), refresh=True)
                await asyncio.sleep(_REDRAW)

    async def _look(self, lab: Lab) -> View:
        try:
            alerts = status_table.alert_names(await asyncio.to_thread(lab.prometheus.alerts))
        except PrometheusError as error:
            alerts = (f"Prometheus: {error.reason}",)
        ports = lab.config.ports
        places = {
            "OpenAI API": ports.url("relay") + "/v1",
            "Prometheus": ports.url("prometheus"),
            "Alertmanager": ports.url("alertmanager"),
            "dashboards": ports.url("grafana"),
            "files": str(lab.config.folder.root),
        }
        return View(
            self.seconds,
            {child.service.name: await child.well(lab.http, _HEALTH) for child in lab.family.children},
            await asyncio.to_thread(status_table.read_rows, lab.prometheus, lab.spec),
            alerts,
            tuple(told(each) for each in lab.inbox.notifications if each.receiver == "page"),
            places,
        )


def told(notification: Notification) -> str:
    """What has arrived, in one line."""
    at = time.strftime("%H:%M:%S", time.localtime(notification.arrived))
    severity = notification.labels.get("severity", "alert")
    summary = notification.annotations.get("summary", "")
    return f"{severity} {notification.status} {at}: {status_table.named(notification.labels)}" + (
        f" - {summary}" if summary and notification.status == "firing" else ""
    )
