"""Runs `promtool` on rendered rules: a case is series in, and what must be true at which time."""

import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from alerts.rules import render, rules
from alerts.windows import windows
from exporters.slos import SloFile
from exporters.yamlfile import number, spell_duration

ROOT = Path(__file__).resolve().parents[2]
WHO = 'model="org/m",class="siso"'
UP = 'up{job="vllm-slo-sidecar",instance="s:1"}'


def counter(*runs: tuple[float, int], start: float = 0) -> str:
    """A counter in promtool's notation; a run is growth per scrape and the number of scrapes."""
    value, parts = start, [number(start)]
    for growth, scrapes in runs:
        if scrapes:
            parts.append(f"{number(value + growth)}+{number(growth)}x{scrapes - 1}")
            value += growth * scrapes
    return " ".join(parts)


def constant(value: float, scrapes: int) -> str:
    return f"{number(value)}x{scrapes}"


@dataclass(slots=True)
class Case:
    """What Prometheus scrapes, and what it must say."""

    spec: SloFile
    series: Mapping[str, str]
    every: float
    """Seconds between evaluations: promtool uses one for all groups. A step where sums over steps matter."""
    sidecar_is_up: bool = True
    alerts: list[dict[str, object]] = field(default_factory=list)
    queries: list[dict[str, object]] = field(default_factory=list)

    def gives(self, at: float, query: str, samples: Mapping[str, float]) -> "Case":
        """`query` at `at` seconds gives exactly these samples, by their series."""
        wanted = [{"labels": labels, "value": value} for labels, value in samples.items()]
        self.queries.append({"expr": query, "eval_time": spell_duration(at), "exp_samples": wanted})
        return self

    def fires(self, at: float, alert: str, *tiers: str) -> "Case":
        """`alert` fires at `at` on exactly these tiers; without tiers, it fires."""
        found = f'sum by (tier) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
        return self.gives(at, found, {f'{{tier="{tier}"}}' if tier else "{}": 1 for tier in tiers or ("",)})

    def silent(self, at: float, alert: str = "") -> "Case":
        """Neither `alert` fires at `at`, nor, without a name, any alert that reaches a person."""
        name = f'alertname="{alert}"' if alert else 'alertname!="Watchdog"'
        return self.gives(at, f'ALERTS{{{name},alertstate="firing"}}', {})

    def says(self, at: float, alert: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> "Case":
        """The one alert of this name that fires, word by word."""
        wanted = [{"exp_labels": dict(labels), "exp_annotations": dict(annotations)}]
        self.alerts.append({"alertname": alert, "eval_time": spell_duration(at), "exp_alerts": wanted})
        return self


@dataclass(frozen=True, slots=True)
class Promtool:
    """The program and a folder to work in."""

    program: Path
    folder: Path

    def check(self, rules: str) -> str:
        path = self.folder / "rules.yaml"
        path.write_text(rules)
        return self._run("check", "rules", str(path))

    def test(self, cases: Iterable[Case]) -> None:
        """All cases share the rules and the pace of the first."""
        every = list(cases)
        (self.folder / "rules.yaml").write_text(render(every[0].spec))
        document = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": spell_duration(every[0].every),
            # promtool takes groups in any order unless told; a count must be there before what is made of it
            "group_eval_order": [group.name for group in rules(every[0].spec)],
            "tests": [_plain(case) for case in every],
        }
        path = self.folder / "test.yaml"
        path.write_text(yaml.safe_dump(document))
        self._run("test", "rules", str(path))

    def _run(self, *words: str) -> str:
        done = subprocess.run([str(self.program), *words], capture_output=True, text=True, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "FAILED" not in said, said
        return said


def _plain(case: Case) -> dict[str, object]:
    series = {**({UP: constant(1, 100_000)} if case.sidecar_is_up else {}), **case.series}
    return {
        "interval": spell_duration(case.spec.scrape_interval),
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": case.alerts,
        "promql_expr_test": case.queries,
    }


@dataclass(frozen=True, slots=True)
class Pace:
    """Counts scrapes and seconds in steps, so that one story fits each period."""

    spec: SloFile

    @property
    def step(self) -> float:
        return windows(self.spec).step

    def scrapes(self, steps: float) -> int:
        return round(steps * self.step / self.spec.scrape_interval)

    def seconds(self, steps: float) -> float:
        return steps * self.step

    def judged(
        self, *story: tuple[float, float, float], slo: str = "ttft", start: float = 1000.0, more: str = ""
    ) -> dict[str, str]:
        """Events and bad events of one SLO; a chapter is steps, events per scrape, share of bad ones."""
        labels = f'{WHO},slo="{slo}",tenant="other"{more}'
        runs: Sequence[tuple[int, float, float]] = [(self.scrapes(steps), rate, bad) for steps, rate, bad in story]
        return {
            f"llm_slo_events_total{{{labels}}}": counter(*((rate, n) for n, rate, _ in runs), start=start),
            f"llm_slo_bad_events_total{{{labels}}}": counter(*((rate * bad, n) for n, rate, bad in runs), start=start),
        }

    def counted(
        self, events: Sequence[tuple[float, int]], bad: Sequence[tuple[float, int]], slo: str = "ttft"
    ) -> dict[str, str]:
        """Events and bad events of one SLO as runs of growth per scrape and scrapes."""
        labels = f'{WHO},slo="{slo}",tenant="other"'
        return {
            f"llm_slo_events_total{{{labels}}}": counter(*events, start=1000),
            f"llm_slo_bad_events_total{{{labels}}}": counter(*bad, start=1000),
        }
