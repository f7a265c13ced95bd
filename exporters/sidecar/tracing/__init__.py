"""Tracing: creates spans from records, receives engine spans over OTLP, joins them with requests, exports both."""
