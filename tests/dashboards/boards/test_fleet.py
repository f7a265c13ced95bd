"""The table with one row per engine: the results of its queries, and its columns."""

from typing import Any

from dashboards.boards.fleet import BOARD
from exporters.vocabulary.slo_file import SHIPPED, load, loads
from tests.dashboards.dashboard_files import Page, expanded_queries, page_of, panel
from tests.support.promtool import Case, Promtool, constant, counter

PAGE = page_of(BOARD)
SCRAPES = 40
NOW = 15.0 * SCRAPES

# Two sidecars whose engines have the same address, a gateway with two engines, and a sidecar that is down.
ONE, TWO, FIRST, SECOND = (
    f'engine="{engine}",instance="{instance}"'
    for engine, instance in (("e:1", "s:1"), ("e:1", "s:2"), ("a:1", "gw:1"), ("b:1", "gw:1"))
)


def requests(instance: str, each: int, good: int, failed: int, prompt: float) -> dict[str, str]:
    """Requests per scrape, how many are good and fail, and the bucket of all TTFTs in seconds."""

    def count(rate: float) -> str:
        return counter((rate, SCRAPES))

    who = f'model="m",class="siso",tenant="other",instance="{instance}"'
    of = f'model="m",class="siso",instance="{instance}"'
    return {
        f'llm_requests_total{{{who},outcome="ok",stream="true"}}': count(each - failed),
        f'llm_requests_total{{{who},outcome="upstream_error",stream="true"}}': count(failed),
        f"llm_goodput_events_total{{{who}}}": count(each),
        f"llm_goodput_requests_total{{{who}}}": count(good),
        f'llm_time_to_first_token_seconds_bucket{{{of},le="{prompt}"}}': count(each),
        f'llm_time_to_first_token_seconds_bucket{{{of},le="+Inf"}}': count(each),
    }


def engine(who: str, up: int, seqs: str) -> dict[str, str]:
    def rank(number: int, of: str = "") -> str:
        return f'{who},rank="{number}",model="m"{of}'

    return {
        f"llm_engine_up{{{who}}}": constant(up, SCRAPES),
        f'llm_engine_info{{{who},engine_type="vllm",version="0.32.0"}}': constant(1, SCRAPES),
        f'llm_engine_setting_info{{{who},setting="max_num_seqs",value="{seqs}"}}': constant(1, SCRAPES),
        f'llm_engine_setting_info{{{who},setting="dtype",value="auto"}}': constant(1, SCRAPES),
        **{f"llm_engine_requests_waiting{{{rank(number)}}}": constant(3, SCRAPES) for number in (0, 1)},
        **{
            f"llm_engine_kv_cache_usage_ratio{{{rank(number)}}}": constant((number + 1) / 4, SCRAPES)
            for number in (0, 1)
        },
        # one engine has 3 of 6 parts of the traffic, the others 1 each
        f"llm_engine_prompt_tokens_total{{{rank(0)}}}": counter((10 if who == ONE else 0, SCRAPES)),
        f"llm_engine_generation_tokens_total{{{rank(0)}}}": counter((5, SCRAPES)),
        f"llm_engine_prefix_cache_queries_tokens_total{{{rank(0)}}}": counter((30, SCRAPES)),
        f"llm_engine_prefix_cache_hits_tokens_total{{{rank(0)}}}": counter((15, SCRAPES)),
    }


SERIES = {
    **requests("s:1", 15, 15, 0, 0.5),
    **requests("s:2", 15, 0, 15, 2.0),
    **requests("gw:1", 0, 0, 0, 0.5),
    **engine(ONE, 1, "256"),
    **engine(TWO, 1, "128"),
    **engine(FIRST, 1, "256"),
    **engine(SECOND, 0, "256"),
    'up{job="vllm-slo-sidecar",instance="s:3"}': constant(0, SCRAPES),
}
ALL = (ONE, TWO, FIRST, SECOND)

ROWS: dict[str, dict[str, float]] = {
    "State": {ONE: 5, TWO: 5, FIRST: 5, SECOND: 3, 'engine="sidecar down",instance="s:3"': 0},
    "Waiting now": dict.fromkeys(ALL, 6),
    "KV cache now": dict.fromkeys(ALL, 0.5),
    "Traffic 1 min": {ONE: 0.5, TWO: 0.167, FIRST: 0.167, SECOND: 0.167},
    "Goodput 1 min": {ONE: 1, TWO: 0},
    "Failed 1 min": {ONE: 0, TWO: 1},
    "TTFT p95 1 min": {ONE: 0.475, TWO: 1.9},
    "Cache hits 1 min": dict.fromkeys(ALL, 0.5),
    "Drift": {ONE: 0, TWO: 1, FIRST: 0, SECOND: 0},
    "Type, Version": {f'{who},engine_type="vllm",version="0.32.0"': 1 for who in ALL},
}


