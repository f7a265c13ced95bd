"""The rule file in VictoriaMetrics: vmalert accepts it, and raises the pages and tickets of Prometheus."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.plan import Plan
from alerts.prices import parse_prices
from alerts.rule_file import rules
from alerts.rules.groups import to_yaml
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load, loads
from tests.alerts.rules.side_by_side import SCRAPE, Labels, differences, run, scaled, stated_delay
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


@pytest.fixture(scope="module")
def spec() -> SloFile:
    return scaled(SCRAPE)


def without_severity(labels: Labels) -> Labels:
    return frozenset(each for each in labels if each[0] != "severity")


def decisive(notified: Mapping[Labels, tuple[float, float]]) -> dict[Labels, float]:
    """When each page was notified, and each ticket that did not give way to a page: a later one may not come at all."""
    pages = {without_severity(labels) for labels in notified if ("severity", "page") in labels}
    return {
        labels: fires
        for labels, (fires, _) in notified.items()
        if ("severity", "page") in labels or without_severity(labels) not in pages
    }


@pytest.mark.long
@pytest.mark.parametrize("servers", [pytest.param(1, id="one Prometheus"), pytest.param(2, id="a pair of servers")])
def test_the_same_pages_and_tickets_within_the_stated_delay(spec: SloFile, servers: int) -> None:
    """Incidents, maintenance and quiet clusters; a pair writes each sample twice, which counts once."""
    outcome, delay = run(SCRAPE, servers), stated_delay(spec)
    expected, notified = map(decisive, outcome.notified)
    assert len(expected) >= 15
    assert notified.keys() == expected.keys()
    late = {labels: notified[labels] - expected[labels] for labels in notified}
    assert {labels: seconds for labels, seconds in late.items() if not -2 * SCRAPE <= seconds <= delay} == {}
    assert not any(dict(labels)["cluster"].startswith("quiet") for labels in notified)
    assert outcome.duplicates == 0
    # vmalert's count of a step includes the scrape before it, and is scaled: an event counts as 5/6, or twice as much.
    shared = SCRAPE / Plan.of(spec).step
    assert {name: largest for name, (_, _, largest) in differences(outcome).items() if largest > shared} == {}
