"""With `group_by`, each group of targets has its own series and alerts, as if the others did not exist."""

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from alerts.plan import Plan
from alerts.prices import ApiPrice, Prices
from alerts.promql.build import aggregate, call, equal, on, regex, select, sum_by
from alerts.promql.expression import AlertLabel, AlertValue, Expression
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from alerts.rules.target_labels import CONSTANTS, query, with_target_labels
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import RECORDED, Label
from exporters.vocabulary.slo_file import SHIPPED, Measure, SloFile, Source, load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Pace, Promtool, constant, counter
from tests.support.slo_files import engine_only, sli

LABELS = ("cluster", "namespace")
LAB = load(ROOT / "compose/slos.yaml")
FLEET = replace(LAB, group_by=LABELS, alerting=replace(LAB.alerting, per_tenant=True))
PRICES = Prices(3.0, ApiPrice(0.2, 0.05, 0.6))


def every_rule() -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """The name, expression and annotations of every rule, with each source, tenants and prices."""
    shipped = load(SHIPPED)
    measures = tuple(
        replace(
            shipped.slos[0],
            name=measure.replace("_", "-"),
            sli=sli(measure),
        )
        for measure in Measure
    )
    everything = replace(shipped, group_by=LABELS, slos=measures, alerting=replace(shipped.alerting, per_tenant=True))
    for source in Source:
        for group in rules(replace(everything, source=source), prices=PRICES):
            for rule in group.rules:
                if isinstance(rule, Alert):
                    yield rule.name, str(rule.expr), rule.annotations
                else:
                    yield rule.series.name, str(rule.expr), {}


CLAUSE = re.compile(r"\b(by|on) \(([^)]*)\)(?=(.*))")


def is_constant(right: str) -> bool:
    """Whether the right side of a matching, which begins here, has only series without labels of targets."""
    series = re.findall(r"\b(?:llm_|vllm:|up\b)[\w:]*", re.split(r" (?:and|or|unless) ", right)[0])
    return {*series} <= CONSTANTS and bool(series or "vector(" in right)


def test_every_aggregation_and_matching_of_every_rule_keeps_the_groups_apart() -> None:
    for name, expr, _ in every_rule():
        for keyword, by, right in CLAUSE.findall(expr):
            if not (keyword == "on" and is_constant(right)):
                assert by.startswith(", ".join(LABELS)), f"{name}: {keyword} ({by}){right}"


def test_no_rule_aggregates_all_groups_into_one_series() -> None:
    whole = re.compile(r"\b(?:sum|max|min|avg|count|group|quantile|topk|stddev)\s*\(")
    assert [name for name, expr, _ in every_rule() if whole.search(expr)] == []


def test_every_query_of_every_text_reads_the_group_of_the_alert() -> None:
    for name, _, annotations in every_rule():
        for text in annotations.values():
            queries = re.findall(r"query [^}]*`([^`]*)`([^}]*)\)", text)
            assert len(queries) == len(re.findall(r"\bquery\b", text.replace("traces query", ""))), name
            for promql, arguments in queries:
                series = re.findall(r"\b(?:llm_|vllm|up\b)[\w:]*", promql)
                assert promql.count("{cluster=%q,namespace=%q") == len(series), f"{name}: {promql}"
                assert len(arguments.split()) == len(re.findall(r"%[a-z]", promql)), f"{name}: {promql}"


A, B, MODEL = select("a"), select("b"), on(Label.MODEL)


