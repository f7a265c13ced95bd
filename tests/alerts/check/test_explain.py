"""Each tier fires at the time that `vllm-slo alerts explain` states."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from alerts.check.detection_time import detections
from alerts.check.explain import as_json, burned_by, outage_as_json, table
from alerts.plan import Plan
from alerts.tiers import Tier
from compose.cli import main
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import SHIPPED, Measure, Rejected, Slo, SloFile, Unary, load, loads
from exporters.vocabulary.verdicts import Ending, Judge, applicable_slos
from tests.alerts.firing import burning as tier_burns
from tests.support.promtool import ROOT, Case, Pace, Promtool
from tests.support.slo_files import sli

SPEC = load(SHIPPED)
TIMEOUT = 60.0


def fires_as_explained(spec: SloFile, name: str, *burns: tuple[float, float]) -> Case:
    """Days of good traffic, then a burn: each tier is silent before its time, and fires one evaluation later.

    A burn is the rate of events and the share of bad ones; each is that of a model.
    """
    slo = next(slo for slo in spec.slos if slo.name == name)
    spec = replace(spec, slos=(slo,))  # promtool takes time for the rules of the others
    pace = Pace(spec)
    case = Case(spec, {}, pace.step)
    begun = math.ceil(spec.period / 10 / pace.step) + 24
    for rate, bad_ratio in burns:
        model, per_scrape = f"{rate}/s, {bad_ratio} bad", rate * spec.scrape_interval
        lengths = detections(Plan.of(spec), slo, rate)
        times = [(each.tier, each.at_all_bad if bad_ratio == 1 else each.at_twice_budget) for each in lengths]
        burning = math.ceil(max(time or 0.0 for _, time in times) / pace.step) + 12
        phases = (begun, per_scrape, 0), (burning, per_scrape, bad_ratio)
        case.series = {**case.series, **pace.slo_events(*phases, slo=name, model=model)}
        for tier, time in times:
            alerts = tier_burns(spec, tier.name, "model", model=model)
            if time is None:
                case.expect(pace.seconds(begun + burning), alerts, {})
                continue
            sooner = tier.bad_ratio(slo) / bad_ratio * further_back(spec, tier)
            before = math.ceil((time - sooner) / pace.step) - 1
            after = math.ceil((time + spec.scrape_interval) / pace.step)
            case.expect(pace.seconds(begun + before), alerts, {})
            case.expect(pace.seconds(begun + after), alerts, {f'{{model="{model}"}}': 1})
    return case


def further_back(spec: SloFile, tier: Tier) -> float:
    """The seconds by which a window of steps or dozens can exceed its length; `explain` states the longest time."""
    lengths = Plan.of(spec)
    return 0.0 if tier.long in lengths.direct else lengths.step if tier.long in lengths.of_steps else lengths.dozen


@pytest.mark.parametrize(
    "name,burns",
    [
        pytest.param("ttft", [(10, 1)], id="95 % in an outage", marks=pytest.mark.long),
        pytest.param("availability", [(10, 1)], id="99.5 % in an outage"),
        pytest.param(
            "availability",
            [(0.01, 1), (10, 0.01)],
            id="99.5 % with few events, and at twice the budget",
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_tier_fires_at_its_stated_time(
    promtool: Promtool, pace: Pace, name: str, burns: list[tuple[float, float]]
) -> None:
    promtool.test([fires_as_explained(pace.spec, name, *burns)])


@pytest.mark.long
def test_a_rescaled_tier_fires_at_its_stated_time(promtool: Promtool, loose: SloFile) -> None:
    promtool.test([fires_as_explained(loose, "ttft", (10, 1))])


@pytest.mark.parametrize("unary", list(Unary))
@pytest.mark.parametrize("rejected", list(Rejected))
@pytest.mark.parametrize("measure", list(Measure))
def test_the_listed_causes_are_bad_events(measure: Measure, rejected: Rejected, unary: Unary) -> None:
    slo = Slo(
        name="x",
        classes=("siso",),
        sli=sli(measure, 2 * TIMEOUT, unary),  # so that no deadline coincides with the timeout
        objective=0.95,
        rejected=rejected,
    )
    causes = "; ".join(burned_by(SPEC, slo))

    waiting = Judge(applicable_slos([slo], stream=True, several=True), zero=0.0, first_token_timeout=TIMEOUT)
    assert ("no first token within 1m" in causes) == (waiting.check_deadlines(TIMEOUT + 1) == [("x", Verdict.BAD)])
    unlimited = burned_by(replace(SPEC, first_token_timeout=math.inf), slo)
    assert unlimited == tuple(cause for cause in burned_by(SPEC, slo) if "no first token" not in cause)

    def ends(outcome: Outcome, at: float, *, stream: bool = True, first_token: float | None = None) -> Verdict | None:
        applicable = applicable_slos([slo], stream=stream, several=True, structured=True)
        judge = Judge(applicable, zero=0.0, first_token_timeout=TIMEOUT)
        if first_token is not None:
            judge.first_token(first_token)
            judge.first_answer(first_token)
        judge.ended(Ending(at, outcome))
        return judge.verdicts.get("x")

    assert ("a 429 or 503" in causes) == (ends(Outcome.REJECTED, 1.0) is Verdict.BAD)
    assert ends(Outcome.TRUNCATED, 2.0) is Verdict.BAD
    late_break = ends(Outcome.TRUNCATED, 2.0, first_token=1.0)
    assert late_break is (Verdict.GOOD if "broken stream before it" in causes else Verdict.BAD)
    if "a stream" in causes:
        slow_unary = ends(Outcome.OK, 3 * TIMEOUT, stream=False)
        assert slow_unary is (Verdict.BAD if "a unary request that takes longer than 2m" in causes else None)


def explained(spec: SloFile, rate: float) -> str:
    console = Console(width=80, highlight=False)
    with console.capture() as capture:
        table(Plan.of(spec), rate, console)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def test_the_table_has_a_block_for_each_slo_and_fits_in_80_columns(loose: SloFile) -> None:
    text = explained(loose, 1.0)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("""\
