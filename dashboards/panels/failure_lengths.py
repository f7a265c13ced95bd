"""A panel on the prompt lengths of failed requests."""

from grafana_foundation_sdk.builders import heatmap
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.common import HeatmapCellLayout

from alerts.promql.build import call
from dashboards.grafana import style
from dashboards.grafana.style import query
from dashboards.queries.rates import ratio_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label


def failure_ratio_by_length() -> heatmap.Panel:
    """A series per row: a heatmap of Prometheus's cumulative buckets cannot show a ratio."""
    text = (
        "Share of the requests with prompts of that length that ended with another outcome than ok, of the selected "
        "classes. A row is the upper bound in tokens. A band that begins at a length is a limit of length, such as the "
        "context of the model. Open requests, and those whose length is unknown, are not in it. Good: no cell, as "
        "cells without failures are empty. From the sidecars' counters."
    )
    # failures and requests are extrapolated apart
    failed = call("clamp_max", ratio_by(signals.FAILED_BY_LENGTH, signals.REQUESTS_BY_LENGTH, Label.PROMPT_LENGTH), 1)
    panel = style.heatmap_panel(
        *("Failure ratio by prompt length", text, units.NoUnit, units.PercentUnit, 24),
        may_be_empty="no request has failed",
    ).with_target(query(failed, "{{prompt_length}}"))
    # the zeros before a number only sort the series
    panel.with_transformation(
        model.DataTransformerConfig("renameByRegex", options={"regex": "^0+(\\d)", "renamePattern": "$1"})
    )
    # the bound is at the upper edge of its cells
    return panel.rows_frame(heatmap.RowsHeatmapOptions().layout(HeatmapCellLayout.LE))
