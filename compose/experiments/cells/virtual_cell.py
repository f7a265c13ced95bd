"""Measures one cell in virtual time and writes the files of a load run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path

from compose.experiments.cells.cell_run import CellPlan
from compose.experiments.cells.simulated_engine import settings
from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.experiments.setup.cell_store import EngineReading
from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.scheduler import Scheduler, Step
from compose.simulator.presets.preset import Preset
from exporters.vocabulary.signals import SEND_LATE
from exporters.vocabulary.slo_file import SloFile
from loadgen.client.chunk_totals import ChunkTotals
from loadgen.client.completion import CompletionResponse
from loadgen.results.record import REQUESTS, Record, Run, objectives, replace_file, rule_of_run
from loadgen.results.record_file import RecordFile
from loadgen.results.summary import summarise
from loadgen.run import warm_up
from loadgen.run.store import result_files
from loadgen.schedule.requests import PlannedRequest, Schedule, Workload, schedule_hash
from loadgen.schedule.scenario import Scenario

TARGET = "virtual time"


class WaveSchedule(Schedule):
    """The requests of a wave of the warm-up."""

    def __init__(self, requests: Sequence[PlannedRequest]) -> None:
        self._requests = requests

    def __iter__(self) -> Iterator[PlannedRequest]:
        return iter(self._requests)


class EngineTotals:
    """The gauges of the engines over the time of a run, and the sums of their counters.

    Shares are means over the engines, and maxima those of one engine.
    """

    def __init__(self, engines: int) -> None:
        self._engines = engines
        self._usage = self._waiting = 0.0  # integrals over time
        self._maxima = (0.0, 0.0, 0.0)
        self._preemptions = self._queries = self._hits = self._generated = 0
        self._drafts = self._draft_tokens = self._accepted = 0

    def add(self, step: Step, scheduler: Scheduler) -> None:
        usage, waiting, running = scheduler.pool.usage, len(scheduler.waiting), step.sequences
        self._usage += usage * step.duration
        self._waiting += waiting * step.duration
        most = self._maxima
        self._maxima = max(most[0], usage), max(most[1], waiting), max(most[2], running)
        self._preemptions += len(step.preempted)
        self._generated += step.decoded + sum(token.count for token in step.tokens)
        for job in step.admitted:
            self._queries += job.prompt_length
            self._hits += job.cached
        for token in step.tokens:
            self._drafts += token.drafted > 0
            self._draft_tokens += token.drafted
            self._accepted += token.accepted

    def reading(self, preset: Preset, flags: EngineFlags, seconds: float) -> EngineReading:
        """The figures of a run of this length; an idle engine has no requests and uses no KV cache."""
        caching = flags.enable_prefix_caching  # without it vLLM counts no queries
        drafting = preset.speculation is not None  # without it vLLM has no counters of drafts
        return EngineReading(
            settings=settings(preset, flags),
            kv_capacity_tokens=flags.kv_tokens,
            kv_usage_max=round(self._maxima[0], 6),
            kv_usage_mean=round(self._usage / seconds / self._engines, 6),
            preemptions=self._preemptions,
            generated_tokens=self._generated,
            prefix_query_tokens=self._queries if caching else 0,
            prefix_hit_tokens=self._hits if caching else 0,
            waiting_max=self._maxima[1],
            waiting_mean=round(self._waiting / seconds, 6),
            running_max=self._maxima[2],
            drafts=self._drafts if drafting else None,
            draft_tokens=self._draft_tokens if drafting else None,
            accepted_draft_tokens=self._accepted if drafting else None,
        )


def measure(
    plan: CellPlan,
    slos: SloFile,
    preset: Preset,
    flags: EngineFlags,
    max_concurrency: int | None,
) -> tuple[float, EngineReading]:
    """Run the scenario of a cell, write its files, and return its length in seconds and the engine's figures.

    The outage of the engine counts from the start of the run. With `warm_up`, a warm-up precedes it.

    Raises:
        OSError: the folder cannot be written.
    """
    folder, scenario = plan.folder, plan.scenario
    folder.mkdir(parents=True, exist_ok=True)
    schedule = Workload(scenario, scenario.phases, scenario.seed)
    fleet = VirtualFleet(flags, preset, plan.engine.pools)
    file, records, chunks = RecordFile(folder / REQUESTS), list[Record](), ChunkTotals()
    totals = EngineTotals(len(fleet.engines))

    def keep(record: Record, response: CompletionResponse) -> None:
        chunks.add_response(record, response)
        records.append(record)
        file.add(record)

    load = VirtualLoad(
        schedule=schedule,
        phases=scenario.phases,
        slos=slos,
        timeout=scenario.timeout,
        timeouts=scenario.timeouts,
        max_concurrency=max_concurrency,
        outage=(flags.outage_after, flags.outage_after + flags.outage_seconds) if flags.outage_seconds else None,
    )
    if plan.engine.warm_up is not None:
        _warm_up(folder, scenario, fleet, load, plan.engine.warm_up)
    seconds = VirtualRun(fleet, load, keep, totals.add).run()
    file.close()
    if file.failure is not None:
        raise OSError(file.failure)
    run = Run(
        scenario=scenario.name,
        experiment=plan.experiment,
        configuration=plan.group,
        seed=scenario.seed,
        schedule=schedule_hash(schedule),
        shares=scenario.shares,
        target=TARGET,
        model=preset.model,
        rate_scale=1.0,
        timeout=scenario.timeout,
        timeouts=scenario.timeouts,
        phases=list(scenario.phases),
        classes=list(scenario.shares),
        slos=objectives(slos),
        rule=rule_of_run(slos),
        max_send_lag=SEND_LATE,
        max_concurrency=max_concurrency,
        same_machine=True,
        versions={"vllm-slo": metadata.version("vllm-slo")},
        ended="completed",
        seconds=round(seconds, 3),
        chunks=sum(record.chunks for record in records),
    )
    for name, content in result_files(run, summarise(run, records), records, chunks):
        replace_file(folder / name, content)
    return seconds, totals.reading(preset, flags, seconds)


def _warm_up(folder: Path, scenario: Scenario, fleet: VirtualFleet, load: VirtualLoad, largest: int) -> None:
    """What `vllm-slo load run --warm-up` does before a run, with the same file."""

    def send(requests: Sequence[PlannedRequest]) -> list[Record]:
        records: list[Record] = []
        wave = replace(load, schedule=WaveSchedule(requests), phases=(), outage=None)
        VirtualRun(fleet, wave, lambda record, _: records.append(record), lambda *_: None).run()
        return records

    warm_up.run(warm_up.waves(scenario, largest, scenario.seed), send, folder, lambda: False)
