"""Groups that read the series of other groups: Prometheus evaluates groups independently, at most one interval late."""

import re
from dataclasses import replace

import pytest

from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit
from alerts.group_limit import FEWEST
from alerts.recording_windows import direct_interval
from alerts.rule_file import rules
from alerts.rule_groups import Recording
from compose.backfill.rule_order import TimedRule
from exporters.signals import STEP_TIME, Outcome
from exporters.slos import SHIPPED, SloFile, load
from tests.support.promtool import Case, Pace, Promtool, constant, counter


def test_these_groups_read_the_series_of_others() -> None:
    groups = rules(load(SHIPPED))
    recorded = [(group.name, rule) for group in groups for rule in group.rules if isinstance(rule, Recording)]
    pairs = {
        (reader.name.removeprefix("vllm-slo-"), writer.removeprefix("vllm-slo-"))
        for reader in groups
        for rule in reader.rules
        for writer, other in recorded
        if writer != reader.name and TimedRule(Recording(STEP_TIME, rule.expr), 0, 0).reads(TimedRule(other, 0, 0))
    }
    assert pairs == {
        ("baselines", "steps"),
        ("baselines", "work"),
        ("burn", "constants"),
        ("burn", "liveness"),
        ("burn", "summed-windows"),
        ("causes", "liveness"),
        ("causes", "slow-causes"),
        ("liveness", "causes"),
        ("replicas", "liveness"),
        ("slow-causes", "baselines"),
        ("slow-causes", "burn"),
        ("slow-causes", "causes"),
        ("slow-causes", "constants"),
        ("slow-causes", "liveness"),
        ("slow-causes", "summed-windows"),
        ("slow-causes", "work"),
        ("summed-windows", "baselines"),
        ("summed-windows", "constants"),
        ("summed-windows", "steps"),
    }


BEFORE, DURING, AFTER = 10, 8, 8
"""Steps without a fault, with the fault, and after it."""
LAGS = 4
"""Evaluations: in the smallest parts, a value passes three groups that each read the last evaluation."""
FIRING = '{__name__="ALERTS",alertstate="firing",severity!="none"}'
"""Without the name before the braces, which would omit rules that no alert reads, and so split groups elsewhere."""
RAISED = {
    ("all tenants", AlertName.BURN),
    ("one tenant", AlertName.TENANT_BURN),
    ("restart", AlertName.BURN),
    ("engine down", AlertName.ENGINE_DOWN),
    ("one replica of three", AlertName.OUTLIER),
    ("thin classes", AlertName.BURN),
    ("client errors", AlertName.CLIENT_ERRORS),
    ("traffic lost", AlertName.TRAFFIC_LOST),
}


def target(instance: str) -> str:
    return f'job="vllm-slo-sidecar",instance="{instance}"'


def running(pace: Pace, instance: str = "s:1", engine_up: str = "") -> dict[str, str]:
    scrapes = pace.scrapes(BEFORE + DURING + AFTER)
    here, always = target(instance), constant(1, scrapes)
    return {
        f"up{{{here}}}": always,
        f'llm_engine_up{{{here},engine="e"}}': engine_up or always,
        f'llm_engine_requests_running{{{here},engine="e",model="org/m"}}': always,
        f'llm_requests_in_flight{{{here},model="org/m",class="siso",phase="streaming"}}': constant(0, scrapes),
    }


def starting(pace: Pace, cold_starts: float) -> str:
    """Down from the start of the fault, for this many times the longest cold start."""
    gone = round(cold_starts * cold_start_limit(pace.spec) / pace.spec.scrape_interval)
    return (
        f"{constant(1, pace.scrapes(BEFORE) - 1)} {constant(0, gone - 1)} {constant(1, pace.scrapes(DURING + AFTER))}"
    )


def judged(pace: Pace, instance: str = "s:1", *, small: float, big: float) -> dict[str, str]:
    """Requests of two tenants at one sidecar, with the shares of bad ones during the fault."""
    series: dict[str, str] = {}
    for slo in ("ttft", "availability"):
        for tenant, rate, share in (("small", 1.0, small), ("big", 20.0, big)):
            phases = (BEFORE, rate, 0.0), (DURING, rate, share), (AFTER, rate, 0.0)
            series |= pace.slo_events(*phases, slo=slo, tenant=tenant, more=f',instance="{instance}"')
    return series


