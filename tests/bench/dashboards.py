"""`python -m tests.bench.dashboards`: measures the cost of loading each dashboard on a real Prometheus.

Blocks contain 28 days of 20 engines x 8 classes for all series that a dashboard queries: recorded series every 5
minutes, scraped series every 15 s in the default time range of the dashboards and twice a day before it. Each query
runs alone, over the default time range of its dashboard.
"""

import argparse
import json
import re
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from alerts.recording_windows import windows
from dashboards.audit import Finding, audit
from dashboards.command import GENERATED
from dashboards.dashboard_reader import Check, QueryType, TimeRange, checks_of
from exporters.prometheus_api import Prometheus
from exporters.quantities import parse_duration, spell_duration
from exporters.signals import FIRING, LOAD_SIGNALS, OTHER, RECORDED, SIGNALS, SIZES, Label, Outcome, Phase
from exporters.slos import SHIPPED, load
from tests.support.dashboard_queries import SERIES, series_in
from tests.support.prometheus_blocks import DAY, HOUR, SCRAPE, STEP, prometheus_over, samples, tools_in

PORT = 19392
PAST = 28 * DAY
MOST = 3.0
"""Limit for the CPU seconds of Prometheus for loading a dashboard."""


def values(engines: int, classes: int) -> dict[str, tuple[str, ...]]:
    """The values of each label; other labels have three values."""
    recorded_windows = windows(load(SHIPPED))
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
        Label.COMPLETION_SIZE: SIZES,
        Label.ENGINE_TYPE: ("vllm",),
        Label.VERSION: ("0.25.1",),
        Label.SETTING: tuple(f"s{n}" for n in range(12)),
        Label.VALUE: ("1",),
        Label.OLD: ("0",),
        Label.NEW: ("1",),
        Label.RUN: ("1",),
        Label.SCENARIO: ("mixed",),
        Label.SEVERITY: ("page",),
        "alertname": ("LLMErrorBudgetBurn",),
        "alertstate": ("firing",),
        Label.INSTANCE: tuple(f"s{n}:9464" for n in range(engines)),
        "job": ("vllm-slo-sidecar",),
    }


def lines(ages: Mapping[str, int], engines: int, classes: int, now: int) -> Iterator[str]:
    """OpenMetrics text of series, by the age of their oldest sample in seconds; each engine has its own sidecar."""
    random, value_of = Random(1), values(engines, classes)  # noqa: S311 - reproducible
    recorded = {each.name for each in RECORDED}
    from_one = {FIRING, *(name for each in LOAD_SIGNALS for name in (each.name, each.bucket))}
    buckets = {each.bucket: (*map(str, each.bounds), "+Inf") for each in SIGNALS}
    for name, back in sorted(ages.items()):
        # The first point of a range query looks back, too.
        since = now - back - STEP
        scraped = (*range(now - PAST, since, DAY // 2), *range(since, now + 1, SCRAPE))
        times = range(now - PAST, now + 1, STEP) if name in recorded else scraped
        bounds = buckets.get(name, ("",))
        choices = {
            label: bounds if label == "le" else value_of.get(label, tuple(f"{label}{n}" for n in range(3)))
            for label in sorted(SERIES[name].labels - {Label.ENGINE})
        }
        if name in from_one:
            choices[Label.INSTANCE] = choices[Label.INSTANCE][:1]
        for chosen in product(*choices.values()):
            labels = dict(zip(choices, chosen, strict=True))
            if Label.ENGINE in SERIES[name].labels:
                labels[Label.ENGINE] = f"http://{labels[Label.INSTANCE]}"
            series = name + "{" + ",".join(f'{label}="{value}"' for label, value in labels.items()) + "}"
            if name.endswith("_timestamp_seconds") or "_start_time_" in name:
                yield "".join(f"{series} {now - HOUR // 2} {when}\n" for when in times)
            else:
                each = 1.0 + bounds.index(labels.get("le", ""))
                yield samples(series, times, each, random, counter=SERIES[name].is_counter)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=20)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3, help="rounds; the fastest run of each query counts")
    parser.add_argument("--slowest", type=int, default=3, help="number of slowest queries to print for each dashboard")
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: the installed ones)")
    options = parser.parse_args()
    dashboards = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))]
    checks = {each["title"]: (list(checks_of(each)), _range(each)) for each in dashboards}
    now = int(time.time()) // SCRAPE * SCRAPE
    ages: dict[str, int] = {}
    for queries, seconds in checks.values():
        for check in queries:
            back = seconds if check.query_type is QueryType.RANGE or "$__range" in check.expression else HOUR
            ages |= {name: max(back, ages.get(name, 0)) for name in series_in(check.expression) if name in SERIES}
    took: dict[str, list[Finding]] = {}
    worked: dict[str, float] = {}
    with prometheus_over(lines(ages, options.engines, options.classes, now), PORT, tools_in(options.tools)) as url:
        for title, (queries, seconds) in checks.items():
            before = _cpu_seconds(url)
            took[title] = fastest(queries, Prometheus(url), TimeRange(now - seconds, now, SCRAPE), options.rounds)
            worked[title] = (_cpu_seconds(url) - before) / options.rounds
    print(f"{options.engines} engines x {options.classes} classes, {PAST // DAY} days")
    for title, findings in took.items():
        print(f"{title:16} {len(findings):3} queries {_sum(findings):6.2f} s, {worked[title]:5.2f} CPU s")
        for each in sorted(findings, key=lambda each: -each.measurement.seconds)[: options.slowest]:
            outcome = each.measurement.error or f"{each.measurement.series} series"
            print(f"  {each.measurement.seconds:6.2f} s {each.check.panel} {each.check.ref}, {outcome}")
    late = [title for title, seconds in worked.items() if seconds > MOST]
    sys.exit(f"over {MOST:g} s: {', '.join(late)}" if late else 0)


def fastest(checks: Sequence[Check], prometheus: Prometheus, span: TimeRange, rounds: int) -> list[Finding]:
    """The fastest run of each query, which other processes affect least."""
    every = zip(*(audit(checks, prometheus, span, concurrency=1) for _ in range(rounds)), strict=True)
    return [min(findings, key=lambda each: each.measurement.seconds) for findings in every]


def _sum(findings: Iterable[Finding]) -> float:
    return sum(each.measurement.seconds for each in findings)


def _cpu_seconds(url: str) -> float:
    """CPU seconds of Prometheus, by its own counter."""
    with urllib.request.urlopen(f"{url}/metrics") as response:
        counted = re.search(r"^process_cpu_seconds_total (\S+)$", response.read().decode(), re.MULTILINE)
    assert counted
    return float(counted[1])


def _range(dashboard: Mapping[str, Any]) -> int:
    """The default time range of the dashboard in seconds."""
    return round(parse_duration(dashboard["time"]["from"].removeprefix("now-")))


if __name__ == "__main__":
    main()
