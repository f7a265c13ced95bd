"""`vllm-slo simulate`: serves a simulated vLLM, or fits its preset to a request log."""
