"""The marks of an annotation's query: moments, and times for which it held."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dashboards.audit import TimeRange
from dashboards.preview import colours
from dashboards.preview.data_frames import number


def marks_of(
    annotation: Mapping[str, Any], result: Iterable[Mapping[str, Any]], span: TimeRange, step: float
) -> list[dict[str, Any]]:
    """Each mark with its times in milliseconds; `until` is None for a moment."""
    found = []
    for series in result:
        times = _moments(series, span) if annotation.get("useValueForTime") else _times(series, step)
        for start, end in times:
            found.append(
                {
                    "at": start,
                    "until": end,
                    "title": _fill(annotation.get("titleFormat") or annotation["name"], series["metric"]),
                    "text": _fill(annotation.get("textFormat") or "", series["metric"]),
                    "colour": colours.colour(str(annotation.get("iconColor", "red"))),
                }
            )
    return sorted(found, key=lambda mark: (mark["at"], mark["title"]))


def _moments(series: Mapping[str, Any], span: TimeRange) -> Iterator[tuple[float, None]]:
    """The values are the times, however often they were seen."""
    seen = {number(text) for _, text in series["values"]}
    yield from ((at, None) for at in seen if at is not None and span.start <= at / 1000 <= span.end)


def _times(series: Mapping[str, Any], step: float) -> Iterator[tuple[float, float | None]]:
    """As long as the value is above 0, from one point to the next."""
    start = last = None
    for at, text in series["values"]:
        if not (number(text) or 0) > 0:
            continue
        if start is not None and last is not None and at - last > 1.5 * step:
            yield start * 1000, last * 1000 if last > start else None
            start = None
        start, last = at if start is None else start, at
    if start is not None and last is not None:
        yield start * 1000, last * 1000 if last > start else None


def _fill(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: labels.get(match[1], ""), template).strip()
