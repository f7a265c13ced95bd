"""One request: connection, events of its response, tokens."""
