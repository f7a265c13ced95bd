"""The families and the latency bounds of each vLLM release."""

import re
from dataclasses import dataclass

from exporters.engines.signal_table import VLLM
from exporters.engines.table_schema import Family, Row
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal

OLDEST, NEWEST = "0.6.6", "0.33.0"
"""The range of releases with known bounds; later releases are assumed to have the bounds of the newest."""

FINISHED = "vllm:request_success_total"
"""The counter of finished requests, by `finished_reason`."""

_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)

# Bounds by the release that introduced them, from its source. Since 0.32, `--custom-histogram-buckets` sets others.
_BOUNDS: dict[Signal, dict[str, tuple[float, ...]]] = {
    signals.ENGINE_TTFT: {OLDEST: _FIRST_TOKEN, "0.8.5": (*_FIRST_TOKEN, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)},
    signals.ENGINE_TPOT: {"0.11.0": _TOKEN},
    **{
        signal: {OLDEST: _REQUEST, "0.8.5": (*_REQUEST, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)}
        for signal in (signals.ENGINE_DURATION, signals.ENGINE_QUEUE, signals.ENGINE_PREFILL, signals.ENGINE_DECODE)
    },
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of vLLM; upper bounds without +Inf."""

    name: str
    bounds: tuple[float, ...]


def order(version: str) -> tuple[int, ...]:
    """The sort key of a version; `0.25` equals `0.25.0`."""
    return tuple(map(int, [*re.findall(r"\d+", version), 0, 0][:3]))


def family(row: Row, version: str) -> Family | None:
    """The first family of a row that this version of vLLM has."""
    at = order(version)
    for each in row.families:
        if order(each.since or OLDEST) <= at and (each.until is None or at <= order(each.until)):
            return each
    return None


def family_of(signal: Signal, version: str) -> Family | None:
    """The family that this version of vLLM has for a signal."""
    return family(next(row for row in VLLM.rows if row.signal is signal), version)


def histogram(signal: Signal, version: str) -> Histogram | None:
    """The histogram of a latency, if this version of vLLM has one."""
    source = family_of(signal, version)
    bounds = [bounds for since, bounds in _BOUNDS[signal].items() if order(since) <= order(version)]
    return Histogram(source.name, bounds[-1]) if source and bounds else None


def first_with(signal: Signal) -> str:
    """The first release that has the histogram."""
    return next(iter(_BOUNDS[signal]))
