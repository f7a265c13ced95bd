"""The report as facts, notes and tables of text, in the order in which every format shows them."""

from collections.abc import Iterator, Sequence
from math import inf

from compose.experiments.report.conclusions import Best, beside, best, conclusions, judged
from compose.experiments.report.estimates import cell, value
from compose.experiments.report.floor import floors
from compose.experiments.report.frontier import LATENCIES, frontier_rows
from compose.experiments.report.groups import NOT_RUN, Experiment, Group
from compose.experiments.report.metrics import (
    BY_CLASS,
    ENGINE,
    GOODPUT,
    JUDGED,
    METRICS,
    THROUGHPUT,
    TPOT_P50,
    VALID_JSON,
)
from compose.experiments.report.searches import searches
from compose.experiments.report.tables import Grid, Report, Sentences
from compose.experiments.setup.cell_store import Claim, ExperimentRecord
from compose.experiments.setup.level import Level
from compose.experiments.setup.pools import ONE_ENGINE
from exporters.analysis.estimates.estimates import CONFIDENCE
from exporters.text.units import spell_duration
from exporters.text.yaml_keys import NO_TIMEOUT
from exporters.vocabulary.slo_file import Latency
from loadgen.results.regrading import AGAIN
from loadgen.results.summary import TOTAL

_TIMES_NOTE = (
    "TTFT and E2E count from the due time. A request without a first token counts as slower than any other (∞), for "
    "E2E and TPOT every request that did not end ok. ITL p50: median over the streams of each stream's median gap; "
    "ITL p99: 99th percentile over the streams of each stream's 95th percentile, which SLOs on itl_p95 judge. "
    "Throughput is output tokens per second of the run; prompt tokens are not part of it."
)
_GOODPUT_NOTE = (
    "Goodput: requests that met all their SLOs, of those offered and of those with a verdict. A request that the "
    "client ended before its verdict is offered, but not judged. *: the best of the class, and those for which no "
    "difference from the best is shown."
)
_SPREAD_NOTE = "[low..high]: least and largest value of the repeats, which are pooled."
INTERVALS_NOTE = (
    f"A difference is stated only if its {CONFIDENCE:.0%} interval excludes 0. Runs with the same schedules are "
    "compared by a bootstrap of blocks of consecutive requests, others as independent samples (Newcombe). The "
    "intervals are not corrected for their number: without any real difference, about 1 of 20 excludes 0. Under "
    "overload, goodput falls during a run, so the intervals of short runs are wide."
)
_FRONTIER_NOTE = (
    "All classes together. *: on the frontier of throughput and this latency: every other point has less throughput "
    "or a higher latency."
)
_FLOOR_NOTE = (
    "TPOT floor: a step reads the weights and the KV cache in use from memory (Pope et al., 2022, section 2) and "
    "gives each request one token, or more with speculative decoding. GPU and model are those of the preset."
)
_PREDICTIONS_NOTE = (
    "A prediction is decided by the 95 % interval of the difference or of the value. Means and figures of the engine "
    "have no interval: every repeat must differ from every repeat of the baseline. same: the interval is within 10 "
    "points, or within 10 % of the baseline."
)


