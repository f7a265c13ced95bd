"""`vllm-slo whatif`: a recorded request log under other settings of the engine, in virtual time."""
