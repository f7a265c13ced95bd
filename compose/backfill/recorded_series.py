"""Evaluates the recording rules over blocks, in a temporary Prometheus.

`promtool tsdb create-blocks-from rules` makes one block for each rule and two hours, about 8,000 blocks for a week, and
evaluates each rule only against the blocks of the server. The results of all rules of a pass are therefore queried here
and become blocks together, which the next pass reads.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.promql.expression import quote
from compose.backfill.block_files import END, BlockMaker
from compose.backfill.replay import timestamp
from compose.backfill.rule_order import TimedRule
from compose.lab.ports import HOST, unused
from compose.processes.child_processes import PARENT_DEATH_SIGNAL, tail
from exporters.analysis.prometheus_api import Prometheus, PrometheusError, Series
from exporters.exposition.accumulators import format_float
from exporters.text.errors import UsageError

MOST_POINTS = 10_000
"""Points of one query; Prometheus refuses more than 11,000."""

DAY = 86_400_000

START_TIMEOUT = 300.0
"""Seconds; Prometheus opens all blocks before it is ready."""

Span = tuple[int, int]
"""The first and the last time of samples, in milliseconds."""


@dataclass(frozen=True, slots=True)
class RuleRunner:
    """A Prometheus that is started for each pass, and an empty folder for its data."""

    prometheus: Path
    maker: BlockMaker
    folder: Path

    def run(
        self,
        passes: Sequence[Sequence[TimedRule]],
        blocks: Path,
        spans: Sequence[Span],
        report: Callable[[int, int], None],
    ) -> None:
        """Add blocks with the results of all rules to `blocks`; `report` receives the pass and its samples.

        Raises:
            UsageError: a program cannot be started or has failed.
        """
        data, days = self.folder / "data", self.folder / "days"
        days.mkdir()
        shutil.copytree(blocks, data, copy_function=_link)
        for number, each in enumerate(passes, 1):
            samples = 0
            with temporary_prometheus(self.prometheus, data, self.folder) as server:
                for day, within in _days(spans):
                    samples += self._evaluate(server, each, within, days / f"{day}.om", self.folder / f"{day}.pass.om")
            for text in sorted(self.folder.glob("*.pass.om")):
                self.maker.make(text, data)
                text.unlink()
            report(number, samples)
        for text in sorted(days.iterdir()):
            with text.open("a", encoding="utf-8") as file:
                file.write(END)
            self.maker.make(text, blocks)

    @staticmethod
    def _evaluate(
        server: Prometheus, rules: Sequence[TimedRule], spans: Sequence[Span], day: Path, current: Path
    ) -> int:
        """Append the results of one day to both files; returns the number of samples."""
        samples = 0
        with day.open("a", encoding="utf-8") as all_passes, current.open("w", encoding="utf-8") as this_pass:
            for rule in rules:
                for span in spans:
                    for series in results(server, rule, span):
                        lines = [*_lines(rule, series)]
                        samples += len(lines)
                        all_passes.writelines(lines)
                        this_pass.writelines(lines)
            this_pass.write(END)
        if not samples:
            current.unlink()
        return samples


def _link(source: str, target: str) -> None:
    """Prometheus may delete blocks of its folder, but does not change them."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _days(spans: Sequence[Span]) -> Iterator[tuple[int, list[Span]]]:
    """Each day with its parts of the spans, which are in order."""
    parts: dict[int, list[Span]] = {}
    for first, last in spans:
        for day in range(first // DAY, last // DAY + 1):
            parts.setdefault(day, []).append((max(first, day * DAY), min(last, (day + 1) * DAY - 1)))
    yield from parts.items()


def results(server: Prometheus, timed: TimedRule, span: Span) -> Iterator[Series]:
    """The results of a rule at all its times in the span.

    Raises:
        UsageError: the query has failed.
    """
    interval, offset = round(timed.interval * 1000), round(timed.offset * 1000)
    start = -((offset - span[0]) // interval) * interval + offset
    while start <= span[1]:
        end = min(span[1], start + (MOST_POINTS - 1) * interval)
        try:
            yield from server.query_range(str(timed.rule.expr), start / 1000, end / 1000, timed.interval)
        except PrometheusError as error:
            raise UsageError(f"{timed.rule.series.name}: the query has failed: {error.reason}") from error
        start += MOST_POINTS * interval


def _lines(timed: TimedRule, series: Series) -> Iterator[str]:
    labels = {**series.labels, **timed.rule.labels}
    labels.pop("__name__", None)
    text = ",".join(f"{name}={quote(value)}" for name, value in sorted(labels.items()) if value)
    for at, value in series.points:
        yield f"{timed.rule.series.name}{{{text}}} {format_float(value)} {timestamp(round(at * 1000))}\n"


@contextlib.contextmanager
def temporary_prometheus(program: Path, data: Path, folder: Path) -> Iterator[Prometheus]:
    """A Prometheus over these blocks, with its configuration and log in `folder`.

    Raises:
        UsageError: it did not start.
    """
    config, log = folder / "prometheus.yml", folder / "prometheus.log"
    config.write_text("{}\n", encoding="utf-8")
    address = f"{HOST}:{unused(1)[0]}"
    flags = [
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--web.listen-address={address}",
        "--storage.tsdb.retention.time=100y",
        # Blocks are not joined to longer ones: this folder is deleted soon.
        "--storage.tsdb.min-block-duration=2h",
        "--storage.tsdb.max-block-duration=2h",
        "--query.timeout=10m",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", PARENT_DEATH_SIGNAL, str(os.getpid()), program, *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        server = Prometheus(f"http://{address}", timeout=600.0)
        deadline = time.monotonic() + START_TIMEOUT
        while not _is_ready(server):
            if process.poll() is not None or time.monotonic() > deadline:
                raise UsageError(f"{program}: the temporary Prometheus is not ready; the end of its log:\n{tail(log)}")
            time.sleep(0.1)
        yield server
    finally:
        process.terminate()
        process.wait()


def _is_ready(server: Prometheus) -> bool:
    try:
        server.get("/api/v1/status/runtimeinfo", {})
    except PrometheusError:
        return False
    return True
