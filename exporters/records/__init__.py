"""Records of requests, the connection that carries them from relay to exporter, and the journals that count them."""
