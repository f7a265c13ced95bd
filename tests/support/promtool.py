"""Runs `promtool` on rendered rules: a case has input series and expected results by time."""

import functools
import json
import os
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import pytest

from alerts.group_limit import limited
from alerts.plan import STEP, Plan
from alerts.prices import Prices
from alerts.promql.build import on
from alerts.promql.expression import Variable
from alerts.rule_file import rules
from alerts.rules.groups import Alert, Recording, RuleGroup, document
from exporters.text.units import number, spell_duration
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import SloFile
from tests.support.engine_states import with_states
from tests.support.promql_tree import Selected, selected

_ENVIRONMENT = {**os.environ, "GOGC": "400"}
"""Less frequent garbage collection saves a fifth of promtool's time."""

ROOT = Path(__file__).resolve().parents[2]
Late = Literal["groups", "rules"] | None
"""What reads the last evaluation: the groups of Prometheus, or the rules of VictoriaMetrics, also within a group."""

UP = 'up{job="vllm-slo-sidecar",instance="s:1"}'


def counter(*runs: tuple[float, int], start: float = 0) -> str:
    """A counter in the notation of promtool; a run is the growth per scrape and the number of scrapes."""
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
    """Scraped series and expected results."""

    spec: SloFile
    series: Mapping[str, str]
    interval: float
    """Seconds between evaluations of all groups; one step if sums over steps matter."""
    sidecar_is_up: bool = True
    alerts: list[dict[str, object]] = field(default_factory=list)
    queries: list[dict[str, object]] = field(default_factory=list)
    until: float = 0.0
    """The time of the last expectation."""

    def expect(self, at: float, query: str, samples: Mapping[str, float]) -> "Case":
        """Expect that `query` returns exactly these samples, by series, at `at` seconds."""
        expected = [{"labels": labels, "value": value} for labels, value in samples.items()]
        self.until = max(self.until, at)
        self.queries.append({"expr": query, "eval_time": spell_duration(at), "exp_samples": expected})
        return self

    def expect_firing(self, at: float, alert: str, *tiers: str) -> "Case":
        """Expect that `alert` fires at `at` on exactly these tiers; without tiers, on any."""
        query = f'group by (tier) (ALERTS{{alertname="{alert}",alertstate="firing"}})'
        return self.expect(at, query, {f'{{tier="{tier}"}}' if tier else "{}": 1 for tier in tiers or ("",)})

    def expect_silent(self, at: float, alert: str = "", **labels: str) -> "Case":
        """Expect that `alert`, or without a name any alert but Watchdog, does not fire at `at` with these labels."""
        name = f'alertname="{alert}"' if alert else 'alertname!="VLLMSLOWatchdog"'
        more = "".join(f',{label}="{value}"' for label, value in labels.items())
        return self.expect(at, f'ALERTS{{{name},alertstate="firing"{more}}}', {})

    def expect_alert(self, at: float, alert: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> "Case":
        """Expect one firing alert of this name, with these labels and annotations."""
        expected = [{"exp_labels": dict(labels), "exp_annotations": dict(annotations)}]
        self.until = max(self.until, at)
        self.alerts.append({"alertname": alert, "eval_time": spell_duration(at), "exp_alerts": expected})
        return self


@dataclass(frozen=True, slots=True)
class Promtool:
    """Versions of promtool, which must all agree, and a working directory."""

    programs: tuple[Path, ...]
    folder: Path

    def check(self, rules: str) -> None:
        path = self.folder / "rules.yaml"
        path.write_text(rules)
        self._run("check", "rules", "--lint=all", "--lint-fatal", str(path))

    def test(
        self,
        cases: Iterable[Case],
        *,
        prices: Prices | None = None,
        autoscaling: bool = False,
        more: Iterable[RuleGroup] = (),
        most: int | None = None,
        late: Late = None,
        condition: str = "",
        often: bool = False,
    ) -> None:
        """Test cases that share the rules and the pace of the first case; `more` adds rules.

        `most` splits groups. With `late`, every group, or every rule, reads what those before it recorded last time.
        With `condition`, no rule is evaluated while this query returns nothing. With `often`, the cases are evaluated
        more often than once a step, but the counts of steps only once a step.
        """
        all_cases = list(cases)
        queries = [str(query["expr"]) for case in all_cases for query in case.queries]
        queries += [f'ALERTS{{alertname="{alert["alertname"]}"}}' for case in all_cases for alert in case.alerts]
        groups = _rules_read_by(queries, [*_rules(all_cases[0].spec, prices=prices, autoscaling=autoscaling), *more])
        groups = groups if most is None else [*limited(groups, most)]
        groups = [_while(condition, group) for group in groups] if condition else groups
        if often:
            once = f"vector(time()) % {number(Plan.of(all_cases[0].spec).step)} == 0"
            groups = [_while(once, group) if _counts_steps(group) else group for group in groups]
        if late == "rules":
            groups = [
                replace(each, name=f"{each.name} {n}", rules=(rule,))
                for each in groups
                for n, rule in enumerate(each.rules)
            ]
        groups = groups if late is None else groups[::-1]
        (self.folder / "rules.yaml").write_text(json.dumps(document(groups)))  # JSON is YAML, and quicker
        tests = {
            "rule_files": ["rules.yaml"],
            "evaluation_interval": spell_duration(all_cases[0].interval),
            # without this, promtool evaluates groups in any order, but ratios need their counts first
            "group_eval_order": [group.name for group in groups],
            "tests": [_plain(case) for case in all_cases],
        }
        path = self.folder / "test.yaml"
        path.write_text(json.dumps(tests))
        self._run("test", "rules", str(path))

    def printed(self, case: Case, **options: Any) -> list[str]:
        """The result of each query as the first version prints it, because the case expects another one."""
        with pytest.raises(AssertionError) as failure:
            Promtool(self.programs[:1], self.folder).test([case], **options)
        _, *results = str(failure.value).split("expr:")
        assert len(results) == len(case.queries), results
        return results

    def _run(self, *words: str) -> None:
        for program in self.programs:
            done = subprocess.run([str(program), *words], capture_output=True, text=True, check=False, env=_ENVIRONMENT)
            output = f"{program}: {done.stdout}{done.stderr}"
            assert done.returncode == 0, output
            assert "FAILED" not in output, output


_rules = functools.cache(rules)


def _rules_read_by(queries: Iterable[str], groups: Sequence[RuleGroup]) -> list[RuleGroup]:
    """The rules that these queries read, directly or through other rules: promtool takes time for each rule.

    A rule is omitted only if no selector has its name and fits its labels; selectors with name patterns fit all rules.
    """
    by_name: dict[str, list[Recording | Alert]] = defaultdict(list)
    for rule in (rule for group in groups for rule in group.rules):
        for name in ("__name__", rule.series.name if isinstance(rule, Recording) else "ALERTS"):
            by_name[name].append(rule)
    read, seen = set[int](), set[Selected]()
    todo = {selector for query in queries for selector in selected(query)}
    while todo:
        matching = {
            id(rule): rule
            for name, where in todo
            for rule in by_name.get(name, ())
            if id(rule) not in read and _fits(rule, dict(where))
        }
        seen |= todo
        read |= matching.keys()
        todo = {selector for rule in matching.values() for selector in selected(str(rule.expr))} - seen
    groups_read = [replace(group, rules=tuple(rule for rule in group.rules if id(rule) in read)) for group in groups]
    return [group for group in groups_read if group.rules]


def _counts_steps(group: RuleGroup) -> bool:
    return any(rule.labels.get(Label.WINDOW) == STEP for rule in group.rules)


def _while(condition: str, group: RuleGroup) -> RuleGroup:
    holds = Variable(f"({condition})")
    return replace(group, rules=tuple(replace(rule, expr=rule.expr.and_(holds, on())) for rule in group.rules))


def _fits(rule: Recording | Alert, where: Mapping[str, str]) -> bool:
    fixed = {"alertname": rule.name, **rule.labels} if isinstance(rule, Alert) else rule.labels
    return all(where.get(label, value) == value for label, value in fixed.items())


def _plain(case: Case) -> dict[str, object]:
    series = {
        **({UP: constant(1, round(case.until / case.spec.scrape_interval))} if case.sidecar_is_up else {}),
        **with_states(case.spec, case.series),
    }
    return {
        "interval": spell_duration(case.spec.scrape_interval),
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": case.alerts,
        "promql_expr_test": case.queries,
    }


@dataclass(frozen=True, slots=True)
class Pace:
    """Converts steps to scrapes and seconds, so that a scenario fits any period."""

    spec: SloFile

    @property
    def coarse(self) -> "Pace":
        """The same with five scrapes per step, for long scenarios that do not depend on the scrape interval."""
        return Pace(replace(self.spec, scrape_interval=self.step / 5))

    @property
    def step(self) -> float:
        return Plan.of(self.spec).step

    def scrapes(self, steps: float) -> int:
        return round(steps * self.step / self.spec.scrape_interval)

    def seconds(self, steps: float) -> float:
        return steps * self.step

    def slo_events(
        self,
        *phases: tuple[float, float, float],
        slo: str = "ttft",
        start: float = 1000.0,
        model: str = "org/m",
        tenant: str = "other",
        more: str = "",
    ) -> dict[str, str]:
        """Events and bad events of one SLO; a phase is steps, events per scrape, and the share of bad events."""
        labels = f'model="{model}",class="siso",slo="{slo}",tenant="{tenant}"{more}'
        runs: Sequence[tuple[int, float, float]] = [(self.scrapes(steps), rate, bad) for steps, rate, bad in phases]
        return {
            f"llm_slo_events_total{{{labels}}}": counter(*((rate, n) for n, rate, _ in runs), start=start),
            f"llm_slo_bad_events_total{{{labels}}}": counter(*((rate * bad, n) for n, rate, bad in runs), start=start),
        }

    def slo_event_runs(
        self, events: Sequence[tuple[float, int]], bad: Sequence[tuple[float, int]], model: str = "org/m"
    ) -> dict[str, str]:
        """Events and bad events of one SLO; a run is the growth per scrape and the number of scrapes."""
        labels = f'model="{model}",class="siso",slo="ttft",tenant="other"'
        return {
            f"llm_slo_events_total{{{labels}}}": counter(*events, start=1000),
            f"llm_slo_bad_events_total{{{labels}}}": counter(*bad, start=1000),
        }
