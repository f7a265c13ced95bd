"""Offers open-loop mixed traffic and reports what became of each request."""
