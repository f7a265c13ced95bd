"""`vllm-slo doctor`: finds what would hide requests or alerts: on the machine, in the engine and in Prometheus."""
