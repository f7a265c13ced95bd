"""The labels of `vllm:cache_config_info`, from which the sidecar detects config changes."""

from compose.simulator.engine.flags import EngineFlags
from compose.simulator.presets.preset import Preset


def cache_config(flags: EngineFlags, preset: Preset) -> dict[str, str]:
    """The labels of `vllm:cache_config_info` in vLLM 0.33, with values as Python prints them."""
    size = flags.num_gpu_blocks * flags.block_size
    return {
        "_block_size_resolved": "True",
        "block_size": str(flags.block_size),
        "cache_dtype": preset.kv_cache_dtype,
        "cache_hit_alignment_tokens": "None",
        "effective_attention_block_size": str(flags.block_size),
        "enable_mamba_shared_prefix_checkpoint": "False",
        "enable_prefix_caching": str(flags.enable_prefix_caching),
        "engine": "0",
        "gpu_memory_utilization": str(preset.gpu_memory_utilization),
        "hash_block_size": "None",
        "is_attention_free": "False",
        "kv_cache_dtype_skip_layers": "[]",
        "kv_cache_layout": "None",
        "kv_cache_max_concurrency": str(size / flags.max_model_len),
        "kv_cache_memory_bytes": "None",
        "kv_cache_size_tokens": str(size),
        "kv_offloading_backend": "native",
        "kv_offloading_size": "None",
        "kv_sharing_fast_prefill": "False",
        "mamba_block_size": "None",
        "mamba_cache_dtype": "auto",
        "mamba_cache_mode": "none",
        "mamba_page_size_padded": "None",
        "mamba_ssm_cache_dtype": "auto",
        "num_cpu_blocks": "None",
        "num_gpu_blocks": str(flags.num_gpu_blocks),
        "num_gpu_blocks_override": str(flags.num_gpu_blocks),
        "prefix_cache_retention_interval": "0",
        "prefix_caching_hash_algo": "sha256",
        "prefix_match_unit": "None",
        "replayssm_buffer_len": "16",
        "skip_page_size_padded": "None",
        "sliding_window": "None",
        "swa_bounded_replay": "True",
        "use_kda_recoverssm": "False",
        "use_replayssm": "False",
        "user_specified_block_size": "True",
    }
