"""`vllm-slo compare`: what a change of the engine's configuration did, class by class, and how sure one can be."""
