"""The series of the sidecar for the exposition of each engine and version."""

import re

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from exporters.engines.normalisation import Distribution, normalise
from exporters.engines.signal_table import ENGINE_TYPES, SIGNALS, VLLM
from exporters.engines.table_schema import Family, Row
from exporters.engines.vllm_buckets import family as family_of
from exporters.engines.vllm_buckets import order
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Kind
from tests.contract.expositions import PAGES, RECORDED, VLLM_VERSIONS
from tests.contract.golden_pages import GOLDEN, exposed

MODEL = "org/model"


@pytest.mark.parametrize("name", PAGES)
def test_an_exposition_gives_the_series_of_its_golden_file(name: str) -> None:
    metrics = normalise(PAGES[name])
    assert exposed(metrics) == (GOLDEN / f"{name}.prom").read_text()
    assert not +metrics.faults


def test_every_golden_file_has_an_exposition() -> None:
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.prom" for name in PAGES}


# On Ray, a counter has two names.
@pytest.mark.parametrize("name", [name for name in PAGES if name != "ray-serve-llm"])
def test_the_same_metrics_in_openmetrics_give_the_same_series(name: str) -> None:
    text = PAGES[name]

    class Parsed(Collector):
        def collect(self) -> list[Metric]:
            return list(text_string_to_metric_families(text))

    registry = CollectorRegistry()
    registry.register(Parsed())
    openmetrics = generate_openmetrics(registry).decode()  # type: ignore[no-untyped-call]  # it has no annotations
    assert openmetrics.endswith("# EOF\n")
    assert exposed(normalise(openmetrics)) == exposed(normalise(text))


@pytest.mark.parametrize("openmetrics", [False, True], ids=["text", "openmetrics"])
def test_created_samples_and_exemplars_are_ignored(openmetrics: bool) -> None:
    registry = CollectorRegistry()
    labels = {"model_name": MODEL, "engine": "0"}
    Counter("vllm:prompt_tokens", "Tokens.", labels, registry=registry).labels(**labels).inc(7, {"trace_id": "a # {b"})
    ttft = Histogram("vllm:time_to_first_token_seconds", "TTFT.", labels, registry=registry, buckets=(0.5, 1.0))
    ttft.labels(**labels).observe(0.7, {"trace_id": "a1"})
    text = (generate_openmetrics if openmetrics else generate_latest)(registry).decode()
    assert "_created" in text
    assert ("# {" in text) is openmetrics
    metrics = normalise(text)
    assert metrics.values == {signals.ENGINE_PROMPT_TOKENS: {("0", MODEL): 7.0}}
    assert metrics.distributions == {
        signals.ENGINE_TTFT: {("0", MODEL): Distribution(((0.5, 0.0), (1.0, 1.0), (float("inf"), 1.0)), 0.7)}
    }


@pytest.mark.parametrize("version", VLLM_VERSIONS)
def test_the_versions_in_the_table_match_the_recorded_families(version: str) -> None:
    recorded = {name for name, family in RECORDED["families"].items() if version in family["in"].split()}
    for row in VLLM.rows:
        for family in row.families:
            since, until = order(family.since or "0"), order(family.until or "999")
            name = family.name.removeprefix("vllm:").removesuffix("_sum")
            is_recorded = bool({name, name.removesuffix("_total")} & recorded)
            assert is_recorded is (since <= order(version) <= until), family.name


def selector(family: Family) -> str:
    """The family's name, with the label of its `only`."""
    return family.name + ('{{{}="{}"}}'.format(*family.only) if family.only else "")


TWO_NAMES = [
    pytest.param(row.signal, newer, older, id=f"{engine.name} {selector(newer)} {selector(older)}")
    for engine in ENGINE_TYPES
    for row in engine.rows
    for newer, older in zip(row.families, row.families[1:], strict=False)
    if row.signal.kind is not Kind.HISTOGRAM and newer.name.startswith(engine.prefixes)
]


@pytest.mark.parametrize("signal, newer, older", TWO_NAMES)
def test_the_newer_of_two_names_is_used(signal: signals.Signal, newer: Family, older: Family) -> None:
    both = f"{selector(newer)} 3\n{selector(older)} 5\n"
    assert list(normalise(both).values[signal].values()) == [3.0]
    only_declared = f"# TYPE {newer.name} untyped\n{selector(older)} 5\n"
    assert list(normalise(only_declared).values[signal].values()) == [5.0]


def lines(name: str, labels: str, **values: float) -> str:
    """Samples of a metric by the value of one more label; `labels` has a place for it."""
    return "".join(f"{name}{{{labels.format(value)}}} {number}\n" for value, number in values.items())


RANK = 'engine="0",model_name="m",'
SGLANG = 'model_name="m",dp_rank="0",tp_rank="%s",mode="{}"'
MODES = {"prefill_compute": 100, "prefill_cache": 900, "decode": 50}


