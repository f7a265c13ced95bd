"""Queries for firing alerts."""


def firing(alert: str, by: str, **labels: str) -> str:
    """1 or more for each combination of the labels `by` with which the alert fires; `labels` select among its rules."""
    matchers = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'sum by ({by}) (ALERTS{{alertname="{alert}",alertstate="firing"{matchers}}})'
