"""Valid samples of an exposition are used, malformed lines are counted."""

import contextlib
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporters.engines.exposition import MAX_LINE_LENGTH
from exporters.engines.normalisation import normalise
from exporters.engines.state import FAILURES, FAULTS, EngineState
from exporters.vocabulary import signals
from tests.support.fake_engine import CACHING_OFF, CACHING_ON

RUNNING = 'vllm:num_requests_running{engine="0",model_name="m"}'
GOOD = 'vllm:num_requests_waiting{engine="0",model_name="m"} 4\n'
BUCKET = "vllm:time_to_first_token_seconds_bucket"


def test_two_recordings_differ_in_the_changed_settings() -> None:
    on, off = normalise(CACHING_ON).settings, normalise(CACHING_OFF).settings
    assert on.keys() == off.keys()
    assert {name: (on[name], off[name]) for name in on if on[name] != off[name]} == {
        "block_size": ("32", "64"),
        "effective_attention_block_size": ("32", "64"),
        "enable_prefix_caching": ("True", "False"),
        "num_gpu_blocks_override": ("96", "512"),
    }


def test_the_address_of_an_engine_is_no_setting() -> None:
    assert "engine" not in normalise(CACHING_ON).settings
    on_ray = (
        'ray_vllm_cache_config_info{block_size="16",engine="0",ReplicaId="a1",NodeAddress="10.0.0.1",WorkerId="w"} 1\n'
    )
    assert normalise(on_ray).settings == {"block_size": "16"}


def test_ranks_and_models_are_separate() -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="{model}"}} {value}\n'
        for rank, model, value in (("0", "a", 1), ("1", "a", 2), ("0", "b", 4))
    )
    assert normalise(page).values[signals.ENGINE_RUNNING] == {("0", "a"): 1.0, ("1", "a"): 2.0, ("0", "b"): 4.0}


@pytest.mark.parametrize(
    "labels, tokens",
    [
        pytest.param('kv_cache_size_tokens="3072",num_gpu_blocks="1",block_size="1"', {"0": 3072.0}, id="a label"),
        pytest.param('num_gpu_blocks="96",block_size="32"', {"0": 3072.0}, id="blocks x block size"),
        pytest.param('num_gpu_blocks="96",block_size="16",engine="1"', {"1": 1536.0}, id="with a rank"),
        pytest.param('num_gpu_blocks="None",block_size="32"', {}, id="not profiled yet"),
        pytest.param('kv_cache_size_tokens="-5"', {}, id="negative"),
        pytest.param('kv_cache_size_tokens="1.7e308"', {}, id="absurd"),
        pytest.param('block_size="32"', {}, id="no label"),
    ],
)
def test_the_capacity_of_the_kv_cache_is_a_label_or_calculated_or_absent(labels: str, tokens: dict[str, float]) -> None:
    assert normalise(f"vllm:cache_config_info{{{labels}}} 1\n").kv_capacity == tokens


@pytest.mark.parametrize(
    "malformed, faults",
    [
        pytest.param("vllm:num_requests_running{engine=\n", {"line": 1}, id="half a line"),
        pytest.param(f"{RUNNING} \n", {"line": 1}, id="no value"),
        pytest.param(f"{RUNNING} seven\n", {"line": 1}, id="a value that is not a number"),
        pytest.param(f"{RUNNING} 12", {"line": 1}, id="truncated, perhaps within the number"),
        pytest.param(f'{RUNNING[:-3]}\ufffd"}} 3\n', {"line": 1}, id="a label with invalid UTF-8"),
        pytest.param(f'{RUNNING[:-3]}{"m" * MAX_LINE_LENGTH}"}} 3\n', {"line": 1}, id="a line that is too long"),
        pytest.param("<p>\n<p>\n", {"line": 2}, id="two lines of HTML"),
        pytest.param(f"{RUNNING} NaN\n", {"value": 1}, id="NaN"),
        pytest.param(f"{RUNNING} +Inf\n", {"value": 1}, id="infinite"),
        pytest.param(f"{RUNNING} -1\n", {"value": 1}, id="negative"),
        pytest.param(f"{RUNNING} 1.7e308\n", {"value": 1}, id="absurd"),
        pytest.param(f'{BUCKET}{{le="1"}} 1\n', {"histogram": 1}, id="a histogram without +Inf"),
        pytest.param(
            f'{BUCKET}{{le="1"}} 2\n{BUCKET}{{le="+Inf"}} 1\n', {"histogram": 1}, id="a histogram whose counts decrease"
        ),
        pytest.param(f'{BUCKET}{{le="wide"}} 1\n', {"histogram": 1}, id="a bound that is not a number"),
        pytest.param(f"{BUCKET} 1\n", {"histogram": 1}, id="a bucket without a bound"),
    ],
)
def test_a_malformed_line_is_skipped_and_counted(malformed: str, faults: dict[str, int]) -> None:
    metrics = normalise(GOOD + malformed)
    assert metrics.values == {signals.ENGINE_WAITING: {("0", "m"): 4.0}}
    assert metrics.distributions == {}
    assert +metrics.faults == Counter(faults)
    assert set(faults) <= set(FAULTS)


def test_a_duplicate_sample_counts_once() -> None:
    metrics = normalise(f"{RUNNING} 3\n{RUNNING} 5\n")
    assert metrics.values == {signals.ENGINE_RUNNING: {("0", "m"): 3.0}}
    assert +metrics.faults == {"duplicate": 1}


def test_the_end_mark_of_openmetrics_needs_no_newline() -> None:
    assert not normalise(f"{GOOD}# EOF").faults


def test_families_that_are_not_read_may_have_any_value() -> None:
    """SGLang's `fwd_occupancy` is NaN unless a timer is on."""
    assert not +normalise(f"{GOOD}sglang:fwd_occupancy NaN\nother -1\nother -1\n").faults


def test_a_wrong_type_line_is_ignored() -> None:
    assert normalise(f"# TYPE vllm:num_requests_waiting histogram\n{GOOD}").values == normalise(GOOD).values


def test_an_exposition_without_samples_is_valid() -> None:
    assert (normalise("").values, normalise("# TYPE a gauge\n").type_name) == ({}, "unknown")


@pytest.mark.parametrize(
    "text",
    [
        "<html>not found</html>\n",
        "vllm:num_requests_running{ 3\n",
        "a b\n",
        "\ufffd\ufffd\x00",
        '[{"iterLatencyMS": 12.5}]\n',
        f"{RUNNING} 12",
    ],
)
def test_a_text_that_is_not_an_exposition_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="no line is a sample"):
        normalise(text)


LINES = st.lists(
    st.one_of(
        st.text(alphabet='ab_:{}="\\,# 0.1e+NaInf\t\x00\u2028', max_size=30),
        st.sampled_from(CACHING_ON.splitlines()),
        st.sampled_from(["# TYPE", "# HELP a", "# TYPE a histogram", "# EOF", 'a{b="c"', "a{} 1 2 3"]),
        st.sampled_from(
            [f'{BUCKET}{{le="{bound}"}} {count}' for bound in ("1", "x", "+Inf", "NaN") for count in (0, 5)]
        ),
    ),
    max_size=8,
)


@pytest.mark.slow
@given(LINES)
def test_any_text_is_parsed_or_rejected(lines: list[str]) -> None:
    with contextlib.suppress(ValueError):
        metrics = normalise("\n".join(lines) + "\n")
        assert set(metrics.faults) <= set(EngineState("e").errors) == {*FAILURES, *FAULTS}
