"""Stores the records of a run in memory and in its folder, and writes the summary at the end."""

import platform
import time
from collections.abc import Iterator, Sequence
from importlib import metadata

from msgspec import structs

from exporters.text.addresses import is_loopback
from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import writing
from loadgen.client.chunk_totals import ChunkTotals
from loadgen.client.completion import CompletionResponse
from loadgen.report.bench_result import bench_result
from loadgen.report.page import PAGE, render_page
from loadgen.results.record import (
    BENCH,
    REQUESTS,
    RUN,
    SUMMARY,
    Objective,
    Record,
    Run,
    WorkerUsage,
    json_text,
    objectives,
    replace_file,
    rule_of_run,
)
from loadgen.results.record_file import RecordFile
from loadgen.results.saturation import Saturation
from loadgen.results.summary import Summary, summarise
from loadgen.run.settings import RunSettings
from loadgen.run.stalls import StallWatch


class ResultStore:
    """The output folder of one run."""

    def __init__(self, settings: RunSettings, model: str, schedule: str) -> None:
        """Create the folder.

        Raises:
            UsageError: it cannot be written, or already contains a run.
        """
        self.records: list[Record] = []
        self._failures: list[str] = []
        self.chunks = ChunkTotals()
        self._save_detailed = settings.save_detailed
        self._folder = settings.out
        self._cpu = time.process_time()
        self._run = Run(
            scenario=settings.plan.name,
            experiment=settings.experiment,
            configuration=settings.configuration,
            seed=settings.seed,
            schedule=schedule,
            shares=dict(settings.plan.shares),
            target=str(settings.target),
            model=model,
            rate_scale=settings.rate_scale,
            timeout=settings.plan.timeout,
            timeouts=dict(settings.plan.timeouts),
            phases=list(settings.phases),
            classes=list(settings.plan.shares),
            class_titles=settings.slos.class_titles,
            slos=objectives(settings.slos),
            rule=rule_of_run(settings.slos),
            max_send_lag=settings.max_send_lag,
            max_concurrency=settings.max_concurrency,
            same_machine=is_loopback(settings.target.host),
            versions=_versions(),
            hardware=settings.hardware,
        )
        if (self._folder / REQUESTS).exists():
            raise UsageError(f"--out {self._folder}: already contains a run; choose another folder or delete it")
        with writing(f"--out {self._folder}"):
            self._file = self._new_file()

    @property
    def slos(self) -> Sequence[Objective]:
        return self._run.slos

    @property
    def failures(self) -> list[str]:
        """A message for each file that could not be written; the records are complete in memory."""
        return self._failures if self._file.failure is None else [self._file.failure, *self._failures]

    def add(self, record: Record, response: CompletionResponse) -> None:
        """Store a request, and count its chunks."""
        self.chunks.add_response(record, response)
        self.add_record(record)

    def add_record(self, record: Record) -> None:
        """Store a request whose chunks are counted elsewhere."""
        self.records.append(record)
        self._file.add(record)

    def flush(self) -> None:
        self._file.flush()

    def start(self, start: float) -> None:
        """Write `run.json` before the first request, so that the output of a killed run is readable."""
        self._cpu = time.process_time()  # without a warm-up
        self._run = structs.replace(self._run, start=start)
        self._write(RUN, json_text(self._run))

    def end(
        self,
        ending: str,
        seconds: float,
        stalls: StallWatch,
        saturated: Saturation | None = None,
        workers: Sequence[WorkerUsage] = (),
    ) -> tuple[Run, Summary]:
        self._file.close()
        if not (self._folder / REQUESTS).exists():  # deleted during the run
            self._restore()
        self._run = structs.replace(
            self._run,
            ended=ending,
            seconds=round(seconds, 3),
            cpu_seconds=round(time.process_time() - self._cpu + sum(worker.cpu_seconds for worker in workers), 3),
            chunks=sum(record.chunks for record in self.records),
            stalls=stalls.count + sum(worker.stalls for worker in workers),
            stalled=max(round(stalls.seconds, 3), *(worker.stalled for worker in workers), 0.0),
            worst_stall=max(round(stalls.worst, 3), *(worker.worst_stall for worker in workers), 0.0),
            saturated=saturated,
            workers=list(workers),
        )
        result = summarise(self._run, self.records)
        for name, content in result_files(self._run, result, self.records, self.chunks, detailed=self._save_detailed):
            self._write(name, content)
        return self._run, result

    def _new_file(self) -> RecordFile:
        self._folder.mkdir(parents=True, exist_ok=True)
        return RecordFile(self._folder / REQUESTS)

    def _restore(self) -> None:
        try:
            self._file = self._new_file()
        except OSError as error:
            self._failures.append(f"{self._folder}: cannot be written: {system_reason(error)}")
            return
        for record in self.records:
            self._file.add(record)
        self._file.close()

    def _write(self, name: str, content: bytes) -> None:
        try:
            replace_file(self._folder / name, content)
        except OSError as error:
            self._failures.append(f"{self._folder / name}: cannot be written: {system_reason(error)}")


def result_files(
    run: Run, result: Summary, records: Sequence[Record], chunks: ChunkTotals, *, detailed: bool = False
) -> Iterator[tuple[str, bytes]]:
    """The files of a run that has ended, without its records: names and contents."""
    yield RUN, json_text(run)
    yield SUMMARY, json_text(result)
    yield BENCH, json_text(bench_result(run, result, records, chunks, detailed=detailed))
    yield PAGE, render_page(run, result, records).encode()


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in ("vllm-slo", "locust", "gevent"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:  # a checkout without an installation
            versions[package] = "unknown"
    return versions
