"""The relay process: forwards requests and responses, and measures each request."""
