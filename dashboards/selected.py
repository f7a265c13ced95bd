"""Queries over what the variables at the top have chosen."""

from alerts.promql import rate, select, sum_by
from dashboards.style import SELECTED
from exporters import signals
from exporters.signals import Label, Recorded, Signal

RATE = "$__rate_interval"
PER_CLASS = "{{class}}"


def selected(series: Signal | Recorded) -> str:
    return select(series, SELECTED, regex=True)


def selected_of_engine(series: Signal) -> str:
    return select(series, {Label.MODEL: SELECTED[Label.MODEL]}, regex=True)


def rate_by_class(counter: Signal) -> str:
    return sum_by(rate(selected(counter), RATE), [Label.CLASS])


def goodput_ratio() -> str:
    return f"{rate_by_class(signals.GOODPUT_REQUESTS)} / ({rate_by_class(signals.GOODPUT_EVENTS)} > 0)"
