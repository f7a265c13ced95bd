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


def write(folder: Path, model: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(model))
    return path
