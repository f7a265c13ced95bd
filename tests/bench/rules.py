"""`python -m tests.bench.rules`: measures the evaluation time of the rules on a real Prometheus.

Blocks contain the samples of a month that the rules read: raw counters of one hour, 5-minute counts of a day (a week
for tokens), hourly counts of a month. All groups are evaluated at a shorter interval; the cost is scaled to their own.
`--against` measures the rules of an older revision or of a rule file in the same Prometheus, in turn with ours.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

from alerts.rule_file import render
from exporters.text.units import parse_duration
from exporters.vocabulary.slo_file import SloFile, loads
from tests.support.prometheus_blocks import DAY, HOUR, SCRAPE, STEP, prometheus_over, samples, tools_in
from tests.support.promtool import ROOT

PORT = 19391
EVALUATED = "10s"
"""The interval of all groups."""

NAMES_BEFORE = {
    "llm_slo:events:increase": "llm_slo:events_in_window",
    "llm_slo:bad_events:increase": "llm_slo:bad_events_in_window",
    "llm_goodput:events:increase": "llm_goodput:events_in_window",
    "llm_goodput:requests:increase": "llm_goodput:requests_in_window",
    "llm_class:completion_tokens:increase": "llm_class:completion_tokens_in_window",
}
"""The names of recorded series in 0.2.0, which the rules of older revisions read."""


def described(classes: int) -> str:
    """An SLO file."""
    names = [f"c{n}" for n in range(classes)]
    every = ", ".join(names)
    return (
        "version: 1\nperiod: 30d\nclasses:\n"
        + "".join(f"  - {{name: {name}}}\n" for name in names)
        + f"slos:\n  - {{name: ttft, classes: [{every}], signal: ttft, threshold: 5s, objective: 95%}}\n"
        + f"  - {{name: availability, classes: [{every}], signal: availability, objective: 99.5%}}\n"
    )


def lines(spec: SloFile, models: int, now: int, sidecars: int = 1, tenants: int = 1) -> Iterator[str]:
    """OpenMetrics text of every series that the rules read."""
    random = Random(1)  # noqa: S311 - reproducible

    def back(series: str, past: int, every: int, *, counter: bool) -> str:
        """About three events per scrape, 0.2 % of them bad and 1 % of each outcome but ok: no budget burns."""
        rare = "outcome=" in series and 'outcome="ok"' not in series
        each = (0.006 if "bad" in series else 0.03 if rare else 3.0) * every / SCRAPE
        return samples(series, range(now - past, now + 1, every), each, random, counter=counter)

    for model in range(models):
        for name in (each.name for each in spec.classes):
            labels = f'model="org/m{model}",class="{name}"'
            kinds_of_raw = [
                f'{labels},tenant="t{tenant}",instance="s{sidecar}:9464",job="vllm-slo-sidecar"'
                for sidecar in range(model, max(sidecars, models), models)  # each serves one model
                for tenant in range(tenants)
            ]
            kinds = [
                (f"llm_slo:{kind}:increase", f"llm_slo_{kind}_total", f',slo="{slo.name}"')
                for slo in spec.slos
                for kind in ("events", "bad_events")
            ] + [(f"llm_goodput:{kind}:increase", f"llm_goodput_{kind}_total", "") for kind in ("events", "requests")]
            for recorded, counted, slo in kinds:
                yield back(f'{recorded}{{{labels}{slo},window="step"}}', DAY, STEP, counter=False)
                yield back(f'{recorded}{{{labels}{slo},window="12steps"}}', 30 * DAY, 12 * STEP, counter=False)
                yield back(f'{recorded}{{{labels}{slo},window="open"}}', HOUR, STEP, counter=False)
                for raw in kinds_of_raw:
                    yield back(f"{counted}{{{raw}{slo}}}", HOUR, SCRAPE, counter=True)
            yield back(f'llm_class:completion_tokens:increase{{{labels},window="step"}}', 7 * DAY, STEP, counter=False)
            for raw in kinds_of_raw:
                yield back(f"llm_completion_tokens_total{{{raw}}}", HOUR, SCRAPE, counter=True)
                for outcome in ("ok", "client_abort", "client_error", "rejected"):
                    series = f'llm_requests_total{{{raw},outcome="{outcome}",stream="true",route="chat_completions"}}'
                    yield back(series, HOUR // 3, SCRAPE, counter=True)


def with_names_before(text: Iterator[str]) -> Iterator[str]:
    """Recorded series under both names."""
    for each in text:
        yield each
        name = each.partition("{")[0]
        if name in NAMES_BEFORE:
            yield each.replace(name, NAMES_BEFORE[name])


def rendered_by(revision: str, slos: str) -> str:
    """The rule file of a git revision, or of a file."""
    if Path(revision).is_file():
        return Path(revision).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        tree, file = Path(name, "tree"), Path(name, "slos.yaml")
        file.write_text(slos, encoding="utf-8")
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=ROOT, check=True)
        try:
            command = "import sys; from compose.cli import main; sys.exit(main(sys.argv[1:]))"
            flags = ["alerts", "render", "--slos", str(file), "--out", name]
            subprocess.run([sys.executable, "-c", command, *flags], cwd=tree, check=True, stdout=subprocess.DEVNULL)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
        return Path(name, "rules.yaml").read_text(encoding="utf-8")


def prefixed(rule_file: str, prefix: str) -> list[dict[str, Any]]:
    """The groups of a rule file, under names of their own."""
    groups: list[dict[str, Any]] = yaml.safe_load(rule_file)["groups"]
    return [{**group, "name": f"{prefix}{group['name']}"} for group in groups]


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
    parser.add_argument("--sidecars", type=int, default=1, help="each serves one of the models; at least one a model")
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--tools", type=Path, help="folder of prometheus and promtool (default: the installed ones)")
    parser.add_argument("--against", metavar="REVISION|FILE", help="also measure the rules of a revision or rule file")
    options = parser.parse_args()
    text = described(options.classes)
    spec = loads(text)
    groups = prefixed(render(spec), "")
    before = prefixed(rendered_by(options.against, text), "before: ") if options.against else []
    # Prometheus evaluates groups at different times, so ours and theirs are interleaved.
    every = {group["name"]: parse_duration(group["interval"], "1m") for group in [*groups, *before]}
    lines_of_all = lines(spec, options.models, int(time.time()) // SCRAPE * SCRAPE, options.sidecars, options.tenants)
    faster = yaml.safe_dump({"groups": [{**group, "interval": EVALUATED} for group in [*groups, *before]]})
    blocks = with_names_before(lines_of_all) if before else lines_of_all
    with prometheus_over(blocks, PORT, tools_in(options.tools), faster) as url:
        took = fastest(url, rounds=8)
    print(f"{options.sidecars} sidecars x {options.tenants} tenants x {options.models} models")
    print(f"x {options.classes} classes x {len(spec.slos)} SLOs")
    minutely = {key: seconds * 60 / every[key[0]] for key, seconds in took.items()}
    for some in filter(None, (groups, before)):
        report(some, every, took, minutely)


def report(
    groups: list[dict[str, Any]],
    every: dict[str, float],
    took: dict[tuple[str, str], float],
    minutely: dict[tuple[str, str], float],
) -> None:
    """The cost of each group, of all, and of the most expensive rules."""
    names = [group["name"] for group in groups]
    for name in names:
        each = sum(seconds for (group, _), seconds in took.items() if group == name)
        print(f"{name:36} {each:7.3f} s every {every[name]:g} s = {each * 60 / every[name]:6.3f} s per minute")
    own = {key: seconds for key, seconds in minutely.items() if key[0] in names}
    print(f"{'total':36} {sum(own.values()):37.3f} s per minute")
    print("by rule")
    for (_, rule), seconds in sorted(own.items(), key=lambda each: -each[1]):
        if seconds > 0.01:
            print(f"{seconds:6.3f} s per minute {rule}")


if __name__ == "__main__":
    main()
