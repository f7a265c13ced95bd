"""Keeps a run's records in memory and in its folder, and turns them into the summary when it ends."""

import platform
import time
from collections.abc import Sequence
from importlib import metadata
from typing import IO

from msgspec import structs

from exporters.errors import UsageError, system_reason
from loadgen.request_record import REQUESTS, RUN, SUMMARY, Objective, Record, Run, line, write_json
from loadgen.run_settings import Settings
from loadgen.summary import Summary, summary


class Journal:
    """The folder of one run."""

    def __init__(self, settings: Settings, model: str) -> None:
        """Make the folder.

        Raises:
            UsageError: it cannot be written, or holds a run already.
        """
        self.records: list[Record] = []
        self._folder = settings.out
        self._cpu = time.process_time()
        self._run = Run(
            scenario=settings.scenario.name,
            seed=settings.seed,
            target=str(settings.target),
            model=model,
            rate_scale=settings.rate_scale,
            timeout=settings.scenario.timeout,
            phases=list(settings.phases),
            classes=[shape.name for shape in settings.scenario.shapes],
            slos=[Objective(slo.name, slo.measure.value, slo.threshold, slo.objective) for slo in settings.slos.slos],
            versions=_versions(),
        )
        if (self._folder / REQUESTS).exists():
            raise UsageError(f"--out {self._folder}: holds a run already; choose another folder or remove it")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = (self._folder / REQUESTS).open("wb")
        except OSError as error:
            reason = system_reason(error)
            raise UsageError(f"--out {self._folder}: cannot be written: {reason}") from error

    def keep(self, record: Record) -> None:
        self.records.append(record)
        self._file.write(line(record))

    def flush(self) -> None:
        self._file.flush()

    def begin(self, start: float) -> None:
        """Write what is known before the first request, so that a killed run can still be read."""
        self._run = structs.replace(self._run, start=start)
        write_json(self._folder / RUN, self._run)

    def end(self, how: str, seconds: float) -> tuple[Run, Summary]:
        self._file.close()
        self._run = structs.replace(
            self._run,
            ended=how,
            seconds=round(seconds, 3),
            cpu_seconds=round(time.process_time() - self._cpu, 3),
            chunks=sum(record.chunks for record in self.records),
        )
        result = summarise(self._run, self.records)
        write_json(self._folder / RUN, self._run)
        write_json(self._folder / SUMMARY, result)
        return self._run, result


def summarise(run: Run, records: Sequence[Record]) -> Summary:
    return summary(records, run.classes, [phase.name for phase in run.phases])


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("vllm-slo", "locust", "gevent"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # run from a checkout that is not installed
            found[package] = "unknown"
    return found
