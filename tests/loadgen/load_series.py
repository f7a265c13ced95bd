"""Reads the load generator's metrics by their declared labels."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from exporters.vocabulary.signals import LOAD_SIGNALS

SLOS = """
version: 1
period: 30d
scrape_interval: 200ms
classes: [{name: short, prompt_tokens: "<512"}]
slos: [{name: up, classes: [short], signal: availability, objective: 99%}]
"""


def series_values(families: Iterable[Metric], name: str) -> dict[tuple[str, ...], float]:
    """The values of a series by its label values, in the declared order; to Prometheus an empty one is absent."""
    (signal,) = [signal for signal in LOAD_SIGNALS if name in {signal.name, signal.bucket, signal.count}]
    labels = (*signal.labels, "le") if name == signal.bucket else signal.labels
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {tuple(value for label in labels if (value := sample.labels[label])): sample.value for sample in samples}
