"""Alerts distinguish a sidecar that is down, an engine that is down, and an engine that stalls."""

from dataclasses import replace

import pytest

from alerts.plan import Plan
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from alerts.tiers import Severity
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SloFile, Source, load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, UP, Case, Pace, Promtool, constant, counter

SIDECAR, ENGINE, WEDGED = "LLMSidecarDown", "LLMEngineDown", "LLMEngineWedged"
DROPPING, LOG_LINES, LOST = "LLMSidecarDroppingRecords", "LLMSidecarDroppingLogLines", "LLMSidecarLostRequests"
RELOAD_FAILED = "LLMSidecarConfigReloadFailed"
CERTIFICATE, WATCHDOG = "LLMCertificateExpiry", "VLLMSLOWatchdog"
HERE = 'instance="s:1",job="vllm-slo-sidecar"'
DROPPED = f'llm_sidecar_dropped_records_total{{{HERE},route="chat_completions"}}'
DROPPED_LINES = f'llm_sidecar_dropped_log_lines_total{{{HERE},reason="no_space"}}'
LOST_REQUESTS = f'llm_sidecar_lost_requests_total{{{HERE},reason="relay_crashed"}}'


def interval(pace: Pace) -> float:
    return pace.spec.scrape_interval


def test_a_sidecar_that_is_down_pages_and_its_engine_does_not(promtool: Promtool, pace: Pace) -> None:
    wait = Plan.of(pace.spec).down_after / pace.spec.scrape_interval
    series = {UP: f"1x20 {constant(0, round(wait) + 20)} 1x20"}
    detected = 21 * interval(pace) + Plan.of(pace.spec).down_after
    back = (21 + round(wait) + 21) * interval(pace)
    case = Case(pace.spec, series, interval(pace), sidecar_is_up=False).expect_silent(detected - interval(pace))
    case.expect_firing(detected + 2 * interval(pace), SIDECAR).expect_silent(detected + 2 * interval(pace), ENGINE)
    promtool.test([case.expect_silent(back + 5 * interval(pace), SIDECAR)])


@pytest.mark.parametrize("min_serving,pages", [(2 / 3, 2), (0.9, 1), (0.3, 3)], ids="{}".format)
def test_replicas_page_only_if_too_few_of_their_model_serve(
    promtool: Promtool, pace: Pace, min_serving: float, pages: int
) -> None:
    """One less of three replicas is down than pages, and then as many. The other model has all its replicas."""
    spec = replace(pace.spec, alerting=replace(pace.spec.alerting, min_serving=min_serving, cold_start=300.0))
    healthy, n = 40, round(Plan.of(spec).cold_start / interval(pace)) + 100
    cases = []
    for failed in range(max(1, pages - 1), pages + 1):
        series = dict[str, str]()
        for number, name in enumerate(("a", "b", "c", "d")):
            model = "org/other" if name == "d" else "org/m"
            is_up = f"{constant(1, healthy)} {constant(int(number >= failed), n)}"
            labels = f'instance="{name}",job="vllm-slo-sidecar"'
            series[f"up{{{labels}}}"] = is_up
            series[f'llm_engine_up{{{labels},engine="{name}"}}'] = is_up
            running = f'llm_engine_requests_running{{{labels},engine="{name}",rank="0",model="{model}"}}'
            series[running] = constant(1, healthy)
        case, at = Case(spec, series, interval(pace), sidecar_is_up=False), (healthy + n - 2) * interval(pace)
        severities = ("page", "ticket") if failed >= pages else ("ticket",)
        names = ("a", "b", "c")[:failed]
        down = {f'{{instance="{name}",severity="{each}"}}': 1.0 for name in names for each in severities}
        for alert in (SIDECAR, ENGINE):
            case.expect(at, firing(alert, "instance, severity"), down)
        cases.append(case)
    promtool.test(cases)


def test_a_missing_scrape_job_pages(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {}, interval(pace), sidecar_is_up=False)
    promtool.test([case.expect_firing(Plan.of(pace.spec).down_after + 3 * interval(pace), SIDECAR)])


