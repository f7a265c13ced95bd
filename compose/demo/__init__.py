"""`vllm-slo demo`: the lab with an incident, and the checks of what it must show."""
