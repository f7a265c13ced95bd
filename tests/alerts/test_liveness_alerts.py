"""What is down is told apart: the sidecar, the engine, an engine that stalls, and nothing at all."""

import re
from dataclasses import replace

import pytest

from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit
from alerts.recording_windows import down_after
from alerts.rule_file import rules
from alerts.rule_groups import Alert
from alerts.tiers import Severity
from exporters.signals import RECORDED, SIGNALS
from exporters.slos import SloFile, Source, load
from tests.support.promtool import ROOT, UP, Case, Pace, Promtool, constant, counter

SIDECAR, ENGINE, STALLED = "LLMSidecarDown", "LLMEngineDown", "LLMEngineStalled"
DROPPING, LOST = "LLMSidecarDroppingRecords", "LLMSidecarLostRequests"
CERTIFICATE, WATCHDOG = "LLMCertificateExpiry", "Watchdog"
HERE = 'instance="s:1",job="vllm-slo-sidecar"'
DROPPED = f'llm_sidecar_dropped_records_total{{{HERE},process="relay-0"}}'
LOST_REQUESTS = f'llm_sidecar_lost_requests_total{{{HERE},process="relay-0"}}'


def interval(pace: Pace) -> float:
    return pace.spec.scrape_interval


def test_a_sidecar_that_answers_no_scrape_pages_and_is_told_from_its_engine(promtool: Promtool, pace: Pace) -> None:
    wait = down_after(pace.spec) / pace.spec.scrape_interval
    series = {UP: f"1x20 {constant(0, round(wait) + 20)} 1x20"}
    down = 21 * interval(pace)
    back = (21 + round(wait) + 21) * interval(pace)
    promtool.test(
        [
            Case(pace.spec, series, interval(pace), sidecar_is_up=False)
            .expect_silent(down + down_after(pace.spec) - interval(pace))
            .expect_firing(down + down_after(pace.spec) + 2 * interval(pace), SIDECAR)
            .expect_silent(down + down_after(pace.spec) + 2 * interval(pace), ENGINE)
            .expect_silent(back + 5 * interval(pace), SIDECAR)
        ]
    )


def test_a_sidecar_that_prometheus_does_not_know_pages_too(promtool: Promtool, pace: Pace) -> None:
    case = Case(pace.spec, {}, interval(pace), sidecar_is_up=False)
    promtool.test([case.expect_firing(down_after(pace.spec) + 3 * interval(pace), SIDECAR)])


def engine(name: str, scrapes: int, *, live: bool = True, held: float = 3, moving: str = "") -> dict[str, str]:
    """An engine at a sidecar of the same name, and what of its tokens moves; `a/b` is engine b at sidecar a."""
    labels = f'instance="{name.partition("/")[0]}",job="vllm-slo-sidecar",engine="{name}"'
    labels = f'{labels},rank="0",model="org/m"'
    tokens = {kind: counter((5 if kind == moving else 0, scrapes), start=500) for kind in ("generation", "prompt")}
    return {
        f"llm_engine_up{{{labels}}}": constant(1, scrapes),
        f"llm_engine_token_counts_live{{{labels}}}": constant(live, scrapes),
        f"llm_engine_requests_running{{{labels}}}": constant(held, scrapes),
        f"llm_engine_requests_waiting{{{labels}}}": constant(0, scrapes),
        **{f"llm_engine_{kind}_tokens_total{{{labels}}}": values for kind, values in tokens.items()},
    }


def request_series(name: str, oldest: str, streaming: str, completed: str) -> dict[str, str]:
    """What the sidecar `name` sees of its requests."""
    labels = f'instance="{name}",job="vllm-slo-sidecar",model="org/m",class="siso"'
    return {
        f"llm_oldest_wait_seconds{{{labels}}}": oldest,
        f'llm_requests_in_flight{{{labels},phase="streaming"}}': streaming,
        f'llm_completion_tokens_total{{{labels},tenant="other"}}': completed,
    }


def stalled(by: str) -> str:
    return f'sum by ({by}) (ALERTS{{alertname="{STALLED}",alertstate="firing",severity="page"}})'


def certain(pace: Pace) -> int:
    """Scrapes after which an engine that was first seen at the start is warm, and has stood still for long enough."""
    return round((cold_start_limit(pace.spec) + max(pace.step, 30)) / interval(pace)) + 15


