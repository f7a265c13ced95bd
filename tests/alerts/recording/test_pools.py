"""Classes with too few events for a page are judged together: an outage of all of them pages, with one alert."""

import re

import pytest

from alerts.links import Links
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from exporters.vocabulary.slo_file import SloFile, load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant, counter

BURN, LOW, POOL = "LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic", "low-traffic classes"
SHIPPED = load(ROOT / "alerts/slos.yaml")
THIN = 7.5
"""Requests an hour: 45 in the six hours of the slow page, which needs 50."""
HOUR = 12
"""Steps."""


def requests(name: str, per_hour: float, *phases: tuple[float, float], spec: SloFile = SHIPPED) -> dict[str, str]:
    """Single requests at even distances; a phase is hours and the share of bad ones, the last ones of the phase."""
    gap = round(Pace(spec).scrapes(HOUR) / per_hour)
    events: list[tuple[float, int]] = []
    bad: list[tuple[float, int]] = []
    for hours, share in phases:
        count = round(hours * per_hour)
        each = [(0.0, gap - 1), (1.0, 1)]
        events += each * count
        bad += [(0.0, gap)] * (count - round(count * share)) + each * round(count * share)
    labels = f'model="org/m",class="{name}",slo="availability",tenant="other",instance="s:1"'
    return {
        f"llm_slo_events_total{{{labels}}}": counter(*events, start=1000),
        f"llm_slo_bad_events_total{{{labels}}}": counter(*bad, start=1000),
    }


def thin(*phases: tuple[float, float], classes: tuple[str, ...] = ("siso", "silo", "liso", "lilo")) -> dict[str, str]:
    return {name: values for each in classes for name, values in requests(each, THIN, *phases).items()}


def page(by: str = "class, slo") -> str:
    return firing(BURN, by, severity="page")


ONLY_POOL = {f'{{class="{POOL}",slo="availability"}}': 1.0}


def hours(count: float) -> float:
    return Pace(SHIPPED).seconds(count * HOUR)


def test_an_outage_of_four_thin_classes_pages_once_within_two_hours_and_ends(promtool: Promtool) -> None:
    """7.5 requests an hour each: no class has enough events for a page of its own."""
    case = Case(SHIPPED, thin((8, 0), (2, 1), (3, 0)), Pace(SHIPPED).step)
    case.expect_silent(hours(8), BURN).expect(hours(8.75), page(), ONLY_POOL).expect(hours(10), page(), ONLY_POOL)
    # No ticket for what pages, nor until the page has left the short windows.
    for at in range(31, 51):
        case.expect_silent(hours(at / 4), BURN, severity="ticket").expect_silent(hours(at / 4), LOW)
    promtool.test([case.expect(hours(11), page(), {})])


def test_a_new_service_without_history_pages_within_two_hours(promtool: Promtool) -> None:
    case = Case(SHIPPED, thin((2, 1)), Pace(SHIPPED).step)
    promtool.test([case.expect(hours(2), page(), ONLY_POOL)])


def test_healthy_classes_or_a_few_bad_requests_do_not_page(promtool: Promtool) -> None:
    """Nine bad requests are fewer than `min_bad`."""
    series = thin((14, 0), classes=("siso", "silo", "liso")) | requests("lilo", THIN, (6.8, 0), (1.2, 1), (6, 0))
    case = Case(SHIPPED, series, Pace(SHIPPED).step)
    for at in range(14 * 4):
        case.expect(hours(at / 4), page(), {})
    promtool.test([case])


def test_a_class_with_enough_events_pages_on_its_own_and_is_not_in_the_pool(promtool: Promtool) -> None:
    series = thin((10, 0), classes=("silo", "liso", "lilo")) | requests("siso", 60, (8, 0), (2, 1))
    case = Case(SHIPPED, series, Pace(SHIPPED).step)
    promtool.test([case.expect(hours(10), page(), {'{class="siso",slo="availability"}': 1})])


