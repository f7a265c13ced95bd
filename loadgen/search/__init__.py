"""`vllm-slo load find-max`: the highest rate within the SLOs."""
