"""The report as JSON: shares from 0 to 1, times in seconds, null for an infinite value and for no value."""

import json
import math
from typing import Any

from compose.experiment.report_conclusions import best, conclusions
from compose.experiment.report_estimates import Value, interval, value
from compose.experiment.report_grids import facts
from compose.experiment.report_groups import Experiment, Group
from compose.experiment.report_metrics import ENGINE, METRICS
from compose.experiment.report_predictions import beside, judged
from exporters.comparison.estimates import CONFIDENCE
from loadgen.summary import TOTAL


def as_json(experiment: Experiment) -> str:
    """`groups` has the figures of each configuration and rate by class and metric, `all` for all classes."""
    record = experiment.record
    return json.dumps(
        {
            "name": record.name,
            "description": record.description,
            "facts": facts(experiment),
            "regraded": experiment.rule.regraded,
            "first_token_timeout": _finite(experiment.rule.file.first_token_timeout),
            "confidence": CONFIDENCE,
            "groups": [_group(experiment, group) for group in experiment],
            "best": [
                {
                    "rate": rate,
                    "class": found.request_class,
                    "configuration": found.configuration,
                    "goodput": found.goodput,
                    "no_difference_shown": found.ties,
                }
                for rate, groups in experiment.groups.items()
                for found in (best(groups, name) for name in (*experiment.classes, TOTAL))
            ],
            "conclusions": [
                {
                    "configuration": each.group.configuration,
                    "rate": each.group.rate,
                    "baseline": each.baseline.configuration,
                    "text": str(each),
                    "goodput": {
                        change.request_class: {
                            "difference": _finite(change.difference.value),
                            "low": _finite(interval(change.difference)[0]),
                            "high": _finite(interval(change.difference)[1]),
                            "shown": change.shown,
                        }
                        for change in each.changes
                    },
                }
                for each in conclusions(experiment)
            ],
            "predictions": [
                {
                    "configuration": each.prediction.configuration,
                    "class": each.prediction.request_class or TOTAL,
                    "metric": each.prediction.metric,
                    "rate": each.rate,
                    "predicted": each.text,
                    "verdict": each.verdict.value,
                    "measured": each.numbers,
                }
                for each in judged(experiment)
            ],
            "expected": [
                {
                    "configuration": each.expected.configuration,
                    "class": each.expected.request_class or TOTAL,
                    "metric": each.expected.metric,
                    "rate": each.rate,
                    "source": each.expected.value,
                    "measured": _finite(each.ours.pooled) if each.ours else None,
                    "problem": each.problem or None,
                    "note": each.expected.note,
                }
                for each in beside(experiment)
            ],
        },
        indent=2,
        allow_nan=False,
    )


def _group(experiment: Experiment, group: Group) -> dict[str, Any]:
    names = (*experiment.classes, TOTAL)
    by_class = [metric for metric in METRICS.values() if metric not in ENGINE]
    return {
        "configuration": group.configuration,
        "rate": group.rate,
        "state": group.state or "valid",
        "valid_repeats": len(group.repeats),
        "excluded": [{"repeat": each.repeat, "state": each.state, "reason": each.reason} for each in group.excluded],
        "classes": {name: {metric.name: _value(value(metric, group, name)) for metric in by_class} for name in names},
        "engine": {metric.name: _value(value(metric, group)) for metric in ENGINE},
    }


def _value(found: Value | None) -> dict[str, Any] | None:
    return (
        None
        if found is None
        else {"value": _finite(found.pooled), "repeats": [_finite(each) for each in found.repeats]}
    )


def _finite(number: float) -> float | None:
    return float(f"{number:.6g}") if math.isfinite(number) else None
