"""Sends open-loop mixed traffic and reports the outcome of each request."""
