"""A replica that is far worse than its peers pages by name; noise, load and starts do not."""

from random import Random

import pytest

from alerts.plan import Plan
from exporters.vocabulary.slo_file import load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Late, Pace, Promtool, constant, counter
from tests.support.slo_files import ENGINE_ONLY

OUTLIER, BURN = "LLMReplicaOutlier", "LLMErrorBudgetBurn"
OUTLIERS = firing(OUTLIER, "instance, model", severity="page")
Phase = tuple[float, float, float]
"""Steps, events per scrape, and the share of bad events."""


def replica(
    pace: Pace, instance: str, *phases: Phase, slo: str = "ttft", model: str = "org/m", name: str = "siso"
) -> dict[str, str]:
    series = pace.slo_events(*phases, slo=slo, model=model, more=f',instance="{instance}"')
    return {key.replace('class="siso"', f'class="{name}"'): values for key, values in series.items()}


def replicas(pace: Pace, *replicas_phases: tuple[Phase, ...], **labels: str) -> dict[str, str]:
    series: dict[str, str] = {}
    for number, phases in enumerate(replicas_phases, start=1):
        series |= replica(pace, f"s:{number}", *phases, **labels)
    return series


def always(share: float, rate: float = 8) -> tuple[Phase, ...]:
    return ((30, rate, share),)


def breaks(rate: float = 8) -> tuple[Phase, ...]:
    """Ten good steps, then ten bad ones, then good ones."""
    return ((10, rate, 0.01), (10, rate, 1), (10, rate, 0.01))


def paged(*instances: str) -> dict[str, float]:
    return {f'{{instance="{each}",model="org/m"}}': 1 for each in instances}


def test_the_page_comes_within_ten_minutes_of_a_period_of_30_days() -> None:
    spec = load(ROOT / "alerts/slos.yaml")
    assert Plan.of(spec).outlier_window == 600


@pytest.mark.parametrize(
    "peers,late",
    [
        pytest.param(1, None, id="one peer"),
        pytest.param(2, "groups", id="two peers, each group reads the last evaluation"),
        pytest.param(9, None, id="nine peers"),
    ],
)
def test_one_bad_replica_is_named_within_the_window_and_ends(
    promtool: Promtool, pace: Pace, peers: int, late: Late
) -> None:
    """It is one alert for its two classes, and no burn of the budget names it: half of the requests are good."""
    every = (breaks(), *[always(0.01)] * peers)
    series = replicas(pace, *every) | replicas(pace, *every, name="liso")
    case = Case(pace.spec, series, Plan.of(pace.spec).direct_interval)
    begun, window = pace.seconds(10), Plan.of(pace.spec).outlier_window
    case.expect(begun + window / 4, OUTLIERS, {})
    for at in range(round(begun + window), round(begun + 10 * pace.step), round(pace.step / 2)):
        case.expect(float(at), OUTLIERS, paged("s:1"))
        case.expect(float(at), firing(BURN, "severity", severity="page"), {})
    case.expect(pace.seconds(20) + window + pace.step, OUTLIERS, {})
    promtool.test([case], most=7, late=late)


@pytest.mark.parametrize(
    "every,named",
    [
        pytest.param((breaks(), breaks(), always(0.01)), ("s:1", "s:2"), id="two of three: both"),
        pytest.param((always(0.6), always(0.01), always(0.01)), ("s:1",), id="more than half of the requests"),
        pytest.param((always(0.45), always(0.01), always(0.01)), (), id="less than half of the requests"),
        pytest.param((always(1), always(1), always(1)), (), id="all bad: the burn pages"),
        pytest.param((always(1), always(0.6), always(0.7)), (), id="an overload, uneven"),
        pytest.param((always(0.8), always(0.45), always(0.45)), (), id="the peers are more than half as bad"),
        pytest.param((breaks(),), (), id="no peers"),
        pytest.param((always(1, 0.2), always(0.01), always(0.01)), (), id="too few bad requests"),
        pytest.param((breaks(), always(0, 0.2)), (), id="too few requests at the peers"),
    ],
)
def test_who_is_an_outlier(
    promtool: Promtool, pace: Pace, every: tuple[tuple[Phase, ...], ...], named: tuple[str, ...]
) -> None:
    case = Case(pace.spec, replicas(pace, *every), Plan.of(pace.spec).direct_interval)
    promtool.test([case.expect(pace.seconds(14), OUTLIERS, paged(*named))])


def test_a_replica_is_compared_within_a_class_and_a_model(promtool: Promtool, pace: Pace) -> None:
    """A router may send all long prompts to one replica."""
    series = {
        **replica(pace, "s:1", *always(1), name="liso"),
        **replica(pace, "s:2", *always(0.01)),
        **replica(pace, "s:3", *always(0.01)),
        **replica(pace, "s:4", *always(0.01), name="liso", model="org/other"),
    }
    promtool.test([Case(pace.spec, series, pace.step / 5).expect(pace.seconds(14), OUTLIERS, {})])


