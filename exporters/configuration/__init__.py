"""Configuration of the relay and exporter processes: flags, TLS, addresses of the engine and of OTLP."""
