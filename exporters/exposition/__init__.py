"""Counters and histograms of the sidecar, and how a metrics page shows them."""
