"""Series of incidents, one a cluster, and the alerts that fire at each evaluation of the rules."""

import re
from collections.abc import Collection
from dataclasses import replace

from alerts.group_limit import FEWEST
from alerts.plan import Plan
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.slo_file import SloFile
from tests.support.promtool import Case, Late, Pace, Promtool, constant, counter

BEFORE, DURING, AFTER = 10, 8, 8
"""Steps without a fault, with the fault, and after it."""
FIRING = '{__name__="ALERTS",alertstate="firing",severity!="none"}'
"""Without the name before the braces, which would omit rules that no alert reads, and so split groups elsewhere."""


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
    gone = round(cold_starts * Plan.of(pace.spec).warm_up / pace.spec.scrape_interval)
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


Alerts = frozenset[frozenset[tuple[str, str]]]
"""The labels of alerts."""


def firing_alerts(promtool: Promtool, file: SloFile, *, late: Late = None, names: Collection[str] = ()) -> list[Alerts]:
    """Those of all or some incidents at each evaluation; promtool prints them, as no sample is expected."""
    spec = replace(file, group_by=("cluster",), alerting=replace(file.alerting, per_tenant=True))
    pace, interval = Pace(spec), Plan.of(spec).direct_interval
    series = {
        name.replace("{", f'{{cluster="{cluster}",', 1): values
        for cluster, each in incidents(pace).items()
        if not names or cluster in names
        for name, values in each.items()
    }
    case = Case(spec, series, interval, sidecar_is_up=False)
    for number in range(round(pace.seconds(BEFORE + DURING + AFTER) / interval)):
        case.expect(number * interval, f"{FIRING} or vector({number})", {})
    results = promtool.printed(case, most=FEWEST, late=late, often=True)
    return [frozenset(map(_labels, re.findall(r'\{__name__="ALERTS", (.*?)\} 1', result))) for result in results]


def _labels(sample: str) -> frozenset[tuple[str, str]]:
    return frozenset(re.findall(r'(\w+)="([^"]*)"', sample)) - {("alertstate", "firing")}
