"""The seven criteria of seed 003, each graded by what experiments have measured, or unknown."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from alerts.prices import Prices
from compose.experiments.grades.measured_cells import MeasuredCell
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome
from loadgen.results.record import ClientOutcome, Record
from loadgen.schedule.requests import CHAT

MOST_FAILED, OF = 2, 100
"""Timeouts and failures of the engine that the criterion of stability allows, and in how many requests."""
_FAILED = (
    ClientOutcome.TIMEOUT,
    ClientOutcome.TRUNCATED,
    ClientOutcome.UPSTREAM_ERROR,
    ClientOutcome.UPSTREAM_UNREACHABLE,
)
_REAL = "vllm-slo experiment run {name} --engine 'vllm serve MODEL --port {{port}}' --out DIR"
_STARTS = _REAL.format(name="seed-004-single --configurations phase0 --rates 1,1.5 --requests 20")


class Grade(StrEnum):
    """The result of a criterion."""

    PASS = "pass"  # noqa: S105 - a grade
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Graded:
    """A criterion in the words of the source, its grade, and the figures; `needed` says what an unknown one needs."""

    item: str
    criterion: str
    grade: Grade
    evidence: str
    needed: str = ""


def graded(cells: Sequence[MeasuredCell], prices: Prices | None) -> Iterator[Graded]:
    """All criteria, in the order of the source."""
    real = _REAL.format(name=cells[0].experiment.name if cells else "seed-003-blocking")
    yield _loading(cells)
    yield _compatibility(cells)
    yield _stability(cells, real)
    yield _cost(cells, prices, real)
    yield _observability(cells)
    yield Graded(
        "Security",
        "external network/file access permissions separated",
        Grade.UNKNOWN,
        "not measurable here: an experiment sends requests, and sees no permission of the engine's process",
    )
    yield _admission(cells)


def _loading(cells: Sequence[MeasuredCell]) -> Graded:
    item, criterion = "Model loading", "cold start and warm restart times recorded"
    starts: dict[str, list[tuple[float, float]]] = {}
    for cell in cells:
        if not cell.simulated and cell.cell.engine_start is not None:
            name = f"{cell.experiment.name} {cell.cell.configuration}"
            starts.setdefault(name, []).append((cell.run.start, cell.cell.engine_start))
    times = {name: [seconds for _, seconds in sorted(found)] for name, found in starts.items() if len(found) > 1}
    figures = "; ".join(
        f"{name}: first start {first:.1f} s, restart {min(rest):.1f} to {max(rest):.1f} s ({len(rest)})"
        for name, (first, *rest) in times.items()
    )
    if any(first > max(rest) for first, *rest in times.values()):
        return Graded(item, criterion, Grade.PASS, figures)
    if times:
        evidence = f"{figures}; no first start was slower than its restarts, so none was cold"
    elif any(not cell.simulated for cell in cells):
        evidence = "no configuration has the times of two starts of its engine"
    else:
        evidence = "the simulator loads no model"
    needed = f"two starts, the first of them before the machine has loaded the model: {_STARTS}"
    return Graded(item, criterion, Grade.UNKNOWN, evidence, needed)


def _compatibility(cells: Sequence[MeasuredCell]) -> Graded:
    item, criterion = "API compatibility", "OpenAI client can complete a chat call"
    calls = [record for cell in cells if not cell.experiment.virtual for record in cell.sent if record.endpoint == CHAT]
    if not calls:
        needed = "chat calls in real time: vllm-slo experiment run seed-003-blocking --out DIR"
        return Graded(item, criterion, Grade.UNKNOWN, "no chat call was sent over HTTP", needed)
    complete = sum(record.outcome is ClientOutcome.OK and bool(record.completion_tokens) for record in calls)
    evidence = (
        f"{complete:,} of {len(calls):,} calls of POST {CHAT} ended with an answer and its usage; they were sent by "
        "the client of the load generator, not by the package openai"
    )
    return Graded(item, criterion, Grade.PASS if complete else Grade.FAIL, evidence)


def _stability(cells: Sequence[MeasuredCell], real: str) -> Graded:
    item, criterion = "Stability", "0-2 timeouts/OOMs out of 100 requests"
    counts: dict[str, Counter[bool]] = {}
    measured = [cell for cell in cells if not cell.simulated] or cells
    for cell in measured:
        counts.setdefault(cell.name, Counter()).update(record.outcome in _FAILED for record in cell.sent)
    enough = {name: found for name, found in counts.items() if found.total() >= OF}
    if not enough:
        most = max((found.total() for found in counts.values()), default=0)
        evidence = f"no configuration has {OF} requests at one rate; the most are {most}"
        needed = f"a longer load: {_REAL.format(name='seed-003-blocking')}"
        return Graded(item, criterion, Grade.UNKNOWN, evidence, needed)
    worst, found = max(enough.items(), key=lambda each: each[1][True] / each[1].total())
    missed = sum(each[True] * OF > MOST_FAILED * each.total() for each in enough.values())
    evidence = (
        f"{len(enough) - missed} of {len(enough)} configurations and rates within the limit; the worst is {worst}: "
        f"{found[True]:,} of {found.total():,} timed out or failed in the engine, "
        f"{found[True] * OF / found.total():.1f} of {OF}"
    )
    if missed:
        return Graded(item, criterion, Grade.FAIL, evidence)
    if any(cell.simulated for cell in measured):
        evidence += "; the simulator has no GPU memory that could run out"
        return Graded(item, criterion, Grade.UNKNOWN, evidence, f"the same load on a real engine: {real}")
    return Graded(item, criterion, Grade.PASS, evidence)


def _cost(cells: Sequence[MeasuredCell], prices: Prices | None, real: str) -> Graded:
    item, criterion = "Cost", "comparison table of GPU-hour cost vs. API cost"
    measured = [cell for cell in cells if not cell.simulated]
    if not measured:
        evidence = "the throughput of the simulator is not a basis for a cost"
        return Graded(item, criterion, Grade.UNKNOWN, evidence, f"the throughput of a real engine: {real}")
    if prices is None:
        flags = "--gpu-hour-price X --gpus N --api-price IN/OUT"
        return Graded(item, criterion, Grade.UNKNOWN, "no prices", f"prices: vllm-slo experiment grade DIR {flags}")
    return Graded(item, criterion, Grade.PASS, f"the table below, with {len(measured)} cells")


def _observability(cells: Sequence[MeasuredCell]) -> Graded:
    item, criterion = "Observability", "at least request_id, model, tokens, latency logged"
    sent = [
        (record, log.get(record.request_id)) for cell in cells if (log := cell.log) is not None for record in cell.sent
    ]
    if not sent:
        needed = "a load through the sidecar: vllm-slo experiment run seed-003-blocking --out DIR"
        return Graded(item, criterion, Grade.UNKNOWN, "these folders have no request log of the sidecar", needed)
    complete = sum(_logged(record, entry) for record, entry in sent)
    evidence = (
        f"{complete:,} of {len(sent):,} requests have a line with request_id, model, e2e_ms and, if they completed, "
        "prompt_tokens and completion_tokens"
    )
    return Graded(item, criterion, Grade.PASS if complete == len(sent) else Grade.FAIL, evidence)


def _logged(record: Record, entry: LogEntry | None) -> bool:
    if entry is None or not entry.model:
        return False
    return record.outcome is not ClientOutcome.OK or None not in (entry.prompt_tokens, entry.completion_tokens)


def _admission(cells: Sequence[MeasuredCell]) -> Graded:
    item, criterion = "Admission control", "per-team queue isolated, rejection events logged"
    rejected = [
        log.get(record.request_id)
        for cell in cells
        if (log := cell.log) is not None
        for record in cell.sent
        if record.outcome is ClientOutcome.REJECTED
    ]
    logged = sum(entry is not None and entry.outcome is Outcome.REJECTED for entry in rejected)
    figures = "no request through a sidecar was rejected"
    if rejected:
        figures = f"{logged:,} of {len(rejected):,} rejections are in the request log as rejected"
    if logged < len(rejected):
        return Graded(item, criterion, Grade.FAIL, figures)
    return Graded(
        item,
        criterion,
        Grade.UNKNOWN,
        f"{figures}; the queues of teams are not measurable here: an experiment sends the requests of one team, and "
        "neither vLLM nor the sidecar has a queue per team",
        "the wait of a team while another one exceeds its limit, behind the gateway that limits them: "
        "vllm-slo requests --request-log LOG --tenant TEAM --columns tenant,outcome,ttft_ms",
    )
