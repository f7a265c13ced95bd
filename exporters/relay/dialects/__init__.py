"""Dialects: how each inference API names the prompt, the output, the usage and the end of a response."""
