"""vLLM's `--speculative-config` for the simulator."""

import pytest

from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import BLOCK_SIZE, PRESETS
from compose.simulator.presets.speculative_config import ACCEPTANCE, speculative
from compose.simulator.presets.speculative_decoding import Speculation, independent
from compose.simulator.presets.variants import Variant, vary

H200 = PRESETS["h200-qwen2.5-14b"]
SMALL = PRESETS["t4-qwen2.5-0.5b"]
SEED = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 5, "prompt_lookup_min": 2}'
RATES = (
    '{"method": "ngram", "num_speculative_tokens": 2, "rejection_sample_method": "synthetic", '
    '"synthetic_acceptance_rates": [0.5, 0.25]}'
)
LLAMA_70B = PRESETS["h200-llama-70b-fp8"]
EAGLE3 = '{"model": "yuhuili/EAGLE3-LLaMA3.3-Instruct-70B", "num_speculative_tokens": 3, "method": "eagle3"}'
DRAFT = f'{{"model": "{SMALL.model}", "num_speculative_tokens": 3}}'


@pytest.mark.parametrize(
    "text, rates",
    [
        pytest.param(SEED, independent(ACCEPTANCE, 5), id="assumed rates"),
        pytest.param(RATES, (0.5, 0.25), id="given rates"),
    ],
)
def test_n_grams_cost_neither_time_nor_memory(text: str, rates: tuple[float, ...]) -> None:
    varied = speculative(H200, text)
    assert varied.speculation == Speculation(rates=rates)
    assert varied.num_gpu_blocks == H200.num_gpu_blocks


def test_the_weights_and_the_cache_of_a_draft_model_take_memory() -> None:
    varied = speculative(H200, DRAFT)
    assert varied.speculation is not None
    assert varied.speculation.draft is not None
    assert varied.speculation.draft.weight_bytes == SMALL.weight_bytes
    before, after = (each.num_gpu_blocks * BLOCK_SIZE for each in (H200, varied))
    used = after * (H200.kv_bytes_per_token + SMALL.kv_bytes_per_token) + SMALL.weight_bytes
    assert used == pytest.approx(before * H200.kv_bytes_per_token, rel=1e-3)


def test_an_eagle_3_head_costs_a_fiftieth_of_its_model() -> None:
    """1.4 G parameters in 16 bits, and one layer of the KV cache, which has 8 bits in this preset."""
    varied = speculative(LLAMA_70B, EAGLE3)
    assert varied.speculation is not None
    draft = varied.speculation.draft
    assert draft is not None
    assert draft.weight_bytes == pytest.approx(2.8e9, rel=0.01)
    assert draft.flop_per_token == pytest.approx(LLAMA_70B.flop_per_token / 50, rel=0.01)
    assert draft.kv_bytes_per_token == LLAMA_70B.kv_bytes_per_token / 80
    assert varied.num_gpu_blocks < LLAMA_70B.num_gpu_blocks
    # three passes of the head take a tenth of a step of the model
    share = varied.draft_seconds(requests=1, context=1000) / LLAMA_70B.step_seconds(tokens=4, context=1000)
    assert share == pytest.approx(0.09, abs=0.02)


def test_an_eagle_3_head_drafts_for_its_own_model_only() -> None:
    with pytest.raises(EngineFlagsError) as caught:
        speculative(H200, EAGLE3)
    (mistake,) = caught.value.mistakes
    assert mistake == (
        "speculative_config: model: yuhuili/EAGLE3-LLaMA3.3-Instruct-70B drafts for nvidia/Llama-3.1-70B-Instruct-FP8, "
        "not for Qwen/Qwen2.5-14B-Instruct; use ngram"
    )


def test_the_order_of_the_flags_does_not_matter() -> None:
    flags = {Variant.SPECULATIVE_CONFIG: DRAFT, Variant.GPU_MEMORY_UTILIZATION: "0.95", Variant.QUANTIZATION: "fp8"}
    assert vary(H200, flags) == vary(H200, dict(reversed(flags.items())))


@pytest.mark.parametrize(
    "text, mistakes",
    [
        pytest.param(
            "{",
            [
                (
                    "speculative_config: invalid YAML: while parsing a flow node, expected the node content, but found "
                    "'<stream end>'"
                )
            ],
            id="not JSON",
        ),
        pytest.param(
            "5",
            [
                (
                    "speculative_config: expected a mapping with method, num_speculative_tokens, model, "
                    "prompt_lookup_max, prompt_lookup_min, rejection_sample_method, synthetic_acceptance_rates, "
                    "found '5'"
                )
            ],
            id="no object",
        ),
        pytest.param(
            '{"method": "medusa", "num_speculative_tokens": 0, "tokens": 3, "synthetic_acceptance_rates": [2, -1]}',
            [
                "speculative_config: method: 'medusa' is unknown; known: ngram, draft_model, eagle3",
                "speculative_config: num_speculative_tokens: expected a whole number of at least 1, found '0'",
                (
                    "speculative_config: tokens: unknown key; known: method, num_speculative_tokens, model, "
                    "prompt_lookup_max, prompt_lookup_min, rejection_sample_method, synthetic_acceptance_rates"
                ),
                "speculative_config: synthetic_acceptance_rates[0]: 2 is above 1; write a share",
                "speculative_config: synthetic_acceptance_rates[1]: expected a number of at least 0, found '-1'",
            ],
            id="all mistakes at once",
        ),
        pytest.param(
            '{"method": "draft_model", "num_speculative_tokens": 5}',
            [
                (
                    "speculative_config: the size of the draft model is unknown; known: Qwen/Qwen2.5-14B-Instruct, "
                    "nvidia/Llama-3.1-70B-Instruct-FP8, Qwen/Qwen2.5-0.5B-Instruct, Qwen/Qwen3.5-35B-A3B, toy"
                )
            ],
            id="no draft model",
        ),
        pytest.param(
            '{"model": "Qwen/Qwen2.5-0.5B", "num_speculative_tokens": 5, "rejection_sample_method": "synthetic"}',
            [
                (
                    "speculative_config: rejection_sample_method: synthetic and synthetic_acceptance_rates need each "
                    "other; write both"
                ),
                (
                    "speculative_config: model: the size of Qwen/Qwen2.5-0.5B is unknown; did you mean "
                    "'Qwen/Qwen2.5-0.5B-Instruct'?"
                ),
            ],
            id="an unknown draft model, and no rates",
        ),
        pytest.param(
            RATES.replace("[0.5, 0.25]", "[0.5]"),
            [
                "speculative_config: synthetic_acceptance_rates: has 1 rates for 2 tokens; write one for each",
            ],
            id="too few rates",
        ),
        pytest.param(
            RATES.replace("[0.5, 0.25]", "[0.5, 0.6]"),
            [
                (
                    "speculative_config: synthetic_acceptance_rates: rises; each rate is the share of drafts whose "
                    "tokens up to its position are all accepted"
                )
            ],
            id="rising rates",
        ),
    ],
)
def test_every_mistake_is_reported(text: str, mistakes: list[str]) -> None:
    with pytest.raises(EngineFlagsError) as caught:
        vary(H200, {Variant.SPECULATIVE_CONFIG: text})
    assert caught.value.mistakes == mistakes


def test_a_draft_model_that_leaves_no_memory_is_refused() -> None:
    with pytest.raises(EngineFlagsError) as caught:
        speculative(SMALL, f'{{"model": "{H200.model}", "num_speculative_tokens": 3}}')
    assert caught.value.mistakes == [
        "speculative_config: Qwen/Qwen2.5-14B-Instruct leaves no memory for the KV cache; use a smaller draft model"
    ]
