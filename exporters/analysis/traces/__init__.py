"""The trace store of `vllm-slo traces`: receives spans over OTLP, keeps them in SQLite, shows requests and traces."""
