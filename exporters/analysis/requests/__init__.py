"""`vllm-slo requests`: filters, sorts and prints the requests of request logs."""
