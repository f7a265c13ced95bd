"""Records of requests on their way from the relays into the request log and the series."""