@pytest.mark.parametrize(
    "before, after",
    [
        pytest.param(sum_by(A, [Label.MODEL]), "sum by (cluster, model) (a)", id="aggregation"),
        pytest.param(sum_by(A, []), "sum by (cluster) (a)", id="aggregation of everything"),
        pytest.param(sum_by(A, ["cluster", "model"]), "sum by (cluster, model) (a)", id="already named"),
        pytest.param(
            aggregate("sum", A, without=[Label.WINDOW]), "sum without (window) (a)", id="without keeps the label"
        ),
        pytest.param(A.and_(B, MODEL), "a and on (cluster, model) b", id="matching"),
        pytest.param(
            A.binary("/", B, on(Label.MODEL, left=[Label.JOB])),
            "a / on (cluster, model) group_left (job) b",
            id="many to one",
        ),
        pytest.param(
            A.binary("<", 0.5 * (B >= 1), on(Label.MODEL, left=())),
            "a < on (cluster, model) group_left () 0.5 * (b >= 1)",
            id="the series may come after a factor",
        ),
        pytest.param(
            A.binary("/", 1 - select(signals.SLO_OBJECTIVE), on(Label.CLASS, left=())).and_(B, on(Label.CLASS)),
            "a / on (class) group_left () (1 - llm_slo:objective:ratio) and on (cluster, class) b",
            id="constants have no such label",
        ),
        pytest.param(
            A.unless(call("vector", call("time") + 5) % 60 >= 55, on()),
            "a unless on () vector(time() + 5) % 60 >= 55",
            id="times have no such label",
        ),
        pytest.param(
            A.and_(select("", regex(Label.JOB, "x")), on()),
            'a and on (cluster) {job=~"x"}',
            id="a selector without a name",
        ),
    ],
)
def test_clauses_get_the_label(before: Expression, after: str) -> None:
    assert str(with_target_labels(before, ["cluster"])) == after


def target(cluster: str, namespace: str, more: str = "") -> str:
    """The labels of the target s:1, which has the same name in each group."""
    return f'cluster="{cluster}",namespace="{namespace}",job="vllm-slo-sidecar",instance="s:1"{more}'


def group(
    cluster: str, namespace: str, healthy: int, bad: int, rate: float, *, stalls: bool, others: float = 0
) -> dict[str, str]:
    """All series of a sidecar and its engine: some healthy steps, then bad ones, in which the engine may stall."""
    scrapes = [Pace(FLEET).scrapes(steps) for steps in (healthy, bad)]
    total = sum(scrapes)

    def counts(good: float, in_trouble: float) -> str:
        return counter((good * rate, scrapes[0]), (in_trouble * rate, scrapes[1]), start=1000)

    def gauge(good: float, in_trouble: float) -> str:
        return f"{constant(good, scrapes[0] - 1)} {constant(in_trouble, scrapes[1])}"

    here = target(cluster, namespace)
    request = f'{here},model="org/m",class="siso"'
    outlier = f'cluster="{cluster}",namespace="{namespace}",model="org/n",class="siso",slo="ttft",tenant="t"'
    engine = f'{here},engine="e:8000",model="org/m",rank="0"'
    moved = 0.0 if stalls else 1.0
    return {
        f"up{{{here}}}": constant(1, total),
        f'llm_slo_events_total{{{request},slo="ttft",tenant="t"}}': counts(2, 2),
        f'llm_slo_bad_events_total{{{request},slo="ttft",tenant="t"}}': counts(0, 2),
        f'llm_slo_events_total{{{request},slo="ttft",tenant="u"}}': counts(others, others),
        f'llm_slo_bad_events_total{{{request},slo="ttft",tenant="u"}}': counts(0, 0),
        f'llm_slo_events_total{{{request},slo="availability",tenant="t"}}': counts(2, 2),
        f'llm_slo_bad_events_total{{{request},slo="availability",tenant="t"}}': counts(0, 2),
        f'llm_slo_events_total{{{outlier},instance="s:1"}}': counts(2, 2),
        f'llm_slo_bad_events_total{{{outlier},instance="s:1"}}': counts(0, 2),
        f'llm_slo_events_total{{{outlier},instance="s:2"}}': counts(10, 10),
        f'llm_slo_bad_events_total{{{outlier},instance="s:2"}}': counts(0, 0),
        f"llm_goodput_events_total{{{request}}}": counts(2, 2),
        f"llm_goodput_requests_total{{{request}}}": counts(2, 0),
        f'llm_requests_total{{{request},outcome="ok"}}': counts(2, 1),
        f'llm_requests_total{{{request},outcome="client_error"}}': counts(0, 3),
        f'llm_requests_total{{{request},outcome="rejected"}}': counts(0, 1),
        f'llm_completion_tokens_total{{{request},tenant="t"}}': counts(20, 60 * moved),
        f'llm_prompt_tokens_total{{{request},tenant="t"}}': counts(20, 20 * moved),
        f"llm_oldest_wait_seconds{{{request}}}": gauge(0, 90),
        f'llm_requests_in_flight{{{request},phase="streaming"}}': gauge(1, moved),
        f"llm_engine_up{{{engine}}}": gauge(1, 1 if stalls else 0),
        f"llm_engine_start_time_seconds{{{engine}}}": gauge(1, 1)
        if stalls
        else f"{constant(1, total - 9)} 1800 1810 1820 1830x9",
        f'llm_engine_state{{{here},engine="e:8000",state="serving"}}': gauge(1, 0),
        f'llm_engine_state{{{here},engine="e:8000",state="wedged"}}': gauge(0, stalls),
        f'llm_engine_state{{{here},engine="e:8000",state="down"}}': gauge(0, not stalls),
        f"llm_engine_requests_running{{{engine}}}": gauge(2, 3),
        f"llm_engine_requests_waiting{{{engine}}}": gauge(0, 9),
        f"llm_engine_kv_cache_usage_ratio{{{engine}}}": gauge(0.5, 0.99),
        f"llm_engine_preemptions_total{{{engine}}}": counts(0, 2),
        f"llm_engine_prompt_tokens_total{{{engine}}}": counts(20, 20 * moved),
        f"llm_engine_generation_tokens_total{{{engine}}}": counts(20, 20 * moved),
        f"llm_engine_prefix_cache_hits_tokens_total{{{engine}}}": counts(10, 0),
        f"llm_sidecar_dropped_records_total{{{here}}}": counts(0, 1),
        f'llm_sidecar_dropped_log_lines_total{{{here},reason="full"}}': counts(0, 1),
        f'llm_sidecar_lost_requests_total{{{here},reason="relay_crashed"}}': counts(0, 1),
        f"llm_sidecar_config_last_reload_successful{{{here}}}": gauge(1, 0),
        f"llm_sidecar_certificate_expiry_timestamp_seconds{{{here}}}": gauge(9e6, 1000),
    }


