"""A simulated vLLM: a seeded model of continuous batching over a paged KV cache, behind vLLM's HTTP API."""