@pytest.mark.parametrize(
    "text, values",
    [
        pytest.param(
            lines("vllm:num_requests_running", RANK + 'pid="{}"', a=3, b=5)
            + lines("vllm:kv_cache_usage_perc", RANK + 'pid="{}"', a=0.25, b=0.75),
            {signals.ENGINE_RUNNING: {("0", "m"): 5.0}, signals.ENGINE_KV_USAGE: {("0", "m"): 0.75}},
            id="the maximum of the gauges of several processes",
        ),
        pytest.param(
            lines("vllm:prompt_tokens_total", RANK + 'pid="{}"', a=7, b=8),
            {signals.ENGINE_PROMPT_TOKENS: {("0", "m"): 15.0}},
            id="the sum of the counters of several processes",
        ),
        pytest.param(
            lines("vllm:num_requests_waiting_by_reason", RANK + 'reason="{}"', capacity=7, deferred=2),
            {signals.ENGINE_DEFERRED: {("0", "m"): 2.0}},
            id="only waiting requests that are skipped are deferred",
        ),
        pytest.param(
            lines(
                "vllm:admission_rejections_total", 'model_name="m",reason="{}"', max_num_queued_reqs=7, new=4, newer=5
            ),
            {signals.ENGINE_REJECTIONS: {("0", "m", "max_num_queued_reqs"): 7.0, ("0", "m", "other"): 9.0}},
            id="known values of a label of the engine",
        ),
        pytest.param(
            "".join(lines("sglang:realtime_tokens_total", SGLANG % rank, **MODES) for rank in "01"),
            {
                signals.ENGINE_PROMPT_TOKENS_BY_SOURCE: {
                    ("0", "m", "local_compute"): 100.0,
                    ("0", "m", "local_cache_hit"): 900.0,
                }
            },
            id="output tokens of SGLang are no prompt tokens",
        ),
        pytest.param(
            lines("tgi_request_failure", 'err="{}"', validation=3, overloaded=4),
            {signals.ENGINE_REJECTIONS: {("0", "other", "overloaded"): 4.0}},
            id="only overload failures of TGI are rejections",
        ),
    ],
)
def test_samples_that_differ_in_other_labels_give_these_values(text: str, values: dict[signals.Signal, object]) -> None:
    assert normalise(text).values == values


def test_histograms_of_one_rank_are_added_at_their_shared_bounds() -> None:
    text = "".join(
        f'vllm:time_to_first_token_seconds_bucket{{pid="{pid}",le="{bound}"}} {count}\n'
        for pid, buckets in enumerate(({"0.1": 1, "1": 2, "+Inf": 4}, {"0.5": 10, "1.0": 20, "+Inf": 30}))
        for bound, count in buckets.items()
    )
    assert normalise(text).distributions[signals.ENGINE_TTFT] == {
        ("0", "other"): Distribution(((1.0, 22.0), (float("inf"), 34.0)), None)
    }


@pytest.mark.parametrize("name", ["vllm-0.25.1-recorded", "vllm-0.32.0-recorded", "vllm-0.32.0-connector-recorded"])
def test_the_sources_of_prompt_tokens_add_up_to_all_prompt_tokens(name: str) -> None:
    values = normalise(PAGES[name]).values
    prompt_tokens = sum(values[signals.ENGINE_PROMPT_TOKENS].values())
    assert prompt_tokens > 0
    assert sum(values[signals.ENGINE_PROMPT_TOKENS_BY_SOURCE].values()) == prompt_tokens


def test_offload_bytes_have_the_older_name_until_the_newer_one_has_a_sample() -> None:
    head = "# TYPE vllm:kv_offload_load_bytes_total counter\n"
    older = 'vllm:kv_offload_total_bytes_total{model_name="m",transfer_type="CPU_to_GPU"} 0\n'
    assert normalise(head + older).values == {signals.ENGINE_OFFLOAD_LOADED: {("0", "m"): 0.0}}
    newer = 'vllm:kv_offload_load_bytes_total{model_name="m"} 8\n'
    assert normalise(head + newer + older).values == {signals.ENGINE_OFFLOAD_LOADED: {("0", "m"): 8.0}}


def lora_list(
    running: str, waiting: str, at: float, limit: str = 'max_lora="4",', name: str = "vllm:lora_requests_info"
) -> str:
    return f'{name}{{{limit}running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"}} {at}\n'