def states(name: str, *parts: tuple[str, int]) -> dict[str, str]:
    """An engine behind a sidecar of the same name that is in each of these states for so many scrapes."""
    labels = f'instance="{name}",job="vllm-slo-sidecar",engine="{name}"'
    scrapes = sum(count for _, count in parts)
    series = {f'llm_engine_requests_running{{{labels},rank="0",model="org/m"}}': constant(3, scrapes)}
    for state in ("serving", "saturated", "wedged", "starting"):
        values = [constant(each == state, count) for each, count in parts]
        series[f'llm_engine_state{{{labels},state="{state}"}}'] = " ".join(values)
    return series


def test_a_wedged_engine_raises_an_alert_until_it_works_again(promtool: Promtool, pace: Pace) -> None:
    down = round(Plan.of(pace.spec).down_after / interval(pace))
    n = down + 10
    series = states("wedged", ("serving", n), ("wedged", n), ("serving", n)) | states("busy", ("saturated", 3 * n))
    series |= states("short", ("serving", n), ("wedged", down - 1), ("serving", 2 * n - down + 1))
    case = Case(pace.spec, series, interval(pace)).expect_silent((n - 1) * interval(pace), WEDGED)
    case.expect((2 * n - 2) * interval(pace), firing(WEDGED, "engine", severity="ticket"), {'{engine="wedged"}': 1})
    promtool.test([case.expect_silent((2 * n + 2) * interval(pace), WEDGED)])


def test_wedged_engines_page_only_if_too_few_of_their_model_serve(promtool: Promtool, pace: Pace) -> None:
    n, cases = 20 + round(Plan.of(pace.spec).down_after / interval(pace)), []
    for wedged, others, severities in (
        (1, "serving", ("ticket",)),
        (2, "serving", ("page", "ticket")),
        (1, "starting", ("page", "ticket")),
    ):
        series = dict[str, str]()
        for number, name in enumerate("abc"):
            series |= states(name, ("wedged" if number < wedged else others, n))
        fires = {f'{{engine="{name}",severity="{each}"}}': 1.0 for name in "abc"[:wedged] for each in severities}
        case = Case(pace.spec, series, interval(pace))
        cases.append(case.expect((n - 2) * interval(pace), firing(WEDGED, "engine, severity"), fires))
    promtool.test(cases)


def test_lost_measurements_raise_a_ticket_that_ends(promtool: Promtool, pace: Pace) -> None:
    """Dropped records, then lines that are not logged, then lost requests."""
    lost, series = {DROPPED: DROPPING, DROPPED_LINES: LOG_LINES, LOST_REQUESTS: LOST}, dict[str, str]()
    case = Case(pace.spec, series, interval(pace))
    for number, (name, alert) in enumerate(lost.items()):
        begun = 10 * (number + 1)
        series[name] = f"0x{begun} {counter((5, 4), start=0)} 20x{pace.scrapes(12)}"
        ticket, window = firing(alert, "severity", severity="ticket"), 6 * pace.step
        case.expect_silent((begun - 2) * interval(pace), alert)
        case.expect((begun + 6) * interval(pace), ticket, {'{severity="ticket"}': 1})
        case.expect_silent((begun + 10) * interval(pace) + window, alert)
    promtool.test([case.expect_silent(8 * interval(pace))])


def test_a_rejected_slo_file_raises_a_ticket_until_a_valid_one_is_loaded(promtool: Promtool, pace: Pace) -> None:
    series = {f"llm_sidecar_config_last_reload_successful{{{HERE}}}": "1x10 0x10 1x10"}
    ticket = firing(RELOAD_FAILED, "severity", severity="ticket")
    case = Case(pace.spec, series, interval(pace)).expect_silent(10 * interval(pace), RELOAD_FAILED)
    case.expect(13 * interval(pace), ticket, {'{severity="ticket"}': 1})
    promtool.test([case.expect_silent(25 * interval(pace), RELOAD_FAILED)])


