"""Plots by length: the share of failed requests by prompt and requested length, and completed and failed by prompt."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from loadgen.report.bins import LENGTH_BINS, length_bins
from loadgen.report.plot_area import Area, figure, legend, linear, logarithmic, plain, rectangle
from loadgen.results.record import ClientOutcome, Record

STEPS = ((0.0, "0 %"), (0.05, "≤ 5 %"), (0.2, "≤ 20 %"), (0.5, "≤ 50 %"), (0.999999, "< 100 %"), (1.0, "100 %"))
"""The upper end of each colour of the heatmap, and its text in the legend."""
_PROMPT = "prompt, tokens asked for (log)"
_FAILED = "Failed: every outcome except ok, also requests that were not sent."


def heatmap(title: str, records: Sequence[Record]) -> Element:
    """Share failed by prompt length and requested length."""
    across = length_bins(record.asked_prompt_tokens for record in records)
    up = length_bins(record.max_tokens for record in records)
    cells: defaultdict[tuple[int, int], Counter[str]] = defaultdict(Counter)
    for record in records:
        cells[across.index(record.asked_prompt_tokens), up.index(record.max_tokens)][record.outcome.value] += 1
    area = Area(
        logarithmic(_PROMPT, across.low, across.high, plain),
        logarithmic("requested output, tokens (log)", up.low, up.high, plain),
    )
    marks = []
    for (column, row), outcomes in sorted(cells.items()):
        count = outcomes.total()
        failed = count - outcomes[ClientOutcome.OK.value]
        marks.append(
            rectangle(
                area.left(across.edge(column)),
                area.top(up.edge(row + 1)),
                area.left(across.edge(column + 1)),
                area.top(up.edge(row)),
                f"cell h{next(step for step, (limit, _) in enumerate(STEPS) if failed / count <= limit)}",
                f"prompt {across.label(column)}, requested {up.label(row)} tokens: {count} requests, {failed} failed "
                f"({failed / count:.1%}): {_outcomes(outcomes)}",
            )
        )
    return figure(
        title,
        "Colour: share of the requests of a cell that failed; a cell without colour had no request. All offered "
        f"requests are counted, with the lengths that the scenario asked for. {_FAILED}",
        legend((f"h{step}", text) for step, (_, text) in enumerate(STEPS)),
        area.draw(title, marks),
    )


def completed_and_failed(title: str, records: Sequence[Record]) -> Element:
    """Stacked bars by prompt length, over all classes."""
    bins = length_bins(record.asked_prompt_tokens for record in records)
    counts = [Counter[str]() for _ in range(LENGTH_BINS)]
    for record in records:
        counts[bins.index(record.asked_prompt_tokens)][record.outcome.value] += 1
    area = Area(
        logarithmic(_PROMPT, bins.low, bins.high, plain),
        linear("requests", max(each.total() for each in counts), plain),
    )
    marks = []
    for index, outcomes in enumerate(counts):
        if not outcomes:
            continue
        ok, count = outcomes[ClientOutcome.OK.value], outcomes.total()
        text = f"prompt {bins.label(index)} tokens: {count} requests, {ok} completed, {count - ok} failed"
        left, right = area.left(bins.edge(index)) + 1, area.left(bins.edge(index + 1)) - 1
        for kind, low, high in (("ok", 0, ok), ("failed", ok, count)):
            if high > low:
                marks.append(
                    rectangle(left, area.top(high), right, area.top(low), kind, f"{text}: {_outcomes(outcomes)}")
                )
    return figure(
        title,
        f"All offered requests of all classes, with the prompt lengths that the scenario asked for. {_FAILED}",
        legend([("ok", "completed"), ("failed", "failed")]),
        area.draw(title, marks),
    )


def _outcomes(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()) if count)
