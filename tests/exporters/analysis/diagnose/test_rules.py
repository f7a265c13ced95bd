"""The rules of a diagnosis as tables: the figures of a class and of its engine, and what binds it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.analysis.diagnose.evidence import ClassEvidence, EngineEvidence, Fact
from exporters.analysis.diagnose.rules import Binding, diagnose

WAITS = {"first_token_burn": 10.0, "queue_share": 0.9, "prefill_share": 0.08, "frontend_share": 0.02}
PREFILLS = {"first_token_burn": 10.0, "queue_share": 0.1, "prefill_share": 0.88, "frontend_share": 0.02}
DECODES = {"decode_burn": 10.0, "decode_share": 0.9, "tpot": 0.1}


def known(**values: float) -> dict[str, Fact]:
    return {name: Fact(value, "test") for name, value in values.items()}


def of_class(**values: float) -> ClassEvidence:
    return ClassEvidence(name="siso", **known(**{"requests": 100.0, **values}))


def of_engine(settings: dict[str, str], **values: float) -> EngineEvidence:
    return EngineEvidence(settings=settings, **known(**values))


@pytest.mark.parametrize(
    "values, engine, expected",
    [
        # Bad ends
        pytest.param({"requests": 19}, {}, "unknown: None", id="too few requests"),
        pytest.param({"failed": 0.05} | WAITS, {}, "engine errors: the engine's fault", id="5 % failed"),
        pytest.param(
            {"failed": 0.5, "failed_time": 0.1} | WAITS, {}, "queue: more capacity", id="a restart in an overload"
        ),
        pytest.param(WAITS, {"unusable": 0.05}, "engine errors: the engine's fault", id="a wedged engine"),
        pytest.param(WAITS, {"unusable": 0.04}, "queue: more capacity", id="a short restart"),
        pytest.param({"failed": 0.5, "failed_time": 0.11} | WAITS, {}, "engine errors: the engine's fault"),
        pytest.param({"failed": 0.5, "failed_time": 0.0}, {}, "engine errors: the engine's fault", id="a restart"),
        pytest.param({"failed": 0.049} | WAITS, {}, "queue: more capacity", id="fewer failed"),
        pytest.param({"requests": 40, "failed": 0.1} | WAITS, {}, "queue: more capacity", id="4 of 40 failed"),
        pytest.param({"rejected": 0.2}, {}, "admission: more capacity", id="rejected, engine unknown"),
        pytest.param(
            {"rejected": 0.2}, {"kv_use": 0.5, "waiting": 0}, "admission: raise the limit that rejects", id="idle"
        ),
        pytest.param({"rejected": 0.2}, {"kv_use": 0.5, "waiting": 9}, "admission: more capacity", id="queue"),
        pytest.param({"rejected": 0.2}, {"kv_use": 0.9, "waiting": 0}, "admission: more capacity", id="KV"),
        pytest.param({"client_errors": 0.3}, {}, "client: the requests", id="client errors"),
        pytest.param({"client_paused": 0.25}, {}, "client: the client", id="a slow reader"),
        pytest.param({"aborted": 0.1, "decode_burn": 0.5}, {}, "client: the client", id="aborts in time"),
        pytest.param({"aborted": 0.5} | WAITS, {}, "queue: more capacity", id="aborts of those that waited"),
        pytest.param({"invalid_output": 0.01}, {}, "invalid output: structured outputs", id="invalid"),
        pytest.param(
            {"invalid_output": 0.1, "invalid_tool_calls": 0.5}, {}, "invalid output: tool parser of the model"
        ),
        pytest.param({"truncated_output": 0.1}, {}, "invalid output: higher max_tokens", id="cut"),
        pytest.param({"requests": 6, "open_waiting": 14, "oldest_wait": 90} | WAITS, {}, "queue: more capacity"),
        # Nothing to do
        pytest.param(
            WAITS | {"first_token_burn": 0.0, "open_waiting": 50, "oldest_wait": 60}, {}, "queue: more capacity"
        ),
        pytest.param(
            WAITS | {"first_token_burn": 0.0, "open_waiting": 50, "oldest_wait": 59}, {}, "nothing: None", id="new"
        ),
        pytest.param(
            WAITS | {"first_token_burn": 0.0, "open_waiting": 4, "oldest_wait": 90}, {}, "nothing: None", id="four wait"
        ),
        pytest.param(DECODES | {"decode_burn": 1.0}, {}, "nothing: None", id="the budget is just kept"),
        pytest.param(DECODES | {"decode_burn": 1.1}, {}, "decode: speculative decoding", id="and not kept"),
        pytest.param(DECODES | {"decode_burn": 0.0, "other_burn": 2.0}, {}, "decode: speculative decoding", id="E2E"),
        # Before the first token
        pytest.param(PREFILLS, {}, "prefill: faster prefill", id="prefill"),
        pytest.param(WAITS | {"frontend_share": 0.95}, {}, "front end: more front-end processes", id="front end"),
        pytest.param(WAITS | DECODES | {"no_first_token": 0.3}, {}, "queue: more capacity", id="no first token"),
        pytest.param(
            WAITS | DECODES | {"first_token_burn": 0.0, "decode_burn": 9.0}, {}, "decode: speculative decoding"
        ),
        pytest.param({"ttft": 9.0}, {}, "unknown: None", id="no times of the engine"),
        pytest.param({"ttft": 9.0}, {"waiting": 1.0}, "queue: more capacity", id="a queue in the engine"),
        pytest.param({"ttft": 9.0}, {"queue": 0.1, "prefill": 3.0}, "prefill: faster prefill", id="engine histograms"),
        pytest.param({"ttft": 9.0}, {"queue": 5.0, "prefill": 3.0}, "queue: more capacity", id="the same, queue"),
        # The KV cache
        pytest.param(WAITS, {"preemptions": 0.01}, "KV cache: KV cache in FP8", id="preemptions"),
        pytest.param(WAITS, {"preemptions": 0.009}, "queue: more capacity", id="few preemptions"),
        pytest.param(WAITS, {"kv_use": 0.95, "waiting": 1}, "KV cache: KV cache in FP8", id="full, with a queue"),
        pytest.param(WAITS, {"kv_use": 0.95}, "queue: more capacity", id="full, no queue"),
        pytest.param(PREFILLS, {"kv_use": 1.0, "waiting": 9}, "prefill: faster prefill", id="prefill dominates"),
        pytest.param(DECODES, {"preemptions": 0.5}, "KV cache: KV cache in FP8", id="preempted in decode"),
        pytest.param(
            DECODES, {"preemptions": 0.5, "kv_use": 1.0, "waiting": 9}, "KV cache: KV cache in FP8", id="and a queue"
        ),
        pytest.param(DECODES, {"kv_use": 1.0, "waiting": 9}, "decode: speculative decoding", id="decode at full KV"),
    ],
)
def test_what_binds(values: dict[str, float], engine: dict[str, float], expected: str) -> None:
    found = diagnose(of_class(**values), of_engine({}, **engine))
    assert f"{found.binding}: {found.choice and found.choice.lever.name}" == expected


ON, OFF = {"enable_prefix_caching": "True"}, {"enable_prefix_caching": "False"}
CHUNKED = {"enable_chunked_prefill": "True"}


@pytest.mark.parametrize(
    "values, settings, engine, lever",
    [
        pytest.param(WAITS | {"repeated_bodies": 0.5}, {}, {"possible_hits": 0.9}, "response cache", id="same bodies"),
        pytest.param(
            WAITS | {"repeated_bodies": 0.9, "cached_answers": 0.8}, {}, {}, "more capacity", id="same bodies, cached"
        ),
        # A class gains from the hits of the others, whose prompts it waits for.
        pytest.param(
            WAITS | {"possible_hits": 0.0}, OFF, {"possible_hits": 0.7}, "prefix caching", id="hits of other classes"
        ),
        pytest.param(WAITS, OFF, {}, "prefix caching", id="off, possible unknown"),
        pytest.param(WAITS, {}, {"possible_hits": 0.7}, "prefix caching", id="switch and actual hits unknown"),
        pytest.param(WAITS, OFF, {"possible_hits": 0.29}, "more capacity", id="off, little to share"),
        pytest.param(WAITS, ON, {"possible_hits": 0.7, "cache_hits": 0.6}, "more capacity", id="on, and it hits"),
        pytest.param(
            WAITS, ON, {"possible_hits": 0.7, "cache_hits": 0.45}, "keep prefixes in the cache", id="on, and it misses"
        ),
        pytest.param(
            WAITS | {"other_prompt": 1500.0}, {}, {"cache_hits": 0.0}, "prefix caching", id="no hit with long prompts"
        ),
        pytest.param(WAITS | {"prompt_p50": 90.0}, {}, {"cache_hits": 0.0}, "more capacity", id="none with short ones"),
        pytest.param(
            WAITS, {}, {"running": 63, "max_num_seqs": 64, "kv_use": 0.3}, "larger batch", id="the batch is full"
        ),
        pytest.param(
            WAITS, {}, {"running": 63, "max_num_seqs": 64, "kv_use": 0.8}, "more capacity", id="and so is the cache"
        ),
        pytest.param(WAITS, {}, {"running": 60, "max_num_seqs": 64}, "more capacity", id="the batch has room"),
        pytest.param(
            WAITS | {"prompt_p95": 200, "output_p95": 800},
            {},
            {"running": 64, "running_p50": 61},
            "larger batch",
            id="a constant batch of short requests",
        ),
        pytest.param(
            WAITS | {"prompt_p95": 200, "output_p95": 900},
            {},
            {"running": 64, "running_p50": 61},
            "more capacity",
            id="longer requests",
        ),
        pytest.param(
            WAITS | {"prompt_p95": 200, "output_p95": 800},
            {},
            {"running": 64, "running_p50": 60},
            "more capacity",
            id="a batch that varies",
        ),
        pytest.param(
            WAITS | {"prompt_p50": 512, "other_prompt": 2048}, CHUNKED, {}, "separate engines for long prompts"
        ),
        pytest.param(
            PREFILLS | {"prompt_p50": 99, "other_prompt": 4096}, CHUNKED, {}, "separate engines for long prompts"
        ),
        pytest.param(WAITS | {"prompt_p50": 513, "other_prompt": 2048}, CHUNKED, {}, "more capacity", id="not longer"),
        pytest.param(WAITS | {"prompt_p50": 99, "other_prompt": 2047}, CHUNKED, {}, "more capacity", id="not long"),
        pytest.param(
            PREFILLS | {"possible_hits": 0.7}, OFF, {"possible_hits": 0.0}, "prefix caching", id="its own hits"
        ),
        pytest.param(
            WAITS | {"repeated_bodies": 0.5},
            {},
            {"preemptions": 0.1},
            "response cache",
            id="same bodies, full KV cache",
        ),
        pytest.param(WAITS, {"cache_dtype": "fp8"}, {"preemptions": 0.1}, "smaller batch", id="KV in FP8 already"),
        pytest.param(
            WAITS, ON, {"preemptions": 0.1, "possible_hits": 0.7}, "KV cache in FP8", id="hits lost to a full KV cache"
        ),
        pytest.param(
            DECODES | {"stall_ratio": 3.0, "other_prompt": 2048}, CHUNKED, {}, "smaller prefill chunks", id="stalls"
        ),
        pytest.param(DECODES | {"stall_ratio": 3.0}, CHUNKED, {}, "speculative decoding", id="stalls without prefills"),
        pytest.param(DECODES, {"enforce_eager": "True"}, {}, "CUDA graphs", id="eager"),
        pytest.param(DECODES, {}, {"tpot_floor": 0.049}, "smaller batch", id="far above the floor"),
        pytest.param(DECODES, {}, {"tpot_floor": 0.05, "draft_floor": 1.5}, "speculative decoding", id="memory-bound"),
        pytest.param(DECODES, {}, {"tpot_floor": 0.05, "draft_floor": 1.6}, "more memory bandwidth", id="compute"),
        pytest.param(DECODES, {}, {"running": 32}, "speculative decoding", id="a small batch"),
        pytest.param(DECODES, {}, {"running": 33}, "more memory bandwidth", id="a large batch"),
        pytest.param(DECODES | {"reasoning": 0.5}, {}, {}, "less reasoning", id="reasoning"),
        pytest.param(DECODES | {"repeated_bodies": 0.5}, {}, {}, "response cache", id="repeats in decode"),
    ],
)
def test_the_first_lever(
    values: dict[str, float], settings: dict[str, str], engine: dict[str, float], lever: str
) -> None:
    found = diagnose(of_class(**values), of_engine(settings, **engine))
    assert found.choice is not None
    assert found.choice.lever.name == lever


_ANY = st.none() | st.floats(0, 1e6)


@settings(max_examples=50)
@given(
    st.fixed_dictionaries({}, optional={name: _ANY for name, *_ in ClassEvidence(name="c").shown()}),
    st.fixed_dictionaries({}, optional={name: _ANY for name, *_ in EngineEvidence().shown()}),
)
def test_every_evidence_has_a_diagnosis_and_every_statement_a_source(
    values: dict[str, Any], engine: dict[str, Any]
) -> None:
    found = diagnose(
        ClassEvidence(name="c", **{name: Fact(value, "origin") for name, value in values.items()}),
        EngineEvidence(settings={}, **{name: Fact(value, "origin") for name, value in engine.items()}),
    )
    assert all("(" in statement for statement in found.because)
    assert (found.choice is None) == (found.binding in {Binding.NOTHING, Binding.UNKNOWN})
