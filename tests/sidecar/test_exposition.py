"""An engine's own metrics read into our words, from recorded pages of vLLM 0.32."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters import signals
from exporters.engines.exposition import LABELS_OF_VALUES, VLLM, read
from exporters.signals import Kind
from tests.sidecar.engine import CACHING_OFF, CACHING_ON

KEY = ("0", "tiny")


def test_a_recorded_page_of_vllm_gives_these_values() -> None:
    reading = read(CACHING_ON)
    assert reading.values == {
        signals.ENGINE_RUNNING: {KEY: 0.0},
        signals.ENGINE_WAITING: {KEY: 0.0},
        signals.ENGINE_KV_USAGE: {KEY: 0.0},
        signals.ENGINE_PREEMPTIONS: {KEY: 2.0},
        signals.ENGINE_CACHE_QUERIES: {KEY: 7039.0},
        signals.ENGINE_CACHE_HITS: {KEY: 928.0},
        signals.ENGINE_PROMPT_TOKENS: {KEY: 7039.0},
        signals.ENGINE_GENERATION_TOKENS: {KEY: 13331.0},
    }
    assert (reading.engine_type, reading.start_time, reading.kv_capacity) == ("vllm", 1795226696.52, {"0": 3072.0})


def test_two_recorded_pages_differ_in_the_settings_that_were_changed() -> None:
    on, off = read(CACHING_ON).settings, read(CACHING_OFF).settings
    assert on.keys() == off.keys()
    assert {name: (on[name], off[name]) for name in on if on[name] != off[name]} == {
        "block_size": ("32", "64"),
        "effective_attention_block_size": ("32", "64"),
        "enable_prefix_caching": ("True", "False"),
        "num_gpu_blocks_override": ("96", "512"),
    }


def test_the_rank_is_no_setting() -> None:
    assert "engine" not in read(CACHING_ON).settings


@pytest.mark.parametrize(
    "signal, newer, older",
    [(signal, names[0], names[1]) for signal, names in VLLM.items() if len(names) > 1],
    ids=lambda value: getattr(value, "name", ""),
)
def test_of_two_spellings_present_at_once_only_the_newer_counts(signal: signals.Signal, newer: str, older: str) -> None:
    both = f'{older}{{model_name="m"}} 5\n{newer}{{model_name="m"}} 3\n'
    assert read(both).values == {signal: {("0", "m"): 3.0}}
    assert read(f'{older}{{model_name="m"}} 5\n').values == {signal: {("0", "m"): 5.0}}


def test_ranks_and_models_stay_apart() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="{model}"}} {value}\n'
        for rank, model, value in (("0", "a", 1), ("1", "a", 2), ("0", "b", 4))
    )
    assert read(page).values[signals.ENGINE_RUNNING] == {("0", "a"): 1.0, ("1", "a"): 2.0, ("0", "b"): 4.0}


@pytest.mark.parametrize(
    "labels, tokens",
    [
        pytest.param('kv_cache_size_tokens="3072",num_gpu_blocks="1",block_size="1"', {"0": 3072.0}, id="stated"),
        pytest.param('num_gpu_blocks="96",block_size="32"', {"0": 3072.0}, id="blocks x block size"),
        pytest.param('num_gpu_blocks="96",block_size="16",engine="1"', {"1": 1536.0}, id="of its rank"),
        pytest.param('num_gpu_blocks="None",block_size="32"', {}, id="not known yet"),
        pytest.param('block_size="32"', {}, id="not there"),
    ],
)
def test_the_size_of_the_kv_cache_is_read_or_worked_out_or_absent(labels: str, tokens: dict[str, float]) -> None:
    assert read(f"vllm:cache_config_info{{{labels}}} 1\n").kv_capacity == tokens


def test_an_engine_that_shows_nothing_of_ours_has_no_values_at_all() -> None:
    reading = read("# TYPE other_thing gauge\nother_thing 1\n")
    assert (reading.values, reading.settings, reading.start_time, reading.engine_type) == ({}, {}, None, "unknown")


@pytest.mark.parametrize("text", ["<html>not found</html>\n", "vllm:num_requests_running{ 3\n", "a b\n"])
def test_what_is_no_exposition_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        read(text)


LINES = st.lists(
    st.one_of(
        st.text(alphabet='ab_:{}="\\,# 0.1e+NaInf\t', max_size=30),
        st.sampled_from(CACHING_ON.splitlines()),
        st.sampled_from(["# TYPE", "# HELP a", "# TYPE a histogram", "# EOF", 'a{b="c"', "a{} 1 2 3"]),
    ),
    max_size=8,
)


@given(LINES)
def test_whatever_a_page_holds_it_is_read_or_refused(lines: list[str]) -> None:
    with contextlib.suppress(ValueError):
        read("\n".join(lines) + "\n")


def test_every_signal_of_the_table_has_the_labels_that_the_scraper_fills_in() -> None:
    assert {signal.labels for signal in VLLM} == {LABELS_OF_VALUES}


def test_counters_are_read_from_samples_that_are_counters() -> None:
    assert {
        (signal.kind is Kind.COUNTER, name.endswith("_total")) for signal, names in VLLM.items() for name in names
    } == {(True, True), (False, False)}