@pytest.mark.parametrize(
    "left,severity", [(0.5, "page"), (1.5, "ticket"), (6.5, "ticket"), (7.5, None)], ids="{} days".format
)
def test_a_certificate_that_is_not_renewed_raises_a_ticket_then_a_page(
    promtool: Promtool, pace: Pace, left: float, severity: str | None
) -> None:
    expiry = f"llm_sidecar_certificate_expiry_timestamp_seconds{{{HERE}}}"
    series = {expiry: f"{constant(round(left * 86400), 20)} {constant(90 * 86400, 20)}"}
    fires = {"page": ("page", "ticket"), "ticket": ("ticket",), None: ()}[severity]
    case = Case(pace.spec, series, interval(pace))
    case.expect(10 * interval(pace), firing(CERTIFICATE, "severity"), {f'{{severity="{each}"}}': 1 for each in fires})
    promtool.test([case.expect_silent(30 * interval(pace), CERTIFICATE)])


def test_a_certificate_of_days_or_hours_is_compared_with_its_own_lifetime_after_a_renewal(
    promtool: Promtool,
) -> None:
    """One of six days, renewed every three days, and one of a day, renewed every half day; then neither is renewed."""
    spec, hour = load(ROOT / "alerts/slos.yaml"), 3600
    pace = replace(spec, scrape_interval=60.0)
    six, day = (f'llm_sidecar_certificate_expiry_timestamp_seconds{{instance="{name}"}}' for name in ("six", "day"))
    series = {
        six: " ".join(constant(144 * hour + at * hour, 72 * 60 - 1) for at in (0, 72, 144)) + f" {288 * hour}x10000",
        day: " ".join(constant(24 * hour + at * hour, 12 * 60 - 1) for at in range(0, 216, 12))
        + f" {228 * hour}x10000",
    }

    page, ticket = (firing(CERTIFICATE, "instance", severity=severity) for severity in ("page", "ticket"))
    case = Case(pace, series, 0.5 * hour)
    for at in range(74, 216, 6):
        case.expect(at * hour, ticket, {}).expect(at * hour, page, {})
    only_day, only_six = {'{instance="day"}': 1.0}, {'{instance="six"}': 1.0}
    case.expect(221 * hour, ticket, {}).expect(223 * hour, ticket, only_day)
    case.expect(224 * hour, page, {}).expect(226 * hour, page, only_day)
    case.expect(251 * hour, ticket, only_day).expect(253 * hour, ticket, only_day | only_six)
    promtool.test([case.expect(271 * hour, page, only_day | only_six)])


def test_the_watchdog_always_fires_with_severity_none(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {}, interval(pace))
    promtool.test([case.expect(interval(pace), firing(WATCHDOG, "severity"), {'{severity="none"}': 1})])


def test_every_alert_has_a_severity_and_all_annotations(spec: SloFile) -> None:
    sources = (spec, replace(spec, source=Source.ENGINE), replace(spec, group_by=("cluster",)))
    rendered = [rule for each in sources for group in rules(each) for rule in group.rules if isinstance(rule, Alert)]
    assert {alert.name for alert in rendered} | {AlertName.TENANT_BURN} == set(AlertName)
    for alert in rendered:
        assert alert.labels["severity"] in set(Severity)
        assert alert.labels["alert_source"] == "vllm-slo"
        assert set(alert.annotations) - {"note"} == {"summary", "description", "runbook"}
        assert alert.annotations["runbook"] == f"vllm-slo alerts runbook {alert.name}"
        if alert.name != WATCHDOG:
            assert "ook first at" in alert.annotations["description"]


def test_no_rule_reads_the_series_of_alerts(spec: SloFile) -> None:
    """They differ between evaluators, and no rule can depend on them without a delay."""
    for group in rules(spec):
        assert not [rule for rule in group.rules if "ALERTS" in str(rule.expr)]


def test_every_alert_on_an_engine_names_the_engine_and_its_instance(spec: SloFile) -> None:
    of_engines = {
        *(AlertName.ENGINE_DOWN, AlertName.ENGINE_WEDGED, AlertName.ENGINE_RESTARTS),
        *(AlertName.QUEUE, AlertName.KV_CACHE, AlertName.PREFIX_CACHE),
    }
    rendered = [rule for group in rules(spec) for rule in group.rules if isinstance(rule, Alert)]
    assert {each.name for each in rendered} >= of_engines
    for alert in rendered:
        if alert.name in of_engines:
            text = alert.annotations["summary"] + alert.annotations["description"]
            assert "$labels.engine" in text, alert.name
            assert "$labels.instance" in text, alert.name
