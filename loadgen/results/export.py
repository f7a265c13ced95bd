"""The summary of a run for other programs: as JSON, and as CSV with a row for each phase and class."""

import math
from collections.abc import Iterator
from dataclasses import asdict, fields

import msgspec

from exporters.text.csv_lines import csv_line
from loadgen.results.record import ClientOutcome, Run
from loadgen.results.summary import ClassSummary, Quantiles, Summary

WHOLE = "whole run"

_COUNTS = ("offered", "streams", "without_first_token", "judged", "abandoned", "good", "goodput")
_TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")
_TIMES = [field.name for field in fields(ClassSummary) if field.type is Quantiles]


def as_json(result: Summary) -> str:
    return msgspec.json.format(msgspec.json.encode(result), indent=2).decode()


def as_csv(run: Run, result: Summary) -> str:
    """Times in seconds; a figure without a value, or with an infinite one, is empty."""
    rows = [_row(run, result, name, each) for name, each in _rows(result)]
    return csv_line(rows[0]) + "".join(csv_line(row.values()) for row in rows)


def _rows(result: Summary) -> Iterator[tuple[str, ClassSummary]]:
    for phase, rows in result.phases.items():
        for row in rows:
            yield phase, row
    for row in (*result.classes, result.total):
        yield WHOLE, row


def _row(run: Run, result: Summary, phase: str, row: ClassSummary) -> dict[str, object]:
    cells: dict[str, object] = {
        "validity": "INVALID" if result.health.faults else "valid",
        "phase": phase,
        "class": row.name,
    }
    cells |= {name: getattr(row, name) for name in _COUNTS}
    cells |= {outcome.value: row.outcomes.get(outcome.value, 0) for outcome in ClientOutcome}
    cells |= {name: getattr(row, name) for name in _TOKENS}
    # These rates of a phase are unknown: responses continue after its end.
    seconds = run.seconds if phase == WHOLE else 0.0
    cells["output_tokens_per_second"] = row.completion_tokens / seconds if seconds else None
    for name in _TIMES:
        quantiles = asdict(getattr(row, name))
        cells |= {f"{name}_{which}": None if value == math.inf else value for which, value in quantiles.items()}
    for slo in run.slos:
        verdicts = row.slos.get(slo.name)
        cells[f"slo_{slo.name}_judged"] = verdicts.events if verdicts else 0
        cells[f"slo_{slo.name}_bad"] = verdicts.bad if verdicts else 0
    return cells
