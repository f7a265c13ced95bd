"""The rule file in vmalert; the module `side_by_side` runs it there and in Prometheus."""

from dataclasses import replace
from pathlib import Path

import pytest

from alerts.plan import Plan
from alerts.prices import parse_prices
from alerts.rule_file import rules
from alerts.rules.groups import to_yaml
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from tests.support.slo_files import ENGINE_ONLY
from tests.support.victoriametrics import dry_run


def every_rule() -> str:
    spec = load(SHIPPED)
    spec = replace(spec, group_by=("cluster",), alerting=replace(spec.alerting, per_tenant=True))
    return to_yaml(rules(spec, prices=parse_prices(2.0, None, "0.5/0.1/2"), autoscaling=True))


@pytest.mark.slow
@pytest.mark.parametrize("source", ["sidecar", "engine"])
def test_vmalert_accepts_every_rule(tmp_path: Path, source: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(every_rule() if source == "sidecar" else to_yaml(rules(loads(ENGINE_ONLY))))
    accepted = dry_run(path)
    assert accepted.returncode == 0, accepted.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "right,wrong",
    [
        pytest.param("last_over_time(", "last_over(", id="function"),
        pytest.param("{{ $labels.instance }}", "{{ $labels.instance }", id="template"),
    ],
)
def test_vmalert_refuses_a_wrong_expression_and_a_wrong_template(tmp_path: Path, right: str, wrong: str) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(every_rule().replace(right, wrong, 1))
    assert dry_run(path).returncode != 0


def test_the_stated_delay_of_a_period_of_30_days_is_that_of_the_documentation() -> None:
    plan = Plan.of(load(SHIPPED))
    fast = 4 * plan.direct_interval
    slow = plan.step + 2 * plan.summed_interval + 2 * plan.direct_interval
    assert (fast, slow) == (4 * 60, 15 * 60)
    text = (SHIPPED.parents[1] / "docs/fleets.md").read_text(encoding="utf-8")
    assert "up to 4 minutes" in text
    assert "up to 15 minutes" in text
