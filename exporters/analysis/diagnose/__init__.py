"""`vllm-slo diagnose`: what binds each class of requests, with the evidence, and the first lever to try."""
