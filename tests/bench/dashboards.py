"""`python -m tests.bench.dashboards`: what the first load of each dashboard costs a real Prometheus.

Blocks hold what 28 days of 20 engines x 8 classes would have left, of every series that a dashboard asks: scraped ones
every 15 s as far back as a dashboard looks when it opens and twice a day before, recorded ones every 5 minutes all the
time. Each query is asked alone, over the time range that its dashboard opens with.
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
"""Seconds of the processors that the first load of a dashboard may take Prometheus."""


def values(engines: int, classes: int) -> dict[str, tuple[str, ...]]:
    """What each label may be; one of another name has three values."""
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
    """OpenMetrics text of series, by their age in seconds; each engine has its own sidecar."""
    random, value_of = Random(1), values(engines, classes)  # noqa: S311 - figures, no secrets
    recorded = {each.name for each in RECORDED}
    from_one = {FIRING, *(name for each in LOAD_SIGNALS for name in (each.name, each.bucket))}
    buckets = {each.bucket: (*map(str, each.bounds), "+Inf") for each in SIGNALS}
    for name, back in sorted(ages.items()):
        since = now - back - STEP  # the first point looks back, too
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
    parser.add_argument("--rounds", type=int, default=3, help="of which each query's quickest counts")
    parser.add_argument("--slowest", type=int, default=3, help="queries to name of each dashboard")
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: those of the machine)")
    options = parser.parse_args()
    pages = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(GENERATED.glob("*.json"))]
    checks = {page["title"]: (list(checks_of(page)), _range(page)) for page in pages}
    now = int(time.time()) // SCRAPE * SCRAPE
    ages: dict[str, int] = {}
    for page, seconds in checks.values():
        for check in page:
            back = seconds if check.query_type is QueryType.RANGE or "$__range" in check.expression else HOUR
            ages |= {name: max(back, ages.get(name, 0)) for name in series_in(check.expression) if name in SERIES}
    took: dict[str, list[Finding]] = {}
    worked: dict[str, float] = {}
    with prometheus_over(lines(ages, options.engines, options.classes, now), PORT, tools_in(options.tools)) as url:
        for title, (page, seconds) in checks.items():
            before = _processor(url)
            took[title] = quickest(page, Prometheus(url), TimeRange(now - seconds, now, SCRAPE), options.rounds)
            worked[title] = (_processor(url) - before) / options.rounds
    print(f"{options.engines} engines x {options.classes} classes, {PAST // DAY} days")
    for title, findings in took.items():
        print(f"{title:16} {len(findings):3} queries {_sum(findings):6.2f} s, of the processors {worked[title]:5.2f} s")
        for each in sorted(findings, key=lambda each: -each.measurement.seconds)[: options.slowest]:
            outcome = each.measurement.error or f"{each.measurement.series} series"
            print(f"  {each.measurement.seconds:6.2f} s {each.check.panel} {each.check.ref}, {outcome}")
    late = [title for title, seconds in worked.items() if seconds > MOST]
    sys.exit(f"over {MOST:g} s: {', '.join(late)}" if late else 0)


def quickest(checks: Sequence[Check], prometheus: Prometheus, span: TimeRange, rounds: int) -> list[Finding]:
    """Each query's quickest of so many rounds, as what else the machine does is no cost of it."""
    every = zip(*(audit(checks, prometheus, span, concurrency=1) for _ in range(rounds)), strict=True)
    return [min(findings, key=lambda each: each.measurement.seconds) for findings in every]


def _sum(findings: Iterable[Finding]) -> float:
    return sum(each.measurement.seconds for each in findings)


def _processor(url: str) -> float:
    """Seconds that Prometheus has worked, by its own count: the same however busy the machine is otherwise."""
    with urllib.request.urlopen(f"{url}/metrics") as page:
        counted = re.search(r"^process_cpu_seconds_total (\S+)$", page.read().decode(), re.MULTILINE)
    assert counted
    return float(counted[1])


def _range(page: Mapping[str, Any]) -> int:
    """Seconds of `now-1h`, with which the dashboard opens."""
    return round(parse_duration(page["time"]["from"].removeprefix("now-")))


if __name__ == "__main__":
    main()