At a steady 1 events/s per class. Times count from the first bad event.

ttft: ttft within 5s for 90 % of siso, liso
bad events: a stream whose first token takes longer than 5s; an engine error,
timeout or broken stream before it; a 429 or 503
tier        long / short burn rate bad above at 100 % bad at 2 x budget min bad
fast-page   1h / 5m             9*      90 %          54m         never    3241
slow-page   6h / 30m             6      60 %        3h39m         never   12961
fast-ticket 1d / 2h              3      30 %        7h30m         never   25921
slow-ticket 3d / 6h              1      10 %        7h18m      1d12h30m   25921
* rescaled: even an outage could not reach the published burn rate
smallest detected incident: 3241 bad events, an outage of 54m (fast-page)

""")


def test_too_little_traffic_for_every_tier_is_stated(loose: SloFile) -> None:
    text = explained(loose, 0.0001)
    assert text.count("too few") == 4 * 2 * len(loose.slos)
    assert "smallest detected incident: none; see LLMErrorBudgetLowTraffic below\n" in text


def test_json_has_seconds_and_shares() -> None:
    document: dict[str, Any] = json.loads(as_json(Plan.of(load(ROOT / "compose/slos.yaml")), 20.0))
    assert (document["period_seconds"], document["events_per_second"]) == (43200, 20)
    availability = document["slos"][2]
    assert availability["slo"] == "availability"
    assert availability["smallest_incident"] == {"tier": "fast-page", "bad_events": 87, "seconds": 4.32}
    assert availability["tiers"][0] == {
        "tier": "fast-page",
        "severity": "page",
        "long_seconds": 60,
        "short_seconds": 5,
        "burn_rate": 14.4,
        "bad_ratio": 0.072,
        "rescaled": False,
        "enough_events": True,
        "seconds_at_all_bad": 4.32,
        "seconds_at_twice_budget": None,
        "least_bad_events": 87,
        "delay_seconds": 2,
    }


@pytest.mark.parametrize("rate", ["0", "-1", "nan", "inf"])
def test_an_invalid_rate_is_rejected(rate: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "explain", f"--rate={rate}"]) == 2
    message = f"vllm-slo: --rate: {rate} is not a rate; write events per second above 0, such as 0.5\n"
    assert capsys.readouterr() == ("", message)


def test_the_command_explains_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(SHIPPED.read_text(encoding="utf-8"), encoding="utf-8")
    assert main(["alerts", "explain", "--slos", str(path), "--format", "json", "--rate", "2"]) == 0
    assert capsys.readouterr().out == as_json(Plan.of(load(path)), 2.0) + "\n"
    assert main(["alerts", "explain", "--slos", str(path)]) == 0
    assert capsys.readouterr().out.startswith("At a steady 1 events/s per class.")


def test_the_pool_of_classes_with_few_events_is_stated_where_there_is_one() -> None:
    pooled = (
        "Classes with fewer than 50 events in 6h page together: for availability, the tiers of pages also judge their "
        "sum, as of one class."
    )
    plan = Plan.of(load(SHIPPED))
    outage = json.loads(outage_as_json(plan, 1.0, 300.0, 900.0))
    assert pooled in json.loads(as_json(plan, 1.0))["notes"]
    assert pooled in outage["notes"]
    text = SHIPPED.read_text(encoding="utf-8").replace("classes: [siso, silo, liso, lilo]", "classes: [siso]")
    assert not any("together" in note for note in json.loads(as_json(Plan.of(loads(text)), 1.0))["notes"])
