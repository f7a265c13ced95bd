"""`vllm-slo experiment`: engine configurations under the same requests."""
