"""Prints the events of the lab with their time and, on a terminal, a live table."""

import asyncio
import sys
import time

from rich.console import Console
from rich.live import Live
from rich.markup import escape

from compose.lab import status_table
from compose.lab.running import Lab
from compose.lab.status_table import Snapshot
from compose.lab.webhook import Notification, format_notification
from exporters.analysis.prometheus_api import PrometheusError

TABLE_INTERVAL = 2.0  # each snapshot runs six queries
LINE_INTERVAL = 10.0
_HEALTH_TIMEOUT = 1.0


def terminal() -> Console:
    """Standard output; when it is not a terminal, as wide as the tables need."""
    return Console(width=None if sys.stdout.isatty() else 120)


class LabConsole:
    """The console output of one run of the lab; times count from its construction."""

    def __init__(self, console: Console, line_interval: float = LINE_INTERVAL) -> None:
        self.console = console
        self._line_interval = line_interval
        self._start = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def print_line(self, text: str, style: str = "") -> None:
        """Print a line with the time since the start."""
        body = f"[{style}]{escape(text)}[/]" if style else escape(text)
        self.console.print(f"[dim]{self.seconds:6.1f} s[/]  {body}", highlight=False, soft_wrap=True)

    def print_notification(self, notification: Notification) -> None:
        style = {"firing": "bold red", "resolved": "bold green"}.get(notification.status, "")
        self.print_line(format_notification(notification), style if notification.receiver == "page" else "dim")

    async def follow(self, lab: Lab) -> None:
        """Print the state of the lab until cancelled."""
        if not self.console.is_terminal:
            while True:
                await asyncio.sleep(self._line_interval)
                self.print_line(status_table.line(await self._snapshot(lab)))
        with Live(console=self.console, auto_refresh=False) as live:
            while True:
                live.update(status_table.table(await self._snapshot(lab)), refresh=True)
                await asyncio.sleep(TABLE_INTERVAL)

    async def _snapshot(self, lab: Lab) -> Snapshot:
        try:
            alerts = status_table.alert_names(
                await asyncio.to_thread(lab.prometheus.alerts), lab.spec.alerting.severities
            )
        except PrometheusError as error:
            alerts = (f"Prometheus: {error.reason}",)
        ports = lab.config.ports
        addresses = {
            "OpenAI API": ports.url("relay") + "/v1",
            "Prometheus": ports.url("prometheus"),
            "Alertmanager": ports.url("alertmanager"),
            "dashboards": ports.url("grafana"),
            "files": str(lab.config.directory.root),
        }
        return Snapshot(
            self.seconds,
            {child.service.name: await child.is_healthy(lab.http, _HEALTH_TIMEOUT) for child in lab.processes.children},
            await asyncio.to_thread(status_table.read_rows, lab.prometheus, lab.spec),
            alerts,
            tuple(format_notification(each) for each in lab.notifications.received if each.receiver == "page"),
            addresses,
        )
