"""Upper bounds of prefill, decode and KV cache for a model on a GPU, from a config.json and a datasheet."""