def test_an_engine_that_counts_as_it_works_is_stalled_when_it_holds_requests_and_moves_no_token(
    promtool: Promtool, pace: Pace
) -> None:
    n = certain(pace)
    series = {
        **engine("stalls", n),
        **engine("generates", n, moving="generation"),
        **engine("reads a prompt", n, moving="prompt"),
        **engine("idle", n, held=0),
        **engine("has just started", n),
        'llm_engine_up{instance="has just started",job="vllm-slo-sidecar",engine="has just started"}': (
            f"{constant(1, n - 9)} 0x1 1x10"
        ),
    }
    case = Case(pace.spec, series, interval(pace))
    promtool.test([case.expect((n - 2) * interval(pace), stalled("engine"), {'{engine="stalls"}': 1})])


def test_behind_a_gateway_a_stalled_engine_hides_neither_behind_a_busy_one_nor_behind_one_that_starts(
    promtool: Promtool, pace: Pace
) -> None:
    n = certain(pace)
    busy, starts = engine("a/busy", n, moving="generation"), engine("a/starts", n)
    starts['llm_engine_up{instance="a",job="vllm-slo-sidecar",engine="a/starts"}'] = f"{constant(1, n - 9)} 0x1 1x10"
    series = {**engine("a/stalls", n), **busy, **starts}
    series |= request_series("a", constant(0, n), constant(5, n), counter((50, n)))
    case = Case(pace.spec, series, interval(pace))
    promtool.test([case.expect((n - 2) * interval(pace), stalled("engine"), {'{engine="a/stalls"}': 1})])


def test_an_engine_that_counts_at_the_end_is_stalled_when_streams_wait_and_none_flows(
    promtool: Promtool, pace: Pace
) -> None:
    """Long answers, also such that let others wait, are no stall: nothing is counted until they end."""
    n = certain(pace)
    names = ("stalls", "long answers", "long answers, full batch", "answers others", "all are served soon")
    series: dict[str, str] = {}
    for name in names:
        series |= engine(name, n, live=False)
    waits, none, still = f"0+{interval(pace):g}x{n}", constant(0, n), constant(900, n)
    series |= request_series("stalls", waits, none, still)
    series |= request_series("long answers", none, constant(3, n), still)
    series |= request_series("long answers, full batch", waits, constant(3, n), still)
    series |= request_series("answers others", waits, none, counter((50, n)))
    series |= request_series("all are served soon", constant(2, n), none, still)
    case = Case(pace.spec, series, interval(pace))
    promtool.test([case.expect((n - 2) * interval(pace), stalled("instance, engine"), {'{instance="stalls"}': 1})])


def test_an_engine_that_counts_as_it_works_but_knows_of_no_request_is_stalled_by_who_waits(
    promtool: Promtool, pace: Pace
) -> None:
    """It hung while it was idle: its gauges still say so."""
    n = certain(pace)
    series = engine("s:1", n, held=0) | request_series(
        "s:1", f"0+{interval(pace):g}x{n}", constant(0, n), constant(900, n)
    )
    case = Case(pace.spec, series, interval(pace))
    promtool.test([case.expect((n - 2) * interval(pace), stalled("instance, engine"), {'{instance="s:1"}': 1})])


def test_a_stall_is_over_when_tokens_move_or_streams_flow_again(promtool: Promtool, pace: Pace) -> None:
    n = certain(pace)
    series = engine("live", 3 * n) | engine("not", 3 * n, live=False)
    generated = next(name for name in series if "generation" in name and 'engine="live"' in name)
    series[generated] = f"{constant(500, n)} {counter((5, 2 * n), start=500)}"
    series |= request_series(
        "not",
        f"0+{interval(pace):g}x{n} {constant(0, 2 * n)}",
        f"{constant(0, n)} {constant(3, 2 * n)}",
        constant(900, 3 * n),
    )
    both = {'{instance="live"}': 1.0, '{instance="not"}': 1.0}
    case = Case(pace.spec, series, interval(pace)).expect((n - 2) * interval(pace), stalled("instance"), both)
    promtool.test([case.expect((n + 8) * interval(pace), stalled("instance"), {})])


@pytest.mark.parametrize("series,alert", [pytest.param(DROPPED, DROPPING), pytest.param(LOST_REQUESTS, LOST)])
def test_what_no_count_holds_raises_a_ticket_until_no_more_is_lost(
    promtool: Promtool, pace: Pace, series: str, alert: str
) -> None:
    tier = 6 * pace.step  # the window it looks back on
    values = f"0x10 {counter((5, 4), start=0)} 20x{pace.scrapes(8)}"
    ticket = f'count(ALERTS{{alertname="{alert}",alertstate="firing",severity="ticket"}})'
    promtool.test(
        [
            Case(pace.spec, {series: values}, interval(pace))
            .expect_silent(8 * interval(pace))
            .expect(16 * interval(pace), ticket, {"{}": 1})
            .expect_silent(20 * interval(pace) + tier, alert)
        ]
    )