RAISED = {
    *(AlertName.BURN, AlertName.TENANT_BURN, AlertName.CLIENT_ERRORS, AlertName.BUSY_BUT_USELESS, AlertName.KV_CACHE),
    *(AlertName.PREFIX_CACHE, AlertName.ENGINE_DOWN, AlertName.ENGINE_WEDGED),
    AlertName.TARGETS_MISSING,
}
NEEDS_A_WEEK = {AlertName.BUSY_BUT_USELESS, AlertName.PREFIX_CACHE}
"""Alerts on a comparison with a week, of which a thirtieth of the period is the least."""
Steps = tuple[int, int]
"""Healthy steps of the first group, and then bad ones."""
LENGTHS = pytest.mark.parametrize(
    "steps", [pytest.param((12, 36), id="hours"), pytest.param((300, 60), id="a day", marks=pytest.mark.long)]
)
SAMPLE = re.compile(r"(\{__name__=.*?\}) (\S+?)(?:,|\n|$)")


@functools.cache
def groups(steps: Steps) -> dict[tuple[str, str], dict[str, str]]:
    healthy, bad = steps
    vanishing = group("c", "x", healthy, bad // 2, 2, stalls=False)
    return {
        ("a", "x"): group("a", "x", healthy, bad, 1, stalls=True),
        ("b", "x"): group("b", "x", healthy + bad - 5, 5, 50, stalls=False),
        # Service discovery no longer finds its targets.
        ("c", "x"): {name: f"{values} stale" for name, values in vanishing.items()},
        ("a", "y"): group("a", "y", healthy + bad // 3, bad - bad // 3, 3, stalls=False, others=60),
    }


def printed(promtool: Promtool, series: Mapping[str, str], steps: Steps, spec: SloFile = FLEET) -> list[dict[str, str]]:
    """Recorded series and alerts at some steps, which promtool prints because no sample is expected."""
    case, (healthy, bad) = Case(spec, series, Pace(FLEET).step, sidecar_is_up=False), steps
    for step in (2, 3 * bad // 10, bad // 2, bad - 4, bad - 1):
        case.expect(Pace(FLEET).seconds(healthy + step), '{__name__=~".+:.+|ALERTS",severity!="none"}', {})
    return [dict(SAMPLE.findall(result)) for result in promtool.printed(case, prices=PRICES)]


Alone = Callable[[tuple[str, str], Steps], list[dict[str, str]]]


@pytest.fixture(scope="module")
def alone(programs: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Alone:
    """What a group gives without the others, computed once."""
    promtool = Promtool(programs, tmp_path_factory.mktemp("alone"))
    return functools.cache(lambda group, steps: printed(promtool, groups(steps)[group], steps))


def names(samples: Iterable[str], label: str) -> set[str]:
    return {match[1] for sample in samples if (match := re.search(rf'{label}="([^"]*)"', sample))}


@pytest.mark.long
@LENGTHS
def test_a_group_has_the_series_and_alerts_that_its_targets_alone_give(
    promtool: Promtool, alone: Alone, steps: Steps
) -> None:
    series = {name: values for each in groups(steps).values() for name, values in each.items()}
    together, seen = printed(promtool, series, steps), set[str]()
    for cluster, namespace in groups(steps):
        here = re.compile(rf'cluster="{cluster}".* namespace="{namespace}"')
        for all_groups, one_group in zip(together, alone((cluster, namespace), steps), strict=True):
            own = {sample: value for sample, value in one_group.items() if here.search(sample)}
            assert names({*one_group} - {*own}, "__name__") == CONSTANTS
            assert own
            assert {sample: value for sample, value in all_groups.items() if here.search(sample)} == own
            seen |= {*own}
    levels = {name.partition(":")[0] for name in names(seen, "__name__")}
    assert levels == {"ALERTS", *(each.name.partition(":")[0] for each in RECORDED if each.name not in CONSTANTS)}
    assert names(seen, "alertname") >= (RAISED if sum(steps) > 288 else RAISED - NEEDS_A_WEEK)


GROUP = re.compile(r' (?:cluster|namespace)="[^"]*",?')


@LENGTHS
def test_a_single_group_has_the_series_and_alerts_of_rules_without_groups(
    promtool: Promtool, alone: Alone, steps: Steps
) -> None:
    without_groups = printed(promtool, groups(steps)["a", "x"], steps, replace(FLEET, group_by=()))
    for own, expected in zip(alone(("a", "x"), steps), without_groups, strict=True):
        alike = {GROUP.sub("", sample).replace(",}", "}"): value for sample, value in own.items()}
        whole = {GROUP.sub("", sample).replace(",}", "}"): value for sample, value in expected.items()}
        assert {sample: value for sample, value in alike.items() if "llm_target:" not in sample} == whole


def scraped(cluster: str, values: str) -> dict[str, str]:
    """A sidecar and its engine with these values of `up`; with `stale` they have vanished."""
    here = f'cluster="{cluster}",job="vllm-slo-sidecar",instance="s:1"'
    return {
        f"up{{{here}}}": values,
        f'llm_engine_requests_running{{{here},engine="e",model="org/m",rank="0"}}': values,
    }


def test_a_cluster_whose_targets_have_all_vanished_pages_until_they_are_back(promtool: Promtool) -> None:
    spec = replace(LAB, group_by=("cluster",))
    scrape, wait = spec.scrape_interval, Plan.of(spec).down_after
    query = firing(str(AlertName.TARGETS_MISSING), "cluster, model")
    gone = constant(1, 40) + " stale" + " _x40 " + constant(1, 20)
    case = Case(spec, {**scraped("lost", gone), **scraped("kept", constant(1, 120))}, scrape, sidecar_is_up=False)
    case.expect(40 * scrape, query, {}).expect(41 * scrape + wait - scrape, query, {})
    case.expect(41 * scrape + wait + scrape, query, {'{cluster="lost", model="org/m"}': 1})
    case.expect_silent(41 * scrape + wait + scrape, "LLMSidecarDown")
    case.expect(80 * scrape, query, {'{cluster="lost", model="org/m"}': 1})
    promtool.test([case.expect(85 * scrape, query, {})])


def test_a_removed_cluster_pages_no_longer_than_a_120th_of_the_period(promtool: Promtool) -> None:
    spec = replace(LAB, group_by=("cluster",))
    scrape, query = spec.scrape_interval, firing(str(AlertName.TARGETS_MISSING), "cluster, model")
    case = Case(spec, scraped("lost", constant(1, 40) + " stale"), 5 * scrape, sidecar_is_up=False)
    end = 40 * scrape + Plan.of(spec).quarter_day
    assert Plan.of(spec).quarter_day == spec.period / 120
    case.expect(end - 10 * scrape, query, {'{cluster="lost", model="org/m"}': 1})
    promtool.test([case.expect(end + 10 * scrape, query, {})])


def test_without_a_sidecar_vanished_engines_page(promtool: Promtool) -> None:
    spec = replace(engine_only("0.25"), group_by=("cluster",))
    scrape, query = spec.scrape_interval, firing(str(AlertName.TARGETS_MISSING), "cluster, model")
    labels = 'job="vllm",instance="v:1",cluster="lost"'
    series = {
        f"up{{{labels}}}": constant(1, 40) + " stale",
        f'vllm:num_requests_running{{{labels},engine="0",model_name="org/m"}}': constant(1, 40) + " stale",
    }
    case = Case(spec, series, scrape, sidecar_is_up=False).expect(40 * scrape, query, {})
    at = 45 * scrape + Plan.of(spec).down_after
    promtool.test([case.expect(at, query, {'{cluster="lost", model="org/m"}': 1}).expect_silent(at, "LLMEngineDown")])


def test_without_any_target_ever_the_alert_on_down_targets_fires(promtool: Promtool) -> None:
    for spec, alert in ((LAB, "LLMSidecarDown"), (engine_only("0.25"), "LLMEngineDown")):
        fleet = replace(spec, group_by=("cluster",))
        case = Case(fleet, {}, spec.scrape_interval, sidecar_is_up=False)
        promtool.test([case.expect_firing(Plan.of(spec).down_after + 6 * spec.scrape_interval, alert)])


def test_a_small_cluster_that_is_fully_bad_pages_beside_a_large_healthy_one(promtool: Promtool) -> None:
    spec = replace(LAB, group_by=("cluster",))
    pace = Pace(spec)
    small = pace.slo_events((50, 2, 0), (12, 2, 1), more=',cluster="small",instance="s:1"')
    large = pace.slo_events((50, 1000, 0), (12, 1000, 0), more=',cluster="large",instance="s:1"')
    at, query = pace.seconds(62), firing("LLMErrorBudgetBurn", "cluster", severity="page")
    whole = Case(LAB, {**small, **large}, pace.step).expect(at, query, {})
    promtool.test([whole])
    promtool.test([Case(spec, {**small, **large}, pace.step).expect(at, query, {'{cluster="small"}': 1})])


def test_the_values_of_a_query_are_in_the_order_of_its_verbs() -> None:
    first = select("a", equal(Label.MODEL, AlertLabel(Label.MODEL))) * AlertValue()
    assert query(first.and_(B / select("c"), MODEL), ["cluster"]) == (
        "query (printf `a{cluster=%q,model=%q} * %f and on (cluster, model) b{cluster=%q} / c{cluster=%q}` "
        "$labels.cluster $labels.model $value $labels.cluster $labels.cluster)"
    )


def test_a_query_without_values_is_a_text_too() -> None:
    assert query(A, []) == "query (printf `a`)"
