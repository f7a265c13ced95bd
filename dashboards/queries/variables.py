"""Queries name series; the variables of the dashboard that select among them are added when a dashboard is printed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from alerts.promql.change import map_selectors, with_matchers
from alerts.promql.expression import Expression, Matcher, Selector
from alerts.rules.target_labels import CONSTANTS
from exporters.vocabulary import signals
from exporters.vocabulary.signals import SCRAPE_SECONDS, SCRAPED_SAMPLES, UP, Label

VARIABLES = (Label.MODEL, Label.CLASS, Label.INSTANCE, Label.ENGINE)
"""The labels with a variable on every dashboard, in its order: its options follow variables before it."""

_LABELS = {
    **{
        name: signal.labels if signal in signals.LOAD_SIGNALS else (*signal.labels, Label.INSTANCE)
        for signal in signals.SIGNALS
        for name in (signal.name, signal.bucket, signal.sum, signal.count)
    },
    **{signal.name: signal.labels for signal in signals.GPU_SIGNALS},
    **{recorded.name: recorded.labels for recorded in signals.RECORDED},
    **dict.fromkeys((UP, SCRAPE_SECONDS, SCRAPED_SAMPLES), (Label.INSTANCE,)),
}
"""The labels of each series, without the `instance` of DCGM's exporter; recorded series of all sidecars have none."""

_OF_NO_TARGET = CONSTANTS | {
    name for each in signals.LOAD_SIGNALS for name in (each.name, each.bucket, each.sum, each.count)
}
"""The load generator is in no cluster."""


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The query of a variable whose options are the series of a result."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class LabelValues:
    """The query of a variable whose options are the values of a label."""

    series: Selector
    label: str


def printed(query: Any, targets: Sequence[str], labels: Sequence[Label] = VARIABLES) -> str | None:
    """The query as text, with matchers of the variables for labels of series and of `targets`; None without a query."""
    match query:
        case Expression():
            return str(with_matchers(following(query, labels), _matchers(targets), _OF_NO_TARGET))
        case QueryResult(expression):
            return f"query_result({printed(expression, targets, labels)})"
        case LabelValues(series, label):
            # the options of a variable follow the variables before it
            earlier = targets[: targets.index(label)] if label in targets else targets
            return f"label_values({with_matchers(series, _matchers(earlier), _OF_NO_TARGET)}, {label})"
        case _:
            return None


def following(expression: Expression, labels: Sequence[Label] = VARIABLES) -> Expression:
    """Each selector with matchers for those of `labels` that its series have and it does not match."""

    def with_variables(selector: Selector) -> Selector:
        matched, own = {each.label for each in selector.matchers}, _LABELS.get(selector.name, ())
        added = _matchers([label for label in labels if label in own and label not in matched])
        return replace(selector, matchers=(*selector.matchers, *added))

    return map_selectors(expression, with_variables)


def _matchers(labels: Sequence[str]) -> tuple[Matcher, ...]:
    return tuple(Matcher(label, "=~", f"${label}") for label in labels)