@pytest.mark.parametrize(
    "text, adapters, limit",
    [
        pytest.param(lora_list("", "", 1.79e9), 0.0, 4.0, id="no open request"),
        pytest.param(lora_list("a,b", "a,b", 1.79e9), 2.0, 4.0, id="V1: both lists have the running adapters"),
        pytest.param(lora_list("a,b", "b,c", 1.79e9), 2.0, 4.0, id="V0: waiting adapters"),
        pytest.param(lora_list("a,b", "a,b", 1.79e9) + lora_list("", "", 1.79e9 - 1), 2.0, 4.0, id="an older list"),
        pytest.param(
            lora_list("a,b", "", 1.79e9, 'max_lora="4",ReplicaId="r1",', "ray_vllm_lora_requests_info")
            + lora_list("b,c", "", 1.79e9 - 9, 'max_lora="4",ReplicaId="r2",', "ray_vllm_lora_requests_info"),
            3.0,
            4.0,
            id="the newest list of each replica on Ray",
        ),
        pytest.param(lora_list("a", "", 1.79e9, limit=""), 1.0, None, id="the Rust frontend has no limit"),
        pytest.param(lora_list("", "", 1.79e9, limit='max_lora="0",'), None, None, id="V0 without LoRA"),
        pytest.param(
            lora_list("a", "a", 1.79e9) + lora_list("", "", 2 * 1.79e9),
            None,
            None,
            id="several API servers, whose times vLLM adds",
        ),
        pytest.param(
            lora_list("", "", 1.79e9 - 1) + lora_list("a" * 20_000, "", 1.79e9),
            None,
            None,
            id="the newest list is too long to be read",
        ),
    ],
)
def test_running_lora_adapters_are_counted(text: str, adapters: float | None, limit: float | None) -> None:
    expected = {signals.ENGINE_LORA_RUNNING: adapters, signals.ENGINE_LORA_LIMIT: limit}
    metrics = normalise(text)
    assert metrics.lora == {signal: value for signal, value in expected.items() if value is not None}
    assert metrics.exposed == metrics.lora.keys()


@pytest.mark.parametrize("row", VLLM.rows, ids=lambda row: row.signal.name)
def test_a_missing_family_has_no_series(row: Row) -> None:
    names = "|".join(family.name for family in row.families)
    # 0.11.0 has the old names, too.
    whole = PAGES["vllm-0.11.0" if family_of(row, "0.11.0") else "vllm-0.33.0"]
    text = re.sub(rf"(?m)^(# \w+ )?({names})(_bucket|_count|_sum)?[ {{].*\n", "", whole)
    before, after = normalise(whole), normalise(text)
    assert before.exposed - after.exposed == {row.signal}
    assert not re.search(rf"(?m)^{row.signal.name}(_count)?{{", exposed(after))


def test_a_counter_with_labels_is_exposed_before_its_first_event() -> None:
    text = "# TYPE sglang:cached_tokens_total counter\nsglang:num_queue_reqs 0\n"
    metrics = normalise(text)
    assert signals.ENGINE_CACHE_HITS in metrics.exposed
    assert signals.ENGINE_CACHE_HITS not in metrics.values


def test_a_worker_of_dynamo_is_recognised_as_the_engine_inside_it() -> None:
    assert normalise(PAGES["dynamo"] + PAGES["vllm-0.33.0"]).type_name == "vllm"


def test_the_exposition_of_another_program_is_an_unknown_engine_without_signals() -> None:
    metrics = normalise("# TYPE other_thing gauge\nother_thing 1\n")
    assert (metrics.type_name, metrics.values, metrics.exposed) == ("unknown", {}, frozenset())


def test_several_engines_share_each_family() -> None:
    lines = exposed(normalise(PAGES["vllm-0.33.0"]), normalise(PAGES["tgi"])).splitlines()
    assert {'llm_engine_up{engine="e0"} 1.0', 'llm_engine_up{engine="e1"} 1.0'} <= set(lines)
    assert len(lines) == len(set(lines))


NOT_IN_ROWS = {signals.ENGINE_KV_CAPACITY, signals.ENGINE_LORA_RUNNING, signals.ENGINE_LORA_LIMIT}


def test_the_list_of_signals_contains_every_signal_of_the_table() -> None:
    assert {row.signal for engine in ENGINE_TYPES for row in engine.rows} | NOT_IN_ROWS == set(SIGNALS)


def test_signals_and_families_have_the_same_type() -> None:
    for name, text in PAGES.items():
        types = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
        for row in next(engine for engine in ENGINE_TYPES if engine is normalise(text).engine_type).rows:
            for family in row.families:
                kind = types.get(family.name) or types.get(family.name.removesuffix("_sum"))
                expected = {row.signal.kind.value} | ({"histogram"} if family.name.endswith("_sum") else set())
                assert kind is None or kind in expected, (name, family.name)


def test_escaped_label_values_are_unescaped() -> None:
    registry = CollectorRegistry()
    Gauge("vllm:num_requests_running", "R.", ["model_name"], registry=registry).labels('a"b\\c\nd').set(2)
    assert normalise(generate_latest(registry).decode()).values[signals.ENGINE_RUNNING] == {("0", 'a"b\\c\nd'): 2.0}
