"""A run: dispatch of its requests, warm-up, progress, metrics."""
