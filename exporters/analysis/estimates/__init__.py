"""Estimates of a difference between two stretches of time, with confidence intervals."""
