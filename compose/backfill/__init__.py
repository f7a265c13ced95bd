"""`vllm-slo backfill`: makes blocks of Prometheus from request logs."""
