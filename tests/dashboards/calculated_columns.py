"""The columns that Grafana calculates from the results of a table's queries."""

from collections.abc import Mapping, Sequence
from typing import Any

from dashboards.preview.frames.frame import table_frames
from dashboards.preview.frames.transformations import transform

Result = list[tuple[dict[str, str], float]]
"""The labels and the value of each series in the result of one query."""


def calculated_column(panel: Mapping[str, Any], title: str, results: Sequence[Result]) -> Result:
    """The labels and the value of each row of a column, given the results of the queries in their order."""
    frames = [
        frame
        for target, result in zip(panel["targets"], results, strict=True)
        for frame in table_frames(
            target["refId"],
            [{"metric": labels, "value": (0, str(value))} for labels, value in result],
            f"Value #{target['refId']}",
        )
    ]
    (table,) = transform(frames, panel["transformations"])
    labels = [each for each in table.fields if each.kind == "string"]
    values = table.column(title)
    if values is None:
        return []
    return [({each.name: each.values[row] for each in labels}, value) for row, value in enumerate(values.values)]
