"""The PromQL of the dashboards, as values."""
