"""`vllm-slo load warm-up`: a ramp that prepares an engine, until its TTFT no longer falls."""
