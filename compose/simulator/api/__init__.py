"""The simulated engine's APIs: requests, responses, tokenizer."""
