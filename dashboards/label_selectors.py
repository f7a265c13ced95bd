"""Queries over what the variables at the top have chosen."""

from collections.abc import Callable, Mapping

from alerts.promql import rate, ratio, select, sum_by
from dashboards.style import SELECTED
from exporters import signals
from exporters.signals import Label, Recorded, Signal

RATE = "$__rate_interval"
PER_CLASS = "{{class}}"


def selected(series: Signal | Recorded | str) -> str:
    return select(series, SELECTED, regex=True)


def selected_of_engine(series: Signal) -> str:
    return select(series, {Label.MODEL: SELECTED[Label.MODEL]}, regex=True)


def at_sidecar(series: Signal | Recorded | str, where: Mapping[Label, str] | None = None) -> str:
    return select(series, {Label.INSTANCE: "$instance", **(where or {})}, regex=True)


def at_engine(series: Signal, where: Mapping[Label, str] | None = None) -> str:
    return at_sidecar(series, {Label.ENGINE: "$engine", **(where or {})})


def rate_by_class(counter: Signal) -> str:
    return sum_by(rate(selected(counter), RATE), [Label.CLASS])


def mean(histogram: Signal, of: Callable[[str], str]) -> str:
    """Of all that was observed in the window; absent where that is nothing. `of` selects from a series."""
    total, count = (f"sum ({rate(of(series), RATE)})" for series in (histogram.sum, histogram.count))
    return ratio(total, count)


def goodput_ratio() -> str:
    return ratio(rate_by_class(signals.GOODPUT_REQUESTS), rate_by_class(signals.GOODPUT_EVENTS))
