"""`vllm-slo compare`: requests before and after a config change."""
