"""Which families a version of vLLM has, and the bounds of its histograms of latencies."""

import re
from dataclasses import dataclass

from exporters import signals
from exporters.engines.signal_table import VLLM
from exporters.engines.table_rows import Family, Row
from exporters.signals import Signal

OLDEST, NEWEST = "0.6.6", "0.33.0"
"""The releases between which the bounds are known; later ones are taken to have those of the newest."""

FINISHED = "vllm:request_success_total"
"""Requests that ended, by `finished_reason`."""

_FIRST_TOKEN = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)

# By the release that brought them, as its source has them. From 0.32 on `--custom-histogram-buckets` can set others.
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
    """One of vLLM's, with its upper bounds without +Inf."""

    name: str
    bounds: tuple[float, ...]


def order(version: str) -> tuple[int, ...]:
    """By which versions compare; `0.25` is `0.25.0`."""
    return tuple(map(int, [*re.findall(r"\d+", version), 0, 0][:3]))


def family(row: Row, version: str) -> Family | None:
    """The first of a row that this version of vLLM has."""
    at = order(version)
    return next(
        (
            each
            for each in row.families
            if order(each.since or OLDEST) <= at and (each.until is None or at <= order(each.until))
        ),
        None,
    )


def histogram(signal: Signal, version: str) -> Histogram | None:
    """That of a latency, if this version of vLLM has one."""
    row = next(row for row in VLLM.rows if row.signal is signal)
    found = family(row, version)
    bounds = [bounds for since, bounds in _BOUNDS[signal].items() if order(since) <= order(version)]
    return Histogram(found.name, bounds[-1]) if found and bounds else None


def first_with(signal: Signal) -> str:
    """The first release that has the histogram."""
    return next(iter(_BOUNDS[signal]))
