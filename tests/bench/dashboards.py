"""`python -m tests.bench.dashboards`: measures the cost of loading each dashboard on a real Prometheus.

Blocks contain 28 days of 20 engines x 8 classes for all series that a dashboard queries: recorded series every 5
minutes, scraped series every 15 s in the default time range of the dashboards and twice a day before it. Each query
runs alone, over the default time range of its dashboard or over `--range`. `--against` measures the dashboards of an
older revision in turn with ours, on the series that its exporters and rules write.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from random import Random

from alerts.plan import Plan
from dashboards.live.audit import Finding, audit
from dashboards.live.reader import TimeRange
from exporters.analysis.prometheus_api import Prometheus
from exporters.text.units import parse_duration, spell_duration
from exporters.vocabulary.signals import FIRING, LENGTHS, LOAD_SIGNALS, OTHER, SIZES, Label, Outcome, Phase
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.bench.first_load import FirstLoad, Revision, read_revision, tree_of
from tests.bench.machine import page_sum
from tests.support.prometheus_blocks import DAY, HOUR, SCRAPE, STEP, prometheus_over, samples, tools_in
from tests.support.promtool import ROOT

PORT = 19392
PAST = 28 * DAY
MOST, LIMITS = 3.0, {"SLO overview": 2.0}
"""Limits for the CPU seconds of Prometheus for loading a dashboard, and the first screen."""


def values(engines: int, classes: int) -> dict[str, tuple[str, ...]]:
    """The values of each label; other labels have three values."""
    recorded_windows = Plan.of(load(SHIPPED))
    lengths = {*recorded_windows.direct, *recorded_windows.of_steps, *recorded_windows.of_dozens}
    return {
        Label.MODEL: ("org/m",),
        Label.CLASS: tuple(f"c{n}" for n in range(classes)),
        Label.TENANT: (OTHER,),
        Label.STREAM: ("true", "false"),
        Label.OUTCOME: tuple(Outcome),
        Label.PHASE: tuple(Phase),
        Label.SLO: ("ttft", "availability"),
        Label.RANK: ("0",),
        Label.WINDOW: tuple(map(spell_duration, sorted(lengths))),
        Label.PROMPT_SIZE: SIZES,
        Label.PROMPT_LENGTH: LENGTHS,
        Label.COMPLETION_SIZE: SIZES,
        Label.ENGINE_TYPE: ("vllm",),
        Label.VERSION: ("0.25.1",),
        Label.SETTING: tuple(f"s{n}" for n in range(12)),
        Label.VALUE: ("1",),
        Label.OLD: ("0",),
        Label.NEW: ("1",),
        Label.RUN: ("1",),
        Label.SCENARIO: ("mixed",),
        Label.EXPERIMENT: ("seed-000",),
        Label.CONFIGURATION: ("prefix",),
        Label.SEVERITY: ("page",),
        "alertname": ("LLMErrorBudgetBurn",),
        "alertstate": ("firing",),
        Label.INSTANCE: tuple(f"s{n}:9464" for n in range(engines)),
        "job": ("vllm-slo-sidecar",),
    }


def lines(revision: Revision, engines: int, classes: int, now: int) -> Iterator[str]:
    """OpenMetrics text of every series that the dashboards read; each engine has its own sidecar."""
    random, value_of = Random(1), values(engines, classes)  # noqa: S311 - reproducible
    for name, back in sorted(revision.ages(HOUR).items()):
        # The first point of a range query looks back, too.
        since = now - back - STEP
        scraped = (*range(now - PAST, since, DAY // 2), *range(since, now + 1, SCRAPE))
        times = range(now - PAST, now + 1, STEP) if name in revision.recorded else scraped
        bounds = revision.bounds.get(name, ("",))
        for labels in label_sets(revision, name, value_of):
            series = name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
            if name.endswith("_timestamp_seconds") or "_start_time_" in name:
                yield "".join(f"{series} {now - HOUR // 2} {when}\n" for when in times)
            else:
                each = 1.0 + bounds.index(labels.get("le", ""))
                yield samples(series, times, each, random, counter=revision.series[name].is_counter)


def label_sets(revision: Revision, name: str, value_of: Mapping[str, tuple[str, ...]]) -> Iterator[dict[str, str]]:
    """The labels of each series of this name."""
    labels, bounds = revision.series[name].labels, revision.bounds.get(name, ("",))
    choices = {
        label: bounds if label == "le" else value_of.get(label, tuple(f"{label}{n}" for n in range(3)))
        for label in sorted(labels - {Label.ENGINE})
    }
    if {Label.INSTANCE, Label.WINDOW} <= choices.keys():
        # recorded in one window only
        choices[Label.WINDOW] = choices[Label.WINDOW][:1]
    if name in {FIRING, *(series for each in LOAD_SIGNALS for series in (each.name, each.bucket))}:
        choices[Label.INSTANCE] = choices[Label.INSTANCE][:1]
    for chosen in product(*choices.values()):
        each = dict(zip(choices, chosen, strict=True))
        yield each | ({Label.ENGINE: f"http://{each[Label.INSTANCE]}"} if Label.ENGINE in labels else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=20)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the fastest run of each query counts")
    parser.add_argument("--slowest", type=int, default=3, help="number of slowest panels to print for each dashboard")
    parser.add_argument("--dashboard", metavar="TITLE", help="measure only this one")
    parser.add_argument("--range", metavar="1d", help="time range of all dashboards (default: that of each)")
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: the installed ones)")
    parser.add_argument("--against", metavar="REVISION", help="also measure the dashboards of a revision")
    parser.add_argument(
        "--all-rows", action="store_true", help="also load the collapsed rows, as after a click on each"
    )
    options = parser.parse_args()
    now = int(time.time()) // SCRAPE * SCRAPE
    tools, classes = tools_in(options.tools), values(options.engines, options.classes)[Label.CLASS]
    with ExitStack() as stack:
        trees = {"": ROOT}
        if options.against:
            trees = {"before": stack.enter_context(tree_of(options.against)), **trees}
        measured = []
        for port, (name, tree) in enumerate(trees.items(), PORT):
            repeated = {"class": classes, "active_class": classes}
            revision = read_revision(tree, repeated, all_rows=options.all_rows)
            if options.dashboard:
                if options.dashboard not in revision.loads:
                    parser.error(f"--dashboard: {options.dashboard!r} is not one of {', '.join(revision.loads)}")
                revision = replace(revision, loads={options.dashboard: revision.loads[options.dashboard]})
            if options.range:
                seconds = round(parse_duration(options.range))
                loads = {title: replace(each, seconds=seconds) for title, each in revision.loads.items()}
                revision = replace(revision, loads=loads)
            text = lines(revision, options.engines, options.classes, now)
            url = stack.enter_context(prometheus_over(text, port, tools))
            measured.append(Measured(name, url, revision.loads))
        for _ in range(options.rounds):
            # in turn, as other processes slow down the machine for a while
            for title in measured[-1].loads:
                for each in measured:
                    each.open(title, now)
    print(f"{options.engines} engines x {options.classes} classes, {PAST // DAY} days")
    for each in measured:
        each.report(options.slowest)
    *before, ours = measured
    for each in before if options.against else ():
        print(f"{ours.seconds / each.seconds:.2f} of the CPU time before")
    late = [title for title, seconds in ours.worked.items() if seconds > LIMITS.get(title, MOST)]
    is_first_load = not options.all_rows and not options.range
    sys.exit(f"over its limit: {', '.join(late)}" if late and is_first_load else 0)


@dataclass(slots=True)
class Measured:
    """The dashboards of a revision on a server of their own, and the least cost of each so far."""

    name: str
    url: str
    loads: Mapping[str, FirstLoad]
    found: dict[str, list[Finding]] = field(default_factory=dict)
    worked: dict[str, float] = field(default_factory=dict)
    size: float = 0.0

    @property
    def seconds(self) -> float:
        return sum(self.worked.values())

    def open(self, title: str, now: int) -> None:
        """Run the queries of a dashboard, if this revision has it."""
        if load := self.loads.get(title):
            span, before = TimeRange(now - load.seconds, now, SCRAPE), _cpu_seconds(self.url)
            found = audit(load.checks, Prometheus(self.url), span, concurrency=1)
            worked = _cpu_seconds(self.url) - before
            self.size = page_sum(self.url, r"(?:prometheus_tsdb_storage_blocks_bytes|vm_data_size_bytes\{.*\})")
            self.worked[title] = min(worked, self.worked.get(title, worked))
            every = zip(found, self.found.get(title, found), strict=True)
            self.found[title] = [min(pair, key=lambda each: each.measurement.seconds) for pair in every]

    def report(self, slowest: int) -> None:
        """A line for each dashboard, and rows of a table for its slowest panels."""
        for title, findings in self.found.items():
            took = sum(each.measurement.seconds for each in findings)
            drawn = sum(bool(each.measurement.series) for each in findings)
            print(
                f"{self.name} {title:16} {len(findings):3} queries, {drawn:3} with series, {took:6.2f} s, "
                f"{self.worked[title]:5.2f} CPU s"
            )
            panels: dict[str, list[Finding]] = {}
            for each in findings:
                panels.setdefault(each.check.panel, []).append(each)
            for panel, queries in sorted(panels.items(), key=lambda item: -_seconds(item[1]))[:slowest]:
                failed = " ".join(each.measurement.error for each in queries if each.measurement.error)
                series = sum(each.measurement.series for each in queries)
                print(f"| {title} | {panel} | {len(queries)} | {series} {failed}| {1000 * _seconds(queries):.0f} ms |")
        print(f"{self.name} all {self.seconds:.2f} CPU s, {self.size / 1e6:.0f} MB on disk")


def _seconds(queries: list[Finding]) -> float:
    return sum(each.measurement.seconds for each in queries)


def _cpu_seconds(url: str) -> float:
    """CPU seconds of the server, by its own counter."""
    return page_sum(url, "process_cpu_seconds_total")


if __name__ == "__main__":
    main()