def thin(pace: Pace) -> dict[str, str]:
    """One request a step for each class, so no class has enough events for a page of its own."""
    good, bad = [(0.0, pace.scrapes(1))], [(0.0, pace.scrapes(1) - 1), (1.0, 1)]
    series: dict[str, str] = {}
    for name in ("siso", "silo", "liso", "lilo"):
        labels = f'{target("s:1")},model="org/m",class="{name}",slo="availability",tenant="other"'
        series[f"llm_slo_events_total{{{labels}}}"] = counter(*bad * (BEFORE + DURING + AFTER))
        series[f"llm_slo_bad_events_total{{{labels}}}"] = counter(*good * BEFORE, *bad * DURING, *good * AFTER)
    return series


def ended(pace: Pace, outcome: Outcome, usual: float, during: float) -> dict[str, str]:
    """Requests per scrape that end so."""
    runs = [(rate, pace.scrapes(steps)) for rate, steps in ((usual, BEFORE), (during, DURING), (usual, AFTER))]
    return {f'llm_requests_total{{{target("s:1")},model="org/m",class="siso",outcome="{outcome}"}}': counter(*runs)}


def incidents(pace: Pace) -> dict[str, dict[str, str]]:
    """The series of each cluster."""
    all_bad = judged(pace, small=1, big=1)
    replicas: dict[str, str] = {}
    for instance, share in (("s:1", 1.0), ("s:2", 0.0), ("s:3", 0.0)):
        replicas |= running(pace, instance) | judged(pace, instance, small=share, big=share)
    return {
        "all tenants": running(pace) | all_bad,
        "one tenant": running(pace) | judged(pace, small=1, big=0),
        "restart": running(pace, engine_up=starting(pace, 0.8)) | all_bad,
        "engine down": running(pace, engine_up=starting(pace, 4)) | all_bad,
        "one replica of three": replicas,
        "thin classes": running(pace) | thin(pace),
        "client errors": running(pace) | ended(pace, Outcome.OK, 20, 2) | ended(pace, Outcome.CLIENT_ERROR, 0, 20),
        "traffic lost": running(pace) | ended(pace, Outcome.OK, 20, 0),
    }


def verdicts(promtool: Promtool, spec: SloFile, *, in_order: bool) -> list[set[str]]:
    """The firing alerts at each evaluation. Promtool prints them, as the sample of its number is not expected."""
    pace, interval = Pace(spec), direct_interval(spec)
    series = {
        name.replace("{", f'{{cluster="{cluster}",', 1): values
        for cluster, each in incidents(pace).items()
        for name, values in each.items()
    }
    case = Case(spec, series, interval, sidecar_is_up=False)
    for number in range(round(pace.seconds(BEFORE + DURING + AFTER) / interval)):
        case.expect(number * interval, f"{FIRING} or vector({number})", {})
    with pytest.raises(AssertionError) as failure:
        Promtool(promtool.programs[:1], promtool.folder).test([case], most=FEWEST, in_order=in_order, often=True)
    _, *answers = str(failure.value).split("expr:")
    assert len(answers) == len(case.queries)
    return [{*re.findall(r'(\{__name__="ALERTS".*?\}) 1', answer)} for answer in answers]


def label(name: str, sample: str) -> str:
    (value,) = re.findall(rf'\b{name}="([^"]*)"', sample)
    return str(value)


def test_groups_that_read_the_last_evaluation_of_others_delay_alerts_and_raise_no_others(
    promtool: Promtool, spec: SloFile
) -> None:
    """An alert that fires at four evaluations fires late; an alert that fires late fires at one of four in order."""
    fleet = replace(spec, group_by=("cluster",), alerting=replace(spec.alerting, per_tenant=True))
    in_order, late = (verdicts(promtool, fleet, in_order=each) for each in (True, False))
    for now in range(LAGS - 1, len(late)):
        last = in_order[now - LAGS + 1 : now + 1]
        assert set.intersection(*last) - late[now] == set(), f"missing at evaluation {now}"
        assert late[now] - set[str]().union(*last) == set(), f"only late, at evaluation {now}"
    assert {(label("cluster", each), label("alertname", each)) for every in in_order for each in every} >= RAISED
    begun = round(Pace(spec).seconds(BEFORE) / direct_interval(spec))
    assert in_order[begun] == set()
    assert {label("severity", each) for each in in_order[-1] | late[-1]} == {"ticket"}
