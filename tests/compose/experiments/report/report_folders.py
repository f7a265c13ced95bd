"""Output folders of experiments for tests of the report, cells with made-up requests, and their figures."""

import gzip
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compose.experiments.report.estimates import value
from compose.experiments.report.groups import Group
from compose.experiments.report.metrics import ReportMetric
from compose.experiments.setup.cell_store import (
    CELL,
    EXPERIMENT,
    SLOS,
    Cell,
    CellStatus,
    Configuration,
    EngineReading,
    ExperimentRecord,
    cell_folder,
)
from compose.experiments.setup.level import PHASES, Level
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Verdict
from loadgen.results.record import REQUESTS, RUN, ClientOutcome, Record, encode_line, write_json
from loadgen.results.summary import TOTAL
from loadgen.schedule.phases import Steady
from tests.exporters.analysis.compare.sample_logs import seeded
from tests.loadgen.load_records import record, run

RECORDINGS = Path(__file__).parents[1] / "recordings"
CLASSES = ["siso", "lilo"]
COUNT = 200
SECONDS = 100.0
ENGINE = EngineReading(
    settings={"block_size": "16"},
    kv_capacity_tokens=57_000,
    kv_usage_max=1.0,
    kv_usage_mean=0.75,
    preemptions=262,
    prefix_query_tokens=1000,
    prefix_hit_tokens=737,
    waiting_max=40.0,
    waiting_mean=12.5,
    running_max=60.0,
)


def requests(good: float, *, seed: int = 1, outcome: ClientOutcome = ClientOutcome.OK) -> list[Record]:
    """Streams of two classes, of which a share is good; a bad one has no first token."""
    random, made = seeded(seed), []
    for number in range(COUNT):
        fine = random.random() < good
        due = number * SECONDS / COUNT
        made.append(
            record(
                request_class=CLASSES[number % 2],
                phase="load",
                number=number,
                due=due,
                sent=due,
                closed=due + 2,
                outcome=outcome if fine else ClientOutcome.TIMEOUT,
                ttft=random.lognormvariate(0, 0.3) if fine else None,
                e2e=2.0,
                tpot=0.02 if fine else None,
                itl_p50=0.018 if fine else None,
                itl_p95=0.05 if fine else None,
                completion_tokens=100 if fine else None,
                slo={"ttft": Verdict.GOOD if fine else Verdict.BAD},
                good=fine,
            )
        )
    return made


@dataclass(frozen=True)
class Made:
    """A cell to write; without records, only its `cell.json`."""

    configuration: str
    records: Sequence[Record] | None = None
    level: Level = PHASES
    repeat: int = 1
    status: CellStatus = CellStatus.DONE
    reason: str | None = None
    engine: EngineReading = ENGINE
    schedule: str = "0f"
    stalled: float = 0.0


def write(directory: Path, cells: Sequence[Made], **changes: Any) -> Path:
    """An experiment with these cells; its configurations are theirs unless they are among the changes."""
    usual: dict[str, Any] = {
        "name": "flags",
        "source": "a test",
        "description": "Two classes.",
        "file_sha256": "ab",
        "virtual": True,
        "engine": "simulator",
        "configurations": [
            Configuration(name, {"max-num-seqs": "8"}) for name in dict.fromkeys(cell.configuration for cell in cells)
        ],
        "rates": sorted({cell.level.rate for cell in cells if cell.level.rate is not None}),
        "concurrencies": sorted({cell.level.concurrency for cell in cells if cell.level.concurrency is not None}),
        "repeats": max(cell.repeat for cell in cells),
    }
    directory.mkdir(parents=True, exist_ok=True)
    write_json(directory / EXPERIMENT, ExperimentRecord(**(usual | changes)))
    shutil.copy(slo_file.SHIPPED, directory / SLOS)
    for cell in cells:
        folder = cell_folder(directory, cell.configuration, cell.level, cell.repeat)
        folder.mkdir(parents=True)
        stored = Cell(
            configuration=cell.configuration,
            rate=cell.level.rate,
            concurrency=cell.level.concurrency,
            repeat=cell.repeat,
            status=cell.status,
            reason=cell.reason,
            seconds=SECONDS,
            engine=cell.engine,
        )
        write_json(folder / CELL, stored)
        if cell.records is not None:
            shares = dict.fromkeys(CLASSES, 0.5)
            made = run(
                classes=CLASSES,
                shares=shares,
                phases=[Steady("load", SECONDS, COUNT / SECONDS)],
                seconds=SECONDS,
                schedule=cell.schedule,
                stalled=cell.stalled,
            )
            write_json(folder / RUN, made)
            (folder / REQUESTS).write_bytes(b"".join(map(encode_line, cell.records)))
    return directory


def unpack(name: str, directory: Path) -> Path:
    """A copy of a recording, with the shipped SLO file."""
    shutil.copytree(RECORDINGS / name, directory)
    for packed in directory.rglob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    shutil.copy(slo_file.SHIPPED, directory / SLOS)
    return directory


def figure(metric: ReportMetric, group: Group, name: str = TOTAL) -> float:
    """The value of a class over all repeats."""
    found = value(metric, group, name)
    assert found is not None
    return found.pooled
