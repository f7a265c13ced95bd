"""Published models, with the keys of their config.json that the roofline reads."""

import json
from pathlib import Path
from typing import Any


def config(  # the sizes in the order in which models are usually compared
    kind: str, layers: int, hidden: int, width: int, heads: int, kv_heads: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocabulary,
        **more,
    }


UNTIED = {"tie_word_embeddings": False}
QWEN_14B = config("qwen2", 48, 5120, 13824, 40, 8, 152064, **UNTIED)  # Qwen2.5-14B
QWEN_HALF_B = config("qwen2", 24, 896, 4864, 14, 2, 151936, tie_word_embeddings=True)  # Qwen2.5-0.5B
LLAMA_8B = config("llama", 32, 4096, 14336, 32, 8, 128256, **UNTIED)  # Llama 3.1 8B
LLAMA_70B = config("llama", 80, 8192, 28672, 64, 8, 128256, **UNTIED)  # Llama 3.1 70B
EAGLE3_70B = {  # yuhuili/EAGLE3-LLaMA3.3-Instruct-70B
    **LLAMA_70B,
    "num_hidden_layers": 1,
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 32000,
}
LLAMA_7B = config("llama", 32, 4096, 11008, 32, 32, 32000, **UNTIED)  # Llama 2 7B
QWEN3_32B = config("qwen3", 64, 5120, 25600, 64, 8, 151936, head_dim=128, **UNTIED)
QWEN3_8B = config("qwen3", 36, 4096, 12288, 32, 8, 151936, head_dim=128, **UNTIED)
GEMMA_7B = config("gemma", 28, 3072, 24576, 16, 16, 256000, head_dim=256)  # without a key for ties: the default
MIXTRAL = config("mixtral", 32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2, **UNTIED)
QWEN3_MOE = config(  # Qwen3-30B-A3B
    "qwen3_moe",
    48,
    2048,
    6144,
    32,
    4,
    151936,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    **UNTIED,
)
QWEN_MOE = config(  # Qwen1.5-MoE-A2.7B
    "qwen2_moe",
    24,
    2048,
    5632,
    16,
    16,
    151936,
    num_experts=60,
    num_experts_per_tok=4,
    moe_intermediate_size=1408,
    shared_expert_intermediate_size=5632,
    **UNTIED,
)
QWEN3_235B = QWEN3_MOE | {
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "moe_intermediate_size": 1536,
}
MINIMAX_M2 = config(  # MiniMax-M2.5
    "minimax_m2", 62, 3072, 1536, 48, 8, 200064, head_dim=128, num_local_experts=256, num_experts_per_tok=8, **UNTIED
)
GPT_OSS = config(  # gpt-oss-120b
    "gpt_oss",
    36,
    2880,
    2880,
    64,
    8,
    201088,
    head_dim=64,
    num_local_experts=128,
    num_experts_per_tok=4,
    layer_types=["sliding_attention", "full_attention"] * 18,
    quantization_config={"quant_method": "mxfp4"},
    **UNTIED,
)
DEEPSEEK_V3 = config(
    "deepseek_v3",
    61,
    7168,
    18432,
    128,
    128,
    129280,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    moe_intermediate_size=2048,
    first_k_dense_replace=3,
    **UNTIED,
)
KIMI_K2 = DEEPSEEK_V3 | {  # Kimi-K2.5, with experts of 4 bits
    "model_type": "kimi_k2",
    "num_attention_heads": 64,
    "vocab_size": 163840,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "quantization_config": {
        "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
        "ignore": ["lm_head", "re:.*self_attn.*"],
    },
}


def write(folder: Path, model: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(model))
    return path
