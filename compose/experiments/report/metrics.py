"""The metrics of an experiment: names for predictions, titles, units, and how each follows from requests or engine."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from statistics import fmean

from compose.experiments.report.groups import Repeat
from compose.experiments.setup.cell_store import EngineReading
from exporters.vocabulary.signals import OutputResult
from loadgen.report.tables import format_seconds
from loadgen.results.record import ClientOutcome, Record


@dataclass(frozen=True, slots=True)
class Share:
    """The mean over requests of a value from 0 to 1; None for a request that does not count."""

    of: Callable[[Record], float | None]


@dataclass(frozen=True, slots=True)
class Percentile:
    """A nearest-rank percentile over requests; infinite for a request that did not get so far."""

    of: Callable[[Record], float | None]
    percent: int


@dataclass(frozen=True, slots=True)
class PerSecond:
    """The sum over requests, per second of the run."""

    of: Callable[[Record], float]


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over requests, infinite if one value is; without an interval."""

    of: Callable[[Record], float | None]


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure of the whole run; `combine` makes one of several repeats. `exact`: the same in each run."""

    of: Callable[[Repeat], float | None]
    combine: Callable[[Iterable[float]], float] = fmean
    exact: bool = False


class Unit(Enum):
    """How values are written."""

    SHARE = "share"
    SECONDS = "seconds"
    PER_SECOND = "tokens/s"
    COUNT = "count"

    def text(self, value: float | None) -> str:
        """Three significant digits; `∞` for an infinite time, `-` without a value."""
        if value is None:
            return "-"
        if math.isinf(value):
            return "∞" if value > 0 else "-∞"
        match self:
            case Unit.SHARE:
                return f"{_digits(value * 100)} %"
            case Unit.SECONDS:
                return "0 s" if not value else format_seconds(value) if value > 0 else f"-{format_seconds(-value)}"
            case _:
                return _digits(value)

    def change(self, value: float) -> str:
        """A difference with its sign; that of shares in percentage points."""
        text = _digits(value * 100) if self is Unit.SHARE else self.text(value)
        return f"+{text}" if value > 0 else text


@dataclass(frozen=True, slots=True)
class ReportMetric:
    """One metric."""

    name: str
    title: str
    unit: Unit
    source: Share | Percentile | PerSecond | Mean | Reading


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{float(f'{value:.3g}'):g}"


def _ttft(record: Record) -> float | None:
    return None if not record.stream else math.inf if record.ttft is None else record.ttft


def _itl(record: Record, value: float | None) -> float | None:
    return math.inf if record.stream and record.ttft is None else value


def _tpot(record: Record) -> float | None:
    return math.inf if record.stream and not _ok(record) else record.tpot


def _e2e(record: Record) -> float | None:
    return record.e2e if _ok(record) else math.inf


def _ok(record: Record) -> bool:
    return record.outcome is ClientOutcome.OK


def _valid_json(record: Record) -> float | None:
    if record.json_result not in (OutputResult.VALID, OutputResult.INVALID):
        return None
    return float(record.json_result is OutputResult.VALID)


def _hit_ratio(engine: EngineReading) -> float | None:
    return _ratio(engine.prefix_hit_tokens, engine.prefix_query_tokens)


def _draft_acceptance(engine: EngineReading) -> float | None:
    return _ratio(engine.accepted_draft_tokens, engine.draft_tokens)


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


def _received(repeat: Repeat) -> float:
    return sum(record.completion_tokens or 0 for record in repeat.records)


def _share(name: str, title: str, of: Callable[[Record], float | None]) -> ReportMetric:
    return ReportMetric(name, title, Unit.SHARE, Share(of))


def _time(name: str, title: str, source: Percentile | Mean) -> ReportMetric:
    return ReportMetric(name, title, Unit.SECONDS, source)


def _times(name: str, title: str, of: Callable[[Record], float | None]) -> Iterable[ReportMetric]:
    for percent in (50, 99):
        yield _time(f"{name}_p{percent}", f"{title} p{percent}", Percentile(of, percent))


def _reading(
    name: str,
    title: str,
    of: Callable[[EngineReading], float | None],
    unit: Unit = Unit.COUNT,
    *,
    combine: Callable[[Iterable[float]], float] = fmean,
    exact: bool = False,
) -> ReportMetric:
    return ReportMetric(name, title, unit, Reading(lambda repeat: of(repeat.engine), combine, exact))


GOODPUT = _share("goodput", "goodput, of offered", lambda record: float(record.good is True))
JUDGED = _share(
    "goodput_judged", "goodput, of judged", lambda record: None if record.good is None else float(record.good)
)
COMPLETION = _share("completion", "completion", lambda record: float(_ok(record)))
VALID_JSON = _share("valid_json", "valid JSON, of complete answers", _valid_json)
THROUGHPUT = ReportMetric(
    "output_tokens_per_second",
    "output tokens/s",
    Unit.PER_SECOND,
    PerSecond(lambda record: float(record.completion_tokens or 0)),
)
TTFT_MEAN = _time("ttft_mean", "TTFT mean", Mean(_ttft))
TTFT_P50, TTFT_P99 = _times("ttft", "TTFT", _ttft)
E2E_P50, E2E_P99 = _times("e2e", "E2E", _e2e)
TPOT_P50, TPOT_P99 = _times("tpot", "TPOT", _tpot)
ITL_P50 = _time("itl_p50", "ITL p50", Percentile(lambda record: _itl(record, record.itl_p50), 50))
ITL_P99 = _time("itl_p99", "ITL p99", Percentile(lambda record: _itl(record, record.itl_p95), 99))
BY_CLASS = (
    *(COMPLETION, VALID_JSON, THROUGHPUT, TTFT_MEAN, TTFT_P50, TTFT_P99),
    *(ITL_P50, ITL_P99, TPOT_P50, TPOT_P99, E2E_P50, E2E_P99),
)
"""The rows of each class."""
ENGINE = (
    _reading("generated_tokens", "output tokens generated", lambda engine: engine.generated_tokens),
    ReportMetric("output_tokens", "output tokens received", Unit.COUNT, Reading(_received)),
    _reading("preemptions", "preemptions", lambda engine: engine.preemptions),
    _reading("kv_capacity_tokens", "KV cache capacity, tokens", lambda engine: engine.kv_capacity_tokens, exact=True),
    _reading("kv_usage_max", "KV cache usage, max", lambda engine: engine.kv_usage_max, Unit.SHARE, combine=max),
    _reading("kv_usage_mean", "KV cache usage, mean", lambda engine: engine.kv_usage_mean, Unit.SHARE),
    _reading("hit_ratio", "prefix cache hit ratio", _hit_ratio, Unit.SHARE),
    _reading("draft_acceptance", "draft tokens accepted", _draft_acceptance, Unit.SHARE),
    _reading("waiting_max", "requests waiting, max", lambda engine: engine.waiting_max, combine=max),
    _reading("waiting_mean", "requests waiting, mean", lambda engine: engine.waiting_mean),
    _reading("running_max", "requests running, max", lambda engine: engine.running_max, combine=max),
)
"""Figures of the whole engine, and the output tokens that its clients received."""
METRICS = {metric.name: metric for metric in (GOODPUT, JUDGED, *BY_CLASS, *ENGINE)}
"""Metrics by name: those of predictions and expected figures, and some more."""
