"""The engine flags, rejected changes, and the fingerprint."""

from dataclasses import replace
from typing import Any

import pytest

from compose.simulator.engine.flags import apply_changes, preset_flags
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import PRESETS

DEFAULT = preset_flags(PRESETS["rtx6000ada-qwen2.5-14b"])


def test_a_change_leaves_the_rest_as_it_was() -> None:
    assert apply_changes(DEFAULT, {"enable_prefix_caching": False}) == replace(DEFAULT, enable_prefix_caching=False)


def test_a_switch_may_be_a_text_from_the_environment() -> None:
    assert apply_changes(DEFAULT, {"enable_prefix_caching": "False"}) == replace(DEFAULT, enable_prefix_caching=False)


@pytest.mark.parametrize(
    "changes, mistakes",
    [
        pytest.param(
            {"enable_prefix_cashing": True, "max_num_seqs": 0, "block_size": True},
            "enable_prefix_cashing: unknown setting; did you mean 'enable_prefix_caching'?\n"
            "max_num_seqs: 0 is not a whole number from 1\n"
            "block_size: True is not a whole number from 1",
            id="all mistakes at once",
        ),
        pytest.param(
            {"zzz": 1},
            "zzz: unknown setting; known: max_num_seqs, max_num_batched_tokens, num_gpu_blocks, block_size, "
            "max_model_len, enable_prefix_caching, enable_chunked_prefill, seed, "
            "scheduler_reserve_full_isl, scheduling_policy, response_cache, outage_after, outage_seconds",
            id="nothing is near",
        ),
        pytest.param(
            {"enable_chunked_prefill": 1}, "enable_chunked_prefill: 1 is not true or false", id="not a boolean"
        ),
        pytest.param({"seed": -1}, "seed: -1 is not a whole number from 0", id="negative seed"),
        pytest.param(
            {"num_gpu_blocks": 512},
            "num_gpu_blocks: 512 blocks of 16 tokens are too few for one request of max_model_len 8192; use 513 blocks "
            "or more, or a max_model_len of 8176 or less",
            id="a request could never fit",
        ),
        pytest.param(
            {"enable_chunked_prefill": False},
            "max_num_batched_tokens: 2048 is less than max_model_len 8192, so without chunked prefill a long prompt "
            "would never be scheduled",
            id="a prompt could never be computed",
        ),
        pytest.param(
            {"max_num_batched_tokens": 64},
            "max_num_batched_tokens: 64 is less than max_num_seqs 128, so a full batch cannot decode in one step",
            id="a batch could not decode",
        ),
        pytest.param([1], "expected an object of settings, found [1]", id="not an object"),
    ],
)
def test_what_vllm_would_reject_is_rejected_with_every_mistake(changes: Any, mistakes: str) -> None:
    with pytest.raises(EngineFlagsError) as refusal:
        apply_changes(DEFAULT, changes)
    assert "\n".join(refusal.value.mistakes) == mistakes


def test_flags_that_vllm_does_not_have_leave_its_fingerprint() -> None:
    changed = apply_changes(DEFAULT, {"response_cache": True, "outage_after": 0, "outage_seconds": 300})
    assert (changed.response_cache, changed.outage_after, changed.outage_seconds) == (True, 0, 300)
    assert changed.fingerprint() == DEFAULT.fingerprint()


def test_the_rule_of_admission_can_be_that_of_earlier_versions() -> None:
    assert DEFAULT.scheduler_reserve_full_isl
    assert not apply_changes(DEFAULT, {"scheduler_reserve_full_isl": "false"}).scheduler_reserve_full_isl


def test_as_in_vllm_a_fingerprint_depends_on_the_batch_but_not_on_prefix_caching() -> None:
    assert DEFAULT.fingerprint() != replace(DEFAULT, max_num_seqs=64).fingerprint()
    assert DEFAULT.fingerprint() == replace(DEFAULT, enable_prefix_caching=False).fingerprint()
