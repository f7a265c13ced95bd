"""`vllm-slo experiment`: engine configurations measured under the same requests, one after the other."""
