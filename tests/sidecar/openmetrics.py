"""The OpenMetrics parser of prometheus_client, with the types that it lacks."""

from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families


def parse_openmetrics(text: str) -> list[Metric]:
    return list(text_string_to_metric_families(text))  # type: ignore[no-untyped-call]  # it has no annotations
