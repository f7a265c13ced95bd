"""`python -m tests.bench.rules`: measures the evaluation time of the rules on a real Prometheus.

Blocks contain the samples of a month that the rules read: raw counters of one hour, 5-minute counts of a day (a week
for tokens), hourly counts of a month. All groups are evaluated at a shorter interval; the cost is scaled to their own.
"""

import argparse
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from alerts.rule_file import rules
from alerts.rule_groups import to_yaml
from exporters.slos import SloFile, loads
from tests.support.prometheus_blocks import DAY, HOUR, SCRAPE, STEP, prometheus_over, samples, tools_in

PORT = 19391


def described(classes: int) -> SloFile:
    names = [f"c{n}" for n in range(classes)]
    every = ", ".join(names)
    return loads(
        "version: 1\nperiod: 30d\nclasses:\n"
        + "".join(f"  - {{name: {name}}}\n" for name in names)
        + f"slos:\n  - {{name: ttft, classes: [{every}], signal: ttft, threshold: 5s, objective: 95%}}\n"
        + f"  - {{name: availability, classes: [{every}], signal: availability, objective: 99.5%}}\n"
    )


def lines(spec: SloFile, models: int, now: int) -> Iterator[str]:
    """OpenMetrics text of every series that the rules read."""
    random = Random(1)  # noqa: S311 - reproducible

    def back(series: str, past: int, every: int, *, counter: bool) -> str:
        """About three events per scrape, 1 % of them bad."""
        each = (0.03 if "bad" in series else 3.0) * every / SCRAPE
        return samples(series, range(now - past, now + 1, every), each, random, counter=counter)

    for model in range(models):
        for name in (each.name for each in spec.classes):
            labels = f'model="org/m{model}",class="{name}"'
            raw = f'{labels},tenant="other",instance="s:1"'
            kinds = [
                (f"llm_slo:{kind}:increase", f"llm_slo_{kind}_total", f',slo="{slo.name}"')
                for slo in spec.slos
                for kind in ("events", "bad_events")
            ] + [(f"llm_goodput:{kind}:increase", f"llm_goodput_{kind}_total", "") for kind in ("events", "requests")]
            for recorded, counted, slo in kinds:
                yield back(f'{recorded}{{{labels}{slo},window="step"}}', DAY, STEP, counter=False)
                yield back(f'{recorded}{{{labels}{slo},window="12steps"}}', 30 * DAY, 12 * STEP, counter=False)
                yield back(f'{recorded}{{{labels}{slo},window="open"}}', HOUR, STEP, counter=False)
                yield back(f"{counted}{{{raw}{slo}}}", HOUR, SCRAPE, counter=True)
            yield back(f'llm_class:completion_tokens:increase{{{labels},window="step"}}', 7 * DAY, STEP, counter=False)
            yield back(f"llm_completion_tokens_total{{{raw}}}", HOUR, SCRAPE, counter=True)
            for outcome in ("ok", "client_abort", "client_error", "rejected"):
                series = f'llm_requests_total{{{raw},outcome="{outcome}",stream="true"}}'
                yield back(series, HOUR // 3, SCRAPE, counter=True)


def fastest(url: str, rounds: int) -> dict[tuple[str, str], float]:
    """The shortest of `rounds` evaluation times in seconds, by group and rule.

    The first evaluation is ignored because it also creates the series.
    """
    evaluations: dict[str, set[str]] = {}
    took: dict[tuple[str, str], float] = {}
    while not evaluations or min(map(len, evaluations.values())) <= rounds:
        time.sleep(3)
        with urllib.request.urlopen(f"{url}/api/v1/rules") as response:
            groups = json.load(response)["data"]["groups"]
        for group in groups:
            name = group["name"]
            evaluations.setdefault(name, set()).add(group["lastEvaluation"])
            if len(evaluations[name]) < 2:
                continue
            for rule in group["rules"]:
                key, seconds = (name, f"{rule['name']} {rule.get('labels', {})}"), rule["evaluationTime"]
                took[key] = min(seconds, took.get(key, seconds))
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--classes", type=int, default=8)
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: the installed ones)")
    options = parser.parse_args()
    spec = described(options.classes)
    groups = rules(spec)
    every = {group.name: group.interval for group in groups}
    samples_text = lines(spec, options.models, int(time.time()) // SCRAPE * SCRAPE)
    faster = to_yaml(replace(group, interval=30.0) for group in groups)
    with prometheus_over(samples_text, PORT, tools_in(options.tools), faster) as url:
        took = fastest(url, rounds=4)
    print(f"{options.models} models x {options.classes} classes x {len(spec.slos)} SLOs")
    minutely = {key: seconds * 60 / every[key[0]] for key, seconds in took.items()}
    for name, interval in every.items():
        each = sum(seconds for (group, _), seconds in took.items() if group == name)
        print(f"{name:28} {each:7.3f} s every {interval:g} s = {each * 60 / interval:6.3f} s per minute")
    print(f"{'total':28} {sum(minutely.values()):37.3f} s per minute")
    print("by rule")
    for (_, rule), seconds in sorted(minutely.items(), key=lambda each: -each[1]):
        if seconds > 0.01:
            print(f"{seconds:6.3f} s per minute {rule}")


if __name__ == "__main__":
    main()
