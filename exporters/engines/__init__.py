"""Scrapes engines, converts their metrics to one set of series, and detects config changes."""