def facts(experiment: Experiment) -> dict[str, str]:
    """What was measured, and by which SLO rule it is judged."""
    record, rule = experiment.record, experiment.rule
    judged_by = AGAIN if rule.regraded else "verdicts of the runs, by"
    states = [each.state for group in experiment for each in group.excluded]
    counts = [f"{sum(len(group.repeats) for group in experiment)} valid"]
    counts += [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
    if experiment.left_out:
        counts.append(f"{experiment.left_out} of other configurations and loads {NOT_RUN}")
    return {
        "source": record.source,
        "engine": record.engine + (", in virtual time" if record.virtual else ""),
        "load": _load(record),
        "cells": ", ".join(counts),
        "SLO rule": f"{judged_by} {rule.path}",
        "SLOs": "; ".join(_slos(experiment)),
        "first-token timeout": _first_token(experiment),
    }


def _load(record: ExperimentRecord) -> str:
    if (limits := record.find_max) is not None:
        found = f"searched from {limits.floor:g}/s to {limits.cap:g}/s, until both ends of the answer differ by at most"
        return f"{found} {limits.resolution:.3g}; about {record.requests} requests a probe"
    return ",".join(level.text for level in record.levels).strip() or "the phases of the scenario"


def _slos(experiment: Experiment) -> Iterator[str]:
    for slo in experiment.rule.file.slos:
        limit = f" <= {spell_duration(slo.sli.threshold)}" if isinstance(slo.sli, Latency) else ""
        yield f"{slo.measure.value}{limit} for {', '.join(slo.classes)}"


def _first_token(experiment: Experiment) -> str:
    timeout, cut = experiment.rule.file.first_token_timeout, experiment.timeout
    if timeout == inf:
        return NO_TIMEOUT
    text = spell_duration(timeout)
    if cut is not None and timeout >= cut:
        return f"none: {text} is not below the client timeout of {spell_duration(cut)}"
    return f"{text}; a request without a first token by then is bad for tpot, itl_p95, decode and availability"


def report(experiment: Experiment) -> Report:
    record = experiment.record
    return Report(record.name, record.description, facts(experiment), [*contents(experiment)])


def contents(experiment: Experiment) -> Iterator[Grid | Sentences | str]:
    """Tables, conclusions and notes."""
    excluded = [
        [group.name, str(each.repeat), each.state, each.reason] for group in experiment for each in group.excluded
    ]
    if excluded:
        headings = ["configuration", "repeat", "state", "reason"]
        yield Grid("Cells without figures", headings, excluded, left=(0, 2, 3))
    if experiment.record.find_max is None:
        yield from _compared(experiment)
    else:
        yield from searches(experiment)
        yield _TIMES_NOTE
    flags = [
        [
            each.name,
            "; ".join(pool.text for pool in each.pools or ONE_ENGINE),
            " ".join(f"--{name}={flag}" for name, flag in each.flags.items()) or "-",
            "-" if each.warm_up is None else str(each.warm_up),
        ]
        for each in experiment.record.configurations
    ]
    yield Grid("Configurations", ["configuration", "engines", "engine flags", "warm-up"], flags, left=(0, 1, 2))


def _compared(experiment: Experiment) -> Iterator[Grid | Sentences | str]:
    """The configurations beside each other, at each level."""
    for level, groups in experiment.groups.items():
        yield from _goodput(experiment, groups, level)
    yield _GOODPUT_NOTE
    if experiment.record.repeats > 1:
        yield _SPREAD_NOTE
    sentences = [str(each) for each in conclusions(experiment)]
    if sentences:
        first = experiment.record.configurations[0].name
        yield Sentences(f"Configurations against {first}", sentences)
        yield INTERVALS_NOTE
    yield from _frontier(experiment)
    yield from _predictions(experiment)
    for level, groups in experiment.groups.items():
        yield _figures(experiment, groups, level)
    yield _TIMES_NOTE
    for level, groups in experiment.groups.items():
        rows = [[metric.title, *(cell(metric, group) for group in groups)] for metric in ENGINE]
        yield Grid(f"Engine{experiment.at(level)}", ["figure", *_titles(groups)], rows, labels=1)


def _titles(groups: Sequence[Group]) -> list[str]:
    return [group.title for group in groups]


def _goodput(experiment: Experiment, groups: Sequence[Group], level: Level) -> Iterator[Grid]:
    rows, winners = [], []
    for name in (*experiment.classes, TOTAL):
        winner = best(groups, name)
        offered = [
            f"{cell(GOODPUT, group, name)}{'*' if winner.marks(group.configuration) else ''}" for group in groups
        ]
        rows.append([name, "offered", *offered])
        rows.append(["", "judged", *(cell(JUDGED, group, name) for group in groups)])
        winners.append(_winner(winner))
    yield Grid(f"Goodput{experiment.at(level)}", ["class", "of", *_titles(groups)], rows, labels=2, left=(0, 1))
    headings = ["class", "best", "goodput, of offered", "no difference from it shown"]
    yield Grid(f"Best configuration by class{experiment.at(level)}", headings, winners, left=(0, 1, 3))


def _winner(winner: Best) -> list[str]:
    goodput = GOODPUT.unit.text(winner.goodput)
    return [winner.request_class, winner.configuration or "-", goodput, ", ".join(winner.ties) or "-"]


def _frontier(experiment: Experiment) -> Iterator[Grid | str]:
    if len(found := frontier_rows(experiment)) > 1:
        titles = [metric.title for metric in (THROUGHPUT, *LATENCIES)]
        yield Grid("Throughput against latency", ["configuration", *titles], found, labels=1)
        yield _FRONTIER_NOTE
    seconds = TPOT_P50.unit.text
    lines = []
    for each in floors(experiment):
        measured = value(TPOT_P50, each.group)
        times = (each.weights, each.cache, each.tpot, measured.pooled if measured else None)
        weights, cache, least, tpot = map(seconds, times)
        lines.append([each.group.name, weights, cache, f"{each.tokens:.3g}", least, tpot])
    if lines:
        headings = ["configuration", "weights", "KV cache", "tokens per step", "TPOT floor", "TPOT p50"]
        yield Grid("TPOT floor by memory bandwidth", headings, lines, labels=1)
        yield _FLOOR_NOTE


def _figures(experiment: Experiment, groups: Sequence[Group], level: Level) -> Grid:
    rows = []
    for name in (*experiment.classes, TOTAL):
        for index, metric in enumerate(BY_CLASS):
            if metric is VALID_JSON and all(value(metric, group, name) is None for group in groups):
                continue  # no answer has to be JSON
            label = "" if index else name
            rows.append([label, metric.title, *(cell(metric, group, name) for group in groups)])
    headings = ["class", "figure", *_titles(groups)]
    return Grid(f"Figures by class{experiment.at(level)}", headings, rows, labels=2, left=(0, 1))


def _subject(experiment: Experiment, claim: Claim, level: Level) -> tuple[str, str, str]:
    return claim.configuration + experiment.at(level), claim.request_class or TOTAL, claim.metric


def _predictions(experiment: Experiment) -> Iterator[Grid | str]:
    headings = ["configuration", "class", "metric"]
    found = [
        [*_subject(experiment, each.prediction, each.level), each.text, each.verdict.value, each.numbers]
        for each in judged(experiment)
    ]
    if found:
        yield Grid("Predictions", [*headings, "predicted", "verdict", "measured"], found, left=range(6))
        yield _PREDICTIONS_NOTE
    rows = []
    for each in beside(experiment):
        unit = METRICS[each.expected.metric].unit
        source, ours = unit.text(each.expected.value), unit.text(each.ours.pooled if each.ours else None)
        subject = _subject(experiment, each.expected, each.level)
        rows.append([*subject, source, each.problem or ours, each.expected.note or "-"])
    if rows:
        yield Grid("Figures of the source", [*headings, "source", "measured", "note"], rows, left=(0, 1, 2, 5))