@pytest.mark.parametrize(
    "left,severity", [(0.5, "page"), (1.5, "ticket"), (6.5, "ticket"), (7.5, None)], ids="{} days".format
)
def test_a_certificate_that_is_not_renewed_raises_a_ticket_then_a_page(
    promtool: Promtool, pace: Pace, left: float, severity: str | None
) -> None:
    expiry = f"llm_sidecar_certificate_expiry_timestamp_seconds{{{HERE}}}"
    series = {expiry: f"{constant(round(left * 86400), 20)} {constant(90 * 86400, 20)}"}
    query = f'count by (severity) (ALERTS{{alertname="{CERTIFICATE}",alertstate="firing",severity="%s"}})'
    case = Case(pace.spec, series, interval(pace))
    case.expect(10 * interval(pace), query % "page", {'{severity="page"}': 1} if severity == "page" else {})
    case.expect(10 * interval(pace), query % "ticket", {'{severity="ticket"}': 1} if severity else {})
    promtool.test([case.expect_silent(30 * interval(pace), CERTIFICATE)])


def test_a_certificate_that_lives_for_days_or_hours_is_held_against_its_own_life_once_it_was_renewed(
    promtool: Promtool,
) -> None:
    """One of six days, renewed every three, and one of a day, every half; then neither is."""
    spec, hour = load(ROOT / "alerts/slos.yaml"), 3600
    pace = replace(spec, scrape_interval=60.0)
    six, day = (f'llm_sidecar_certificate_expiry_timestamp_seconds{{instance="{name}"}}' for name in ("six", "day"))
    series = {
        six: " ".join(constant(144 * hour + at * hour, 72 * 60 - 1) for at in (0, 72, 144)) + f" {288 * hour}x10000",
        day: " ".join(constant(24 * hour + at * hour, 12 * 60 - 1) for at in range(0, 216, 12))
        + f" {228 * hour}x10000",
    }

    def firing(severity: str) -> str:
        return f'sum by (instance) (ALERTS{{alertname="{CERTIFICATE}",alertstate="firing",severity="{severity}"}})'

    case = Case(pace, series, 0.5 * hour)
    for at in range(74, 216, 6):
        case.expect(at * hour, firing("ticket"), {}).expect(at * hour, firing("page"), {})
    only_day, only_six = {'{instance="day"}': 1.0}, {'{instance="six"}': 1.0}
    case.expect(221 * hour, firing("ticket"), {}).expect(223 * hour, firing("ticket"), only_day)
    case.expect(224 * hour, firing("page"), {}).expect(226 * hour, firing("page"), only_day)
    case.expect(251 * hour, firing("ticket"), only_day).expect(253 * hour, firing("ticket"), only_day | only_six)
    promtool.test([case.expect(271 * hour, firing("page"), only_day | only_six)])


def test_the_watchdog_always_fires_and_reaches_nobody(promtool: Promtool, pace: Pace) -> None:
    mark = 'ALERTS{alertname="Watchdog",alertstate="firing",severity="none"}'
    promtool.test([Case(pace.spec, {}, interval(pace)).expect(interval(pace), f"count({mark})", {"{}": 1})])


def test_a_runbook_asks_for_series_that_exist() -> None:
    renewals = {name for s in SIGNALS for name in (s.name, s.bucket, s.sum, s.count)} | {r.name for r in RECORDED}
    for path in (ROOT / "alerts/runbooks").glob("*.md"):
        request_series = set(re.findall(r"\bllm_[\w:]+", path.read_text()))
        assert request_series <= renewals, path.name


def test_every_alert_says_whom_it_reaches_what_it_means_and_where_to_read_on(spec: SloFile) -> None:
    sources = (spec, replace(spec, source=Source.ENGINE))
    rendered = [rule for each in sources for group in rules(each) for rule in group.rules if isinstance(rule, Alert)]
    assert {alert.name for alert in rendered} | {AlertName.TENANT_BURN} == set(AlertName)
    for alert in rendered:
        assert alert.labels["severity"] in set(Severity)
        assert set(alert.annotations) == {"summary", "description", "runbook_url", "dashboard_url"}
        assert alert.annotations["runbook_url"] == f"alerts/runbooks/{alert.name}.md"
        if alert.name != WATCHDOG:
            assert "ook first at" in alert.annotations["description"]


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    runbooks = {path.stem for path in (ROOT / "alerts/runbooks").glob("*.md")}
    assert runbooks == set(AlertName)
