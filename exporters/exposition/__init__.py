"""Counters and histograms of the sidecar, and their text format."""
