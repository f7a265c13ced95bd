"""An outage shows, pages and clears as `vllm-slo alerts explain --outage` states; promtool runs it on the rules."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from alerts.check.outage import OutageEffect, outage_effects
from alerts.plan import Plan
from compose.cli import main
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import SHIPPED, SloFile, load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool

RATE = 10.0


def effect(spec: SloFile, name: str, outage: float, window: float, rate: float = RATE) -> OutageEffect:
    return next(each for each in outage_effects(Plan.of(spec), rate, outage, window) if each.slo.name == name)


def only(spec: SloFile, name: str) -> SloFile:
    """With this SLO alone: promtool takes time for the rules of the others."""
    return replace(spec, slos=tuple(slo for slo in spec.slos if slo.name == name))


def expect_as_stated(case: Case, name: str, begun: float, outage: float, window: float) -> None:
    """A model with good traffic until `begun`, an outage, and good traffic again: its error ratio and its page."""
    spec, stated, model = case.spec, effect(case.spec, name, outage, window), f"{outage:g} s"
    pace, per_scrape, after = Pace(spec), RATE * spec.scrape_interval, spec.period / 360
    lengths = ((begun, 0.0), (outage, 1.0), (after, 0.0))
    phases = [(seconds / pace.step, per_scrape, share) for seconds, share in lengths]
    case.series = {**case.series, **pace.slo_events(*phases, slo=name, model=model)}
    bad, events = (
        f'sum(increase({series}{{model="{model}"}}[{spell_duration(window)}]))'
        for series in ("llm_slo_bad_events_total", "llm_slo_events_total")
    )
    share = 1 / (window / spec.scrape_interval - 1)  # one scrape, of those between which the window sees growth
    error_ratio = f"count(abs({bad} / {events} - {stated.error_ratio}) <= {share})"
    case.expect(begun + outage, error_ratio, {"{}": 1})
    pages = firing("LLMErrorBudgetBurn", "slo", severity="page", model=model)
    if stated.page_at is None or stated.clears_at is None:
        for at in range(0, math.ceil(outage + after), math.ceil(Plan.of(spec).direct_interval)):
            case.expect(begun + at, pages, {})
        return
    page = {f'{{slo="{name}"}}': 1.0}
    # Prometheus 3 excludes the start of a range, so a window has the growth of one scrape less.
    case.expect(begun + stated.page_at - spec.scrape_interval, pages, {})
    case.expect(begun + stated.page_at + stated.delay, pages, page)
    case.expect(begun + stated.clears_at - stated.delay, pages, page)
    case.expect(begun + stated.clears_at + stated.delay, pages, {})


@pytest.mark.parametrize(
    "file,name,outages",
    [
        pytest.param(
            "alerts/slos.yaml",
            "availability",
            [(300, 900, True), (1500, 900, True)],
            id="99.5 % for 5m, and for 25m, on both page tiers",
        ),
        pytest.param(
            "alerts/slos.yaml",
            "ttft",
            [(3000, 3600, True), (300, 900, False)],
            id="95 % for 50m, and for 5m, too short for a page",
            marks=pytest.mark.long,
        ),
        pytest.param(
            "compose/slos.yaml", "ttft", [(50, 60, True)], id="95 % for 50s in the lab", marks=pytest.mark.long
        ),
    ],
)
def test_the_rules_page_and_clear_at_the_stated_times(
    promtool: Promtool, file: str, name: str, outages: list[tuple[float, float, bool]]
) -> None:
    """The good traffic before is longer than every window of a page."""
    spec = only(load(ROOT / file), name)
    case, step = Case(spec, {}, Plan.of(spec).direct_interval), Plan.of(spec).step
    for outage, window, pages in outages:
        assert (effect(spec, name, outage, window).page_at is not None) is pages
        expect_as_stated(case, name, math.ceil(spec.period / 100 / step) * step, outage, window)
    promtool.test([case])


@pytest.mark.parametrize(
    "history", [pytest.param(0.1, id="a tenth of the period"), pytest.param(1, id="the period", marks=pytest.mark.long)]
)
def test_the_outage_costs_the_stated_share_of_the_budget(promtool: Promtool, history: float) -> None:
    """The budget is a share of the events of the period, so an outage costs more of it while there are fewer."""
    spec = only(load(ROOT / "compose/slos.yaml"), "availability")
    pace, outage = Pace(spec), 300.0
    share = effect(spec, "availability", outage, 900.0).budget_share / history
    steps = round(spec.period * history / pace.step)
    phases = ((steps - 84, 20.0, 0.0), (outage / pace.step, 20.0, 1.0), (24, 20.0, 0.0))
    case = Case(spec, pace.coarse.slo_events(*phases, slo="availability"), pace.step)
    # The longest window of the rules is up to a dozen steps longer than the period.
    error = share * Plan.of(spec).dozen / spec.period / history
    spent = f"count(abs(1 - llm_slo:error_budget:remaining_ratio - {share}) < {error})"
    promtool.test([case.expect(pace.seconds(steps), spent, {"{}": 1})])


@pytest.mark.parametrize(
    "rate,page_at",
    [
        pytest.param(1.0, 259.2, id="the share of bad events decides"),
        pytest.param(0.034, 294.118, id="min_bad decides"),
        pytest.param(0.03, None, id="the outage has fewer bad events than min_bad"),
    ],
)
def test_little_traffic_delays_the_page(rate: float, page_at: float | None) -> None:
    assert effect(load(SHIPPED), "availability", 300.0, 900.0, rate).page_at == page_at


def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "explain", "--outage", "5m", "--window", "15m"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "\n".join(line.rstrip() for line in out.splitlines()) == (
        """\
A full outage of 5m at a steady 1 events/s per class. Times count from its
start. Peaks are those of a rolling window of 15m.

slo          peak bad peak burn rate page comes page clears share of 30d
ttft          33.33 %           6.67      never           -       0.23 %
itl           33.33 %           6.67      never           -       0.23 %
availability  33.33 %          66.67      4m20s      14m39s       2.31 %

Scraping and rule evaluation shift these times by up to 1m15s. A request that
waits becomes bad only at its threshold or timeout.

If the engine restarts, burn pages wait as long as all bad events are on a
starting engine, and LLMEngineDown pages on its own.

Classes with fewer than 50 events in 6h page together: for availability, the
tiers of pages also judge their sum, as of one class."""
    )


def test_json_has_seconds_and_shares(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "explain", "--outage", "5m", "--format", "json"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["outage_seconds"], document["window_seconds"]) == (300, 3600)
    assert document["slos"][2] == {
        "slo": "availability",
        "peak_bad_ratio": 0.083333333,
        "peak_burn_rate": 16.666666667,
        "page_at_seconds": 259.2,
        "clears_at_seconds": 878.4,
        "budget_share": 0.023148148,
        "delay_seconds": 75,
    }


@pytest.mark.parametrize(
    "flags,message",
    [
        pytest.param(
            ["--window", "15m"],
            "--window: only an outage has a rolling window; add --outage TIME, such as --outage 5m",
            id="a window without an outage",
        ),
        pytest.param(
            ["--outage", "31d"],
            "--outage: 31d is longer than the period; use at most 30d",
            id="an outage longer than the period",
        ),
        pytest.param(
            ["--outage", "soon"],
            "--outage: 'soon' is not a valid duration; write a number with a unit, such as 5m or 1h",
            id="no duration",
        ),
    ],
)
def test_invalid_flags_are_rejected(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "explain", *flags]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
