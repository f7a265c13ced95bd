"""What the relay and the exporter processes share: flags as one value, TLS, where the engine and OTLP are."""
