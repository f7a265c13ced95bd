"""`vllm-slo compare`: the figures of each class before and after a config change, with confidence intervals."""
