"""The parameters counted from a model's config.json, against the published numbers."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporters.analysis.roofline.gpus import Dtype
from exporters.analysis.roofline.model_shape import Experts, read_shape
from exporters.text.errors import UsageError
from tests.exporters.analysis.roofline.model_configs import (
    DEEPSEEK_V3,
    GEMMA_7B,
    GPT_OSS,
    KIMI_K2,
    LLAMA_7B,
    LLAMA_8B,
    LLAMA_70B,
    MINIMAX_M2,
    MIXTRAL,
    QWEN3_8B,
    QWEN3_235B,
    QWEN3_MOE,
    QWEN_14B,
    QWEN_HALF_B,
    QWEN_MOE,
    write,
)


@pytest.mark.parametrize(
    "model, total",
    [
        pytest.param(QWEN_14B, 14_770_033_664, id="Qwen2.5-14B"),
        pytest.param(QWEN_HALF_B, 494_032_768, id="Qwen2.5-0.5B: embedding and head are one"),
        pytest.param(LLAMA_8B, 8_030_261_248, id="Llama 3.1 8B"),
        pytest.param(LLAMA_70B, 70_553_706_496, id="Llama 3.1 70B"),
        pytest.param({k: v for k, v in LLAMA_7B.items() if k != "num_key_value_heads"}, 6_738_415_616, id="Llama 2 7B"),
        pytest.param(QWEN3_8B, 8_190_735_360, id="Qwen3-8B"),
        pytest.param(GEMMA_7B, 8_537_680_896, id="Gemma 7B: heads wider than the model, ties not mentioned"),
        pytest.param({"text_config": GEMMA_7B}, 8_537_680_896, id="the text part of a vision model"),
        pytest.param(MIXTRAL, 46_702_792_704, id="Mixtral 8x7B"),
        pytest.param(QWEN3_MOE, 30_532_122_624, id="Qwen3-30B-A3B"),
        pytest.param(QWEN_MOE, 14_315_784_192, id="Qwen1.5-MoE-A2.7B: a shared expert"),
        pytest.param(QWEN3_235B, 235.1e9, id="Qwen3-235B-A22B"),
        pytest.param(MINIMAX_M2, 228.7e9, id="MiniMax-M2.5"),
        pytest.param(GPT_OSS, 116.8e9, id="gpt-oss-120b"),
        pytest.param(DEEPSEEK_V3, 671e9, id="DeepSeek-V3: latent attention, dense first layers"),
        pytest.param({"text_config": KIMI_K2}, 1026e9, id="Kimi-K2"),
    ],
)
def test_the_counted_parameters_are_the_published_ones_within_a_thousandth(
    model: object, total: int, tmp_path: Path
) -> None:
    assert read_shape(write(tmp_path, model)).parameters == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize(
    "model, active",
    [
        pytest.param(MIXTRAL, 12.9e9, id="Mixtral 8x7B"),
        pytest.param(QWEN3_MOE, 3.3e9, id="Qwen3-30B-A3B"),
        pytest.param(QWEN_MOE, 2.7e9, id="Qwen1.5-MoE-A2.7B"),
        pytest.param(DEEPSEEK_V3, 37e9, id="DeepSeek-V3"),
    ],
)
def test_a_mixture_multiplies_only_its_active_parameters(model: object, active: float, tmp_path: Path) -> None:
    shape = read_shape(write(tmp_path, model))
    assert shape.active_parameters + shape.lookup_table == pytest.approx(active, rel=0.02)


def test_stated_parameters_replace_the_counted_ones_of_an_unknown_architecture(tmp_path: Path) -> None:
    path = write(tmp_path, QWEN_14B | {"model_type": "starcoder9"})
    shape = read_shape(path, 14.8e9)
    assert shape.parameters == 14.8e9
    assert shape.active_parameters == 14.8e9 - 152064 * 5120


def test_a_large_batch_activates_every_expert() -> None:
    experts = Experts(count=8, active=2, parameters=1e9)
    assert experts.activated(1) == pytest.approx(2)
    assert experts.activated(2) == pytest.approx(3.5)  # of the 6 other experts, the second token uses a quarter
    assert experts.activated(1000) == pytest.approx(8)


def test_experts_that_alone_are_quantised_have_their_own_dtype(tmp_path: Path) -> None:
    of = {name: read_shape(write(tmp_path, model)).experts for name, model in (("oss", GPT_OSS), ("v3", DEEPSEEK_V3))}
    assert of["oss"] is not None
    assert of["v3"] is not None
    assert (of["oss"].dtype, of["v3"].dtype) == (Dtype.FP4, None)
    kimi = read_shape(write(tmp_path, KIMI_K2)).experts
    assert kimi is not None
    assert kimi.dtype is Dtype.INT4


def test_tensor_parallel_sizes_divide_heads_and_kv_heads(tmp_path: Path) -> None:
    assert read_shape(write(tmp_path, QWEN_14B)).tensor_parallel_sizes == (1, 2, 4, 8, 40)


def error_of(folder: Path, text: str, parameters: float | None = None) -> str:
    path = folder / "config.json"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_shape(path, parameters)
    return str(caught.value).replace(str(folder), "DIR")


KNOWN = (
    "(known: deepseek_v2, deepseek_v3, gemma, gemma2, gemma3_text, gpt_oss, granite, kimi_k2, llama, minimax_m2, "
    "mistral, mixtral, olmo, olmo2, phi3, qwen2, qwen2_moe, qwen3, qwen3_moe)"
)


@pytest.mark.parametrize(
    "changes, message",
    [
        pytest.param(
            {"hidden_size": 0, "num_hidden_layers": -3, "vocab_size": "many", "num_attention_heads": 10**400},
            "DIR/config.json: num_hidden_layers: expected a whole number from 1 to 10,000,000, found -3\n"
            "DIR/config.json: hidden_size: expected a whole number from 1 to 10,000,000, found 0\n"
            f"DIR/config.json: num_attention_heads: expected a whole number from 1 to 10,000,000, found {10**400}\n"
            "DIR/config.json: vocab_size: expected a whole number from 1 to 10,000,000, found 'many'",
            id="invalid sizes",
        ),
        pytest.param(
            {"kv_lora_rank": 512, "v_head_dim": 0},
            "DIR/config.json: missing: qk_nope_head_dim, qk_rope_head_dim; the config.json of a decoder on Hugging "
            "Face has them\nDIR/config.json: v_head_dim: expected a whole number from 1 to 10,000,000, found 0",
            id="latent attention without its sizes",
        ),
        pytest.param(
            {"layer_types": ["linear_attention", "full_attention"]},
            "DIR/config.json: layer_types: linear_attention is not supported, because it has no KV cache per token",
            id="linear attention",
        ),
        pytest.param(
            {"model_type": ["llama"], "layer_types": 7, "vocab_size": True},
            "DIR/config.json: vocab_size: expected a whole number from 1 to 10,000,000, found True\n"
            "DIR/config.json: model_type: the parameters of \"['llama']\" cannot be counted; add --parameters " + KNOWN,
            id="values of other types",
        ),
        pytest.param(
            {"model_type": "gpt_bigcode"},
            "DIR/config.json: model_type: the parameters of 'gpt_bigcode' cannot be counted; add --parameters " + KNOWN,
            id="an architecture that cannot be counted",
        ),
        pytest.param(
            {"model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 8, "decoder_sparse_step": 2},
            "DIR/config.json: missing: moe_intermediate_size; the config.json of a decoder on Hugging Face has them\n"
            "DIR/config.json: num_experts_per_tok: 8 is more than the 4 experts\n"
            "DIR/config.json: experts in some layers only are not supported",
            id="a mixture with three mistakes",
        ),
    ],
)
def test_a_wrong_config_is_rejected_with_every_mistake(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert error_of(tmp_path, json.dumps(QWEN_14B | changes)) == message


def test_all_missing_keys_are_listed_at_once(tmp_path: Path) -> None:
    assert error_of(tmp_path, '{"model_type": "llama", "head_dim": null}') == (
        "DIR/config.json: missing: num_hidden_layers, hidden_size, num_attention_heads, vocab_size, intermediate_size; "
        "the config.json of a decoder on Hugging Face has them"
    )


def test_experts_of_an_unknown_architecture_are_rejected_even_with_stated_parameters(tmp_path: Path) -> None:
    text = json.dumps(QWEN_14B | {"model_type": "dbrx", "n_routed_experts": 16})
    assert error_of(tmp_path, text, 132e9) == (
        "DIR/config.json: n_routed_experts: the experts of model_type 'dbrx' are not supported; known: deepseek_v2, "
        "deepseek_v3, gpt_oss, kimi_k2, minimax_m2, mixtral, qwen2_moe, qwen3_moe"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param("[1]", "DIR/config.json: expected a JSON object, found list", id="a list"),
        pytest.param(
            "{",
            "DIR/config.json: is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            id="truncated",
        ),
    ],
)
def test_a_file_without_a_json_object_is_rejected(text: str, message: str, tmp_path: Path) -> None:
    assert error_of(tmp_path, text) == message


def test_stated_parameters_below_those_of_the_embeddings_are_rejected(tmp_path: Path) -> None:
    assert error_of(tmp_path, json.dumps(QWEN_14B), 14e6) == (
        "--parameters: 1.4e+07 is less than those of embedding, head and experts: 1.55714e+09"
    )