TABLES = ("Engines", "Engine details")


def columns(page: Page, *titles: str) -> dict[str, dict[str, Any]]:
    """The properties of each column by its title, of all tables of engines or some."""
    columns_by_title: dict[str, dict[str, Any]] = {}
    for title in titles or TABLES:
        properties_by_field: dict[str, dict[str, Any]] = {}
        for override in panel(page, title)["fieldConfig"]["overrides"]:
            properties = properties_by_field.setdefault(override["matcher"]["options"], {})
            properties.update({each["id"]: each["value"] for each in override["properties"]})
        columns_by_title |= {properties["displayName"]: properties for properties in properties_by_field.values()}
    return columns_by_title


def queries_of_columns() -> dict[str, str]:
    return {name: query for title in TABLES for name, query in expanded_queries(PAGE, title).items()}


def test_every_query_returns_one_value_per_engine_of_a_sidecar(promtool: Promtool) -> None:
    queries, case = queries_of_columns(), Case(load(SHIPPED), SERIES, 15)
    for title, rows in ROWS.items():
        # a missing value is NaN
        values = f"round(({queries[title]}) >= 0, 0.001)"
        case.expect(NOW - 30, values, {f"{{{row}}}": value for row, value in rows.items()})
    promtool.test([case])


def test_a_setting_is_shown_only_where_engines_differ_in_it(promtool: Promtool) -> None:
    (query,) = expanded_queries(PAGE, "Settings that differ").values()
    settings = {("e:1", "s:1"): 256, ("e:1", "s:2"): 128, ("a:1", "gw:1"): 256, ("b:1", "gw:1"): 256}
    # of the value, which three engines have, and of the dtype of all four; the rows are sorted by it
    rarity = {256: 1 / 3 + 1 / 4, 128: 1 + 1 / 4}
    case = Case(load(SHIPPED), SERIES, 15).expect(
        NOW - 30,
        f"round(1e6 * ({query})) / 1e6",
        {
            f'{{engine="{engine} at {instance}",instance="{instance}",setting="max_num_seqs",value="{value}"}}': round(
                rarity[value], 6
            )
            for (engine, instance), value in settings.items()
        },
    )
    promtool.test([case])


def test_columns_have_units_and_the_limits_of_the_slo_file() -> None:
    text = """
version: 1
period: 30d
classes: [{name: chat}]
slos:
  - {name: fast, classes: [chat], signal: ttft, threshold: 300ms, objective: 90%}
  - {name: there, classes: [chat], signal: availability, objective: 99%}
"""
    column_properties = columns(page_of(BOARD, loads(text)))
    units = {title: properties["unit"] for title, properties in column_properties.items() if "unit" in properties}
    assert {title for title, unit in units.items() if unit == "percentunit"} == {
        *("Goodput 1 min", "Traffic 1 min", "KV cache now"),
        *("Failed 1 min", "Cache hits 1 min"),
    }
    assert units["TTFT p95 1 min"] == "suffix:s"
    limits = {
        title: [step["value"] for step in properties["thresholds"]["steps"][1:]]
        for title, properties in column_properties.items()
        if "thresholds" in properties
    }
    assert limits == {
        "State": [1, 2, 3, 4, 5],
        "Goodput 1 min": [0.8, 0.9],
        "Failed 1 min": [0.01, 0.02],
        "TTFT p95 1 min": [0.3],
        "KV cache now": [0.9],
        "Drift": [1],
    }


def test_every_column_remains_if_there_is_no_traffic(promtool: Promtool) -> None:
    idle = {series: samples for series, samples in SERIES.items() if series.startswith("llm_engine_up")}
    queries, case = queries_of_columns(), Case(load(SHIPPED), idle, 15)
    for title in ROWS.keys() - {"State", "Drift", "Type, Version"}:
        case.expect(NOW - 30, f"count({queries[title]})", {"{}": len(ALL)})
    promtool.test([case])


def test_engines_that_are_down_come_first_then_the_worst_goodput(promtool: Promtool) -> None:
    order = expanded_queries(PAGE, "Engines")["order of the rows"]
    ranks = {SECOND: -3, TWO: 0, ONE: 1, FIRST: 2}
    case = Case(load(SHIPPED), SERIES, 15)
    promtool.test([case.expect(NOW - 30, order, {f"{{{who}}}": rank for who, rank in ranks.items()})])
