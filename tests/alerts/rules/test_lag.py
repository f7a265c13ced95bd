"""Rules read what other groups, and in VictoriaMetrics all other rules, have recorded in the interval before."""

import pytest

from alerts.plan import Plan
from alerts.rule_file import rules
from alerts.rules.groups import Recording
from compose.backfill.rule_order import TimedRule
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import STEP_TIME
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.alerts.incident_series import BEFORE, firing_alerts
from tests.support.promtool import Late, Pace, Promtool


@pytest.mark.slow
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
        ("causes", "slow-causes"),
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
        ("wedged", "liveness"),
    }


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


@pytest.mark.long
@pytest.mark.parametrize(
    "late,lags",
    [
        # in the smallest parts, a value passes three groups
        pytest.param("groups", 4, id="Prometheus"),
        pytest.param("rules", 5, id="VictoriaMetrics"),
    ],
)
def test_rules_that_read_the_last_evaluation_of_others_delay_alerts_and_raise_no_others(
    promtool: Promtool, pace: Pace, late: Late, lags: int
) -> None:
    """An alert that fires at so many evaluations fires late; an alert that fires late fires at one of them in order."""
    in_order, delayed = (firing_alerts(promtool, pace.spec, late=each) for each in (None, late))
    for now in range(lags - 1, len(delayed)):
        last = in_order[now - lags + 1 : now + 1]
        assert frozenset.intersection(*last) - delayed[now] == set(), f"missing at evaluation {now}"
        assert delayed[now] - frozenset[frozenset[tuple[str, str]]]().union(*last) == set(), f"only late, at {now}"
    assert {(dict(each)["cluster"], dict(each)["alertname"]) for every in in_order for each in every} >= RAISED
    begun = round(pace.seconds(BEFORE) / Plan.of(pace.spec).direct_interval)
    assert in_order[begun] == set()
    assert {dict(each)["severity"] for each in in_order[-1] | delayed[-1]} == {"ticket"}
