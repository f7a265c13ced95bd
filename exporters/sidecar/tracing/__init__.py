"""Spans: ours made from records, the engine's received over OTLP and joined to their requests, both exported."""