@pytest.mark.long
def test_an_engine_that_starts_holds_back_the_page_of_the_pool_but_does_not_end_it(promtool: Promtool) -> None:
    """Twelve classes of 8 requests an hour: eleven bad ones within five minutes of a start."""
    names = [f"c{n}" for n in range(12)]
    text = (ROOT / "alerts/slos.yaml").read_text()
    text = text[: text.index("classes:")] + "classes:\n" + "".join(f"  - {{name: {name}}}\n" for name in names)
    text += (
        f"slos:\n  - {{name: availability, classes: [{', '.join(names)}], signal: availability, objective: 99.5%}}\n"
    )
    spec = loads(text + "alerting: {cold_start: 15m}\n")
    series: dict[str, str] = {}
    for name in names:
        series |= requests(name, THIN, (8, 0), (2, 1), spec=spec)
    n = Pace(spec).scrapes(HOUR)
    up = 'llm_engine_up{instance="s:1",job="vllm-slo-sidecar",engine="e:1"}'
    starts = series | {up: f"{constant(1, 8 * n)} 0x{2 * n}"}
    starts_later = series | {up: f"{constant(1, 9 * n)} 0x{n}"}
    held = Case(spec, starts, Pace(spec).step).expect(hours(8) + 900, page("class"), {})
    held.expect(hours(8) + 1500, page("class"), {f'{{class="{POOL}"}}': 1})
    promtool.test([held])
    # More often than once a step: Prometheus 3 excludes the start of a range, where the last page would be.
    not_ended = Case(spec, starts_later, Pace(spec).step / 2)
    for at in range(12):
        not_ended.expect(hours(9) + at * 300, page("class"), {f'{{class="{POOL}"}}': 1})
    promtool.test([not_ended], often=True)


def test_the_page_names_the_classes(promtool: Promtool) -> None:
    series = thin((10, 0), classes=("liso", "lilo")) | thin((8, 0), (2, 1), classes=("siso",))
    series |= thin((8.8, 0), (1.2, 1), classes=("silo",))
    case = Case(SHIPPED, series, Pace(SHIPPED).step)
    labels = {"severity": "page", "alert_source": "vllm-slo", "slo": "availability", "class": POOL, "model": "org/m"}
    annotations = {
        "summary": "low-traffic classes on m: 50 % of requests fail",
        "description": "50 % of requests of low-traffic classes to m fail (objective 99.5 %). Bad events in 6 h: "
        "siso 14, silo 8. Tier slow-page: over 3 % in 6 h. Look first at the oldest wait.",
        "runbook": "vllm-slo alerts runbook LLMErrorBudgetBurn",
    }
    promtool.test([case.expect_alert(hours(10), BURN, labels, annotations)])


def test_links_of_a_page_on_several_classes_select_no_class() -> None:
    links = Links(grafana="http://grafana.example.org", traces="http://traces.example.org")
    burns = [
        rule
        for group in rules(SHIPPED, links)
        for rule in group.rules
        if isinstance(rule, Alert) and rule.name == BURN and rule.labels["slo"] == "availability"
    ]
    one_class = f'{{{{ if ne $labels.class "{POOL}" }}}}%s{{{{ end }}}}'
    for alert in burns:
        in_traces = one_class % "class={{ $labels.class | urlquery }}&"
        in_grafana = one_class % "{{ with $labels.class }}&var-class={{ . | urlquery }}{{ end }}"
        assert alert.annotations["traces_url"].startswith(f"http://traces.example.org/?{in_traces}model=")
        url = alert.annotations["dashboard_url"]
        assert in_grafana in url
        assert "var-class" not in url.replace(in_grafana, "")


def test_no_slo_on_latency_or_of_one_class_is_pooled() -> None:
    text = (ROOT / "alerts/slos.yaml").read_text().replace("classes: [siso, silo, liso, lilo]", "classes: [siso]")
    assert not [rule for group in rules(loads(text)) for rule in group.rules if rule.labels.get("class") == POOL]
    (pooled,) = (rule for group in rules(SHIPPED) for rule in group.rules if rule.labels.get("class") == POOL)
    assert {*re.findall(r'slo="(\w+)"', str(pooled.expr))} == {"availability"}
