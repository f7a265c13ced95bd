"""Queries for firing alerts and burning tiers."""

from alerts.tiers import tiers
from exporters.text.units import spell_duration
from exporters.vocabulary.slo_file import SloFile


def firing(alert: str, by: str, **labels: str) -> str:
    """1 or more for each combination of the labels `by` with which the alert fires; `labels` select among its rules."""
    matchers = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'sum by ({by}) (ALERTS{{alertname="{alert}",alertstate="firing"{matchers}}})'


def short_window(spec: SloFile, tier: str) -> str:
    """The value of the label `window` by which a tier is recorded."""
    return spell_duration(next(each.short for each in tiers(spec.period) if each.name == tier))


def burning(spec: SloFile, tier: str, by: str, **labels: str) -> str:
    """1 or more for each combination of the labels `by` for which the tier burns."""
    matchers = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'count by ({by}) (llm_slo:tier_bad_events:ratio{{window="{short_window(spec, tier)}"{matchers}}})'
