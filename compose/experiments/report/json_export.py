"""The report as JSON: shares from 0 to 1, times in seconds, null for an infinite value and for no value."""

import json
import math
from dataclasses import asdict
from typing import Any

from compose.experiments.report.conclusions import beside, best, conclusions, judged
from compose.experiments.report.contents import facts
from compose.experiments.report.estimates import Value, interval, value
from compose.experiments.report.floor import floors
from compose.experiments.report.found_rates import found_rates, ranking
from compose.experiments.report.frontier import LATENCIES, frontier, points
from compose.experiments.report.groups import Experiment, Group
from compose.experiments.report.metrics import ENGINE, METRICS
from compose.experiments.setup.cell_store import Claim
from compose.experiments.setup.level import Level
from exporters.analysis.estimates.estimates import CONFIDENCE
from loadgen.results.summary import TOTAL


def as_json(experiment: Experiment) -> str:
    """`groups` has the figures of each configuration and level by class and metric, `all` for all classes.

    `frontiers` has the groups on the frontier of throughput and each latency, the highest throughput first.
    """
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
            "frontiers": {
                metric.name: [point.name for point in frontier(points(experiment, metric))] for metric in LATENCIES
            },
            "tpot_floors": {each.group.name: _finite(each.tpot) for each in floors(experiment)},
            "largest_rates": [
                {
                    "configuration": each.configuration,
                    "repeat": each.repeat,
                    "finding": each.answer.finding,
                    "low": each.answer.low,
                    "high": each.answer.high,
                    "undecided": each.answer.undecided,
                    "limited_by": [{"class": tally.request_class, "slo": tally.slo} for tally in each.missed],
                    "text": each.text,
                    "stopped": each.stopped,
                }
                for each in found_rates(experiment)
            ],
            "ranking": [asdict(each) for each in ranking(found_rates(experiment))],
            "best": [
                {
                    **asdict(level),
                    "class": found.request_class,
                    "configuration": found.configuration,
                    "goodput": found.goodput,
                    "no_difference_shown": found.ties,
                }
                for level, groups in experiment.groups.items()
                for found in (best(groups, name) for name in (*experiment.classes, TOTAL))
            ],
            "conclusions": [
                {
                    "configuration": each.group.configuration,
                    **asdict(each.group.level),
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
                    **_claim(each.prediction, each.level),
                    "predicted": each.text,
                    "verdict": each.verdict.value,
                    "measured": each.numbers,
                }
                for each in judged(experiment)
            ],
            "expected": [
                {
                    **_claim(each.expected, each.level),
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


def _claim(claim: Claim, level: Level) -> dict[str, Any]:
    subject = {"configuration": claim.configuration, "class": claim.request_class or TOTAL, "metric": claim.metric}
    return subject | asdict(level)


def _group(experiment: Experiment, group: Group) -> dict[str, Any]:
    names = (*experiment.classes, TOTAL)
    by_class = [metric for metric in METRICS.values() if metric not in ENGINE]
    return {
        "configuration": group.configuration,
        **asdict(group.level),
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
