"""Stores the records of a run in memory and in its folder, and writes the summary at the end."""

import platform
import time
from collections.abc import Sequence
from importlib import metadata
from typing import IO

from msgspec import structs

from exporters.addresses import is_loopback
from exporters.errors import UsageError, system_reason
from loadgen.request_record import REQUESTS, RUN, SUMMARY, Objective, Record, Run, encode_line, write_json
from loadgen.run_settings import RunSettings
from loadgen.saturation import Saturation
from loadgen.stall_watch import StallWatch
from loadgen.summary import Summary, summarise


class ResultStore:
    """The output folder of one run."""

    def __init__(self, settings: RunSettings, model: str, schedule: str) -> None:
        """Create the folder.

        Raises:
            UsageError: it cannot be written, or already contains a run.
        """
        self.records: list[Record] = []
        self._folder = settings.out
        self._cpu = time.process_time()
        self._run = Run(
            scenario=settings.plan.name,
            seed=settings.seed,
            schedule=schedule,
            shares=dict(settings.plan.shares),
            target=str(settings.target),
            model=model,
            rate_scale=settings.rate_scale,
            timeout=settings.plan.timeout,
            phases=list(settings.phases),
            classes=list(settings.plan.shares),
            slos=[Objective(slo.name, slo.measure.value, slo.threshold, slo.objective) for slo in settings.slos.slos],
            max_send_lag=settings.max_send_lag,
            same_machine=is_loopback(settings.target.host),
            versions=_versions(),
        )
        if (self._folder / REQUESTS).exists():
            raise UsageError(f"--out {self._folder}: already contains a run; choose another folder or delete it")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = (self._folder / REQUESTS).open("wb")
        except OSError as error:
            raise UsageError(f"--out {self._folder}: cannot be written: {system_reason(error)}") from error

    @property
    def slos(self) -> Sequence[Objective]:
        return self._run.slos

    def add(self, record: Record) -> None:
        self.records.append(record)
        self._file.write(encode_line(record))

    def flush(self) -> None:
        self._file.flush()

    def start(self, start: float) -> None:
        """Write `run.json` before the first request, so that the output of a killed run is readable."""
        self._run = structs.replace(self._run, start=start)
        write_json(self._folder / RUN, self._run)

    def end(
        self, ending: str, seconds: float, stalls: StallWatch, saturated: Saturation | None = None
    ) -> tuple[Run, Summary]:
        self._file.close()
        self._run = structs.replace(
            self._run,
            ended=ending,
            seconds=round(seconds, 3),
            cpu_seconds=round(time.process_time() - self._cpu, 3),
            chunks=sum(record.chunks for record in self.records),
            stalls=stalls.count,
            stalled=round(stalls.seconds, 3),
            worst_stall=round(stalls.worst, 3),
            saturated=saturated,
        )
        result = summarise(self._run, self.records)
        write_json(self._folder / RUN, self._run)
        write_json(self._folder / SUMMARY, result)
        return self._run, result


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("vllm-slo", "locust", "gevent"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # a checkout without an installation
            versions[package] = "unknown"
    return versions
