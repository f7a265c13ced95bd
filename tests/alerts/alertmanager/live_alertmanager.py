"""A real Alertmanager for tests: configured by flags, with alerts through its API."""

import json
import subprocess
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from compose.cli import main
from compose.lab import services
from compose.lab.run_directory import RunDirectory
from compose.programs.tools import Tools
from tests.support.ports import free_lab_ports
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
WEBHOOKS = ("--page", "webhook=http://pager.example.org/page", "--ticket", "webhook=http://tracker.example.org/ticket")
PER_TENANT = (
    (ROOT / "compose/slos.yaml")
    .read_text(encoding="utf-8")
    .replace("allow: []", "allow: [team a, team-b]")
    .replace("per_tenant: false", "per_tenant: true")
)
"""An SLO file with pages per tenant."""
Labels = Mapping[str, str]


def render_configuration(folder: Path, *flags: str) -> Path:
    """The path of the configuration that the command writes."""
    assert main(["alerts", "alertmanager", "--out", str(folder), *flags]) == 0
    return folder / "alertmanager.yml"


@dataclass(frozen=True)
class Alertmanager:
    url: str

    def post(self, alerts: Iterable[Labels], annotations: Labels | None = None, *, firing: bool = True) -> None:
        now = datetime.now(UTC)
        # Not in the past: the first alert would be sent at once and on its own.
        times = {"startsAt": now, "endsAt": now + timedelta(minutes=5)} if firing else {"endsAt": now}
        rfc3339 = {name: at.isoformat() for name, at in times.items()}
        body = [{"labels": dict(labels), "annotations": dict(annotations or {}), **rfc3339} for labels in alerts]
        request = urllib.request.Request(
            f"{self.url}/api/v2/alerts", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            assert response.status == 200

    def states(self) -> list[tuple[Labels, str]]:
        """Each alert that has not ended, and whether it is `active` or `suppressed`."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=60) as response:
            return [(each["labels"], each["status"]["state"]) for each in json.load(response)]

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1):
                return True
        except OSError:
            return False


@contextmanager
def running(folder: Path, tools: Tools, *flags: str, **more: Any) -> Iterator[Alertmanager]:
    """With the configuration of the flags, and `more` in its `global`; a single node on loopback."""
    config = services.LabConfig(directory=RunDirectory(folder), ports=free_lab_ports())
    path = render_configuration(folder, *flags)
    document = yaml.safe_load(path.read_text())
    document["global"] = {**document.get("global", {}), **more}
    path.write_text(yaml.safe_dump(document))
    service = services.alertmanager(config, tools)
    log = folder / "alertmanager.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(service.command, cwd=service.cwd, stdout=output, stderr=subprocess.STDOUT) as process,
    ):
        alertmanager = Alertmanager(config.ports.url("alertmanager"))
        try:
            assert wait_until(lambda: alertmanager.is_ready() or process.poll() is not None), log.read_text()
            assert process.poll() is None, log.read_text()
            yield alertmanager
        finally:
            process.terminate()
