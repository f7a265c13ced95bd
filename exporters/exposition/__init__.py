"""Counters and histograms as the sidecar keeps and exposes them."""
