"""Turns the result of an annotation query into events: points and regions in time."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dashboards.live.reader import TimeRange
from dashboards.preview.frames import colours


def annotation_events(
    annotation: Mapping[str, Any], result: Iterable[Mapping[str, Any]], time_range: TimeRange, step: float
) -> list[dict[str, Any]]:
    """Each event with its times in milliseconds; `until` is None for a point."""
    events = []
    for series in result:
        intervals = _points(series, time_range) if annotation.get("useValueForTime") else _regions(series, step)
        for start, end in intervals:
            event = {
                "at": start,
                "until": end,
                "title": _expand_labels(annotation.get("titleFormat") or annotation["name"], series["metric"]),
                "text": _expand_labels(annotation.get("textFormat") or "", series["metric"]),
                "colour": colours.colour(str(annotation.get("iconColor", "red"))),
            }
            events.append(event)
    return sorted(events, key=lambda event: (event["at"], event["title"]))


def _points(series: Mapping[str, Any], time_range: TimeRange) -> Iterator[tuple[float, None]]:
    """The values are the times; a value that was scraped repeatedly is one event."""
    timestamps = {float(text) for _, text in series["values"]}
    yield from ((timestamp, None) for timestamp in timestamps if time_range.start <= timestamp / 1000 <= time_range.end)


def _regions(series: Mapping[str, Any], step: float) -> Iterator[tuple[float, float | None]]:
    """One region for each uninterrupted stretch of values above 0."""
    start = last = None
    for timestamp, text in series["values"]:
        # NaN is not above 0
        if not float(text) > 0:
            continue
        if start is not None and last is not None and timestamp - last > 1.5 * step:
            yield start * 1000, last * 1000 if last > start else None
            start = None
        start, last = timestamp if start is None else start, timestamp
    if start is not None and last is not None:
        yield start * 1000, last * 1000 if last > start else None


def _expand_labels(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), template).strip()
