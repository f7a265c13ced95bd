"""Families as types of prometheus_client, parsed from an exposition or from accumulators."""

from collections.abc import Iterable

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from exporters.exposition.accumulators import Accumulator


def parse_openmetrics(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no annotations


def whole(families: Iterable[Metric | Accumulator]) -> list[Metric]:
    return [each._family(each._labels()) if isinstance(each, Accumulator) else each for each in families]
