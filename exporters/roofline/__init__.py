"""What a card can do at the most with a model: prefill, decode and KV cache, from datasheet and config.json."""
