"""`vllm-slo up`: the native lab, its services and their state."""