def test_a_replica_without_traffic_is_no_outlier_after_the_window(promtool: Promtool, pace: Pace) -> None:
    series = replicas(pace, ((10, 8, 0.01), (4, 8, 1), (16, 0, 0)), always(0.01), always(0.01))
    case = Case(pace.spec, series, Plan.of(pace.spec).direct_interval)
    case.expect(pace.seconds(13), OUTLIERS, paged("s:1"))
    promtool.test([case.expect(pace.seconds(14) + Plan.of(pace.spec).outlier_window + pace.step, OUTLIERS, {})])


def up(instance: str, values: str) -> dict[str, str]:
    return {f'llm_engine_up{{instance="{instance}",engine="{instance}-engine"}}': values}


def test_a_start_and_an_engine_that_is_down_are_no_outliers(promtool: Promtool, pace: Pace) -> None:
    """Bad requests of a start stay in the window after it; an engine that stays down has a page of its own."""
    begun, back = pace.scrapes(10), pace.scrapes(1)
    series = {
        **replicas(pace, ((10, 8, 0.01), (2, 8, 1), (18, 8, 0.01)), always(0.01)),
        **replicas(pace, always(0.01), breaks(), slo="availability"),
        **up("s:1", f"{constant(1, begun - 1)} {constant(0, back - 1)} 1x1000"),
        **up("s:2", f"{constant(1, begun - 1)} 0x1000"),
    }
    case = Case(pace.spec, series, Plan.of(pace.spec).direct_interval)
    for at in range(round(pace.seconds(10)), round(pace.seconds(24)), round(pace.step / 2)):
        case.expect(float(at), OUTLIERS, {})
    promtool.test([case])


def test_a_replica_that_is_bad_since_its_start_pages_after_the_start_and_the_window(
    promtool: Promtool, pace: Pace
) -> None:
    series = {**replicas(pace, always(1), always(0.01)), **up("s:1", "0 1x1000"), **up("s:2", "0 1x1000")}
    limit, window = Plan.of(pace.spec).warm_up, Plan.of(pace.spec).outlier_window
    case = Case(pace.spec, series, Plan.of(pace.spec).direct_interval).expect(limit + window / 2, OUTLIERS, {})
    promtool.test([case.expect(limit + window + 3 * Plan.of(pace.spec).direct_interval, OUTLIERS, paged("s:1"))])


def binomial(random: Random, events: int, share: float) -> int:
    return sum(random.random() < share for _ in range(events))


def random_counters(random: Random, scrapes: int, rate: float, share: float) -> tuple[str, str]:
    """Events and bad events, each request bad on its own; half of the scrapes have most of the requests."""
    events, bad, total, all_bad = ["0"], ["0"], 0, 0
    for _ in range(scrapes):
        here = binomial(random, round(4 * rate), 0.25)
        total, all_bad = total + here, all_bad + binomial(random, here, share)
        events.append(str(total))
        bad.append(str(all_bad))
    return " ".join(events), " ".join(bad)


@pytest.mark.parametrize("hours", [3, pytest.param(12, marks=pytest.mark.long)])
def test_no_page_by_chance_in_40_replicas_at_any_share_of_bad_requests(promtool: Promtool, hours: int) -> None:
    """Four equal replicas, from 1 % to 70 % bad requests, with little and much traffic."""
    pace = Pace(load(ROOT / "alerts/slos.yaml")).coarse
    random = Random(1)  # noqa: S311 - reproducible
    series: dict[str, str] = {}
    for share in (0.01, 0.2, 0.4, 0.5, 0.7):
        for rate in (2, 30):
            labels = f'model="{share}-{rate}",class="siso",slo="ttft",tenant="other"'
            for instance in range(4):
                events, bad = random_counters(random, 60 * hours, rate, share)
                series[f'llm_slo_events_total{{{labels},instance="s:{instance}"}}'] = events
                series[f'llm_slo_bad_events_total{{{labels},instance="s:{instance}"}}'] = bad
    case = Case(pace.spec, series, pace.spec.scrape_interval)
    at = 3600.0 * hours
    case.expect(at, f'count_over_time(ALERTS{{alertname="{OUTLIER}"}}[{hours}h])', {})
    promtool.test([case.expect(at, "count(llm_instance:slo_bad_events:ratio)", {"{}": 40})])


def test_without_a_sidecar_the_replicas_are_the_engines_that_prometheus_scrapes(promtool: Promtool) -> None:
    at = Pace(loads(ENGINE_ONLY)).coarse
    series: dict[str, str] = {}
    for number, share in enumerate((1, 0.01, 0.01), start=1):
        labels = f'job="vllm",instance="s:{number}",engine="0",model_name="org/m"'
        family = "vllm:time_to_first_token_seconds"
        series[f"up{{{labels}}}"] = constant(1, at.scrapes(14))
        series[f"{family}_count{{{labels}}}"] = counter((20, at.scrapes(14)))
        series[f'{family}_bucket{{{labels},le="1.0"}}'] = counter((20 * (1 - share), at.scrapes(14)))
    case = Case(at.spec, series, at.spec.scrape_interval, sidecar_is_up=False)
    promtool.test([case.expect(at.seconds(13), OUTLIERS, paged("s:1"))])
