"""Builds the PromQL that rules and panels share, from names in `exporters.signals`."""

from collections.abc import Iterable, Mapping

from exporters.signals import ENGINE_MODEL, Label, Recorded, Signal


def select(series: Signal | Recorded | str, where: Mapping[Label, str] | None = None, *, regex: bool = False) -> str:
    """A selector such as `llm_requests_total{class="siso"}`; with `regex` the values are patterns (`=~`)."""
    name = series if isinstance(series, str) else series.name
    sign = "=~" if regex else "="
    matchers = ",".join(f'{label}{sign}"{escape(value)}"' for label, value in (where or {}).items())
    return f"{name}{{{matchers}}}" if matchers else name


def in_window(series: Recorded, window: str) -> str:
    """A recorded series of all SLOs in one window."""
    return select(series, {Label.WINDOW: window})


def within(series: Recorded, slo: str, window: str) -> str:
    """A recorded series of one SLO in one window."""
    return select(series, {Label.SLO: slo, Label.WINDOW: window})


def escape(value: str) -> str:
    """A label value, escaped for double quotes in PromQL."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def sum_by(expression: str, labels: Iterable[Label | str]) -> str:
    return f"sum by ({', '.join(labels)}) ({expression})"


def max_by(expression: str, labels: Iterable[Label | str]) -> str:
    return f"max by ({', '.join(labels)}) ({expression})"


def ratio(part: str, whole: str) -> str:
    """Absent instead of NaN if the whole is 0."""
    return f"{part} / ({whole} > 0)"


def rate(selector: str, window: str) -> str:
    return f"rate({selector}[{window}])"


def increase(selector: str, window: str) -> str:
    return f"increase({selector}[{window}])"


def quantile(q: float, histogram: Signal, window: str, by: Iterable[Label], where: Mapping[Label, str]) -> str:
    """The `q` quantile of a classic histogram over `window`; `where` values are patterns."""
    buckets = sum_by(rate(select(histogram.bucket, where, regex=True), window), [*by, "le"])
    return f"histogram_quantile({q:g}, {buckets})"


def with_model(expression: str) -> str:
    """Adds the models of each engine; an engine whose model is not known keeps its labels."""
    on_engine = "on (instance, engine)"
    return f"{ENGINE_MODEL.name} * {on_engine} group_left () (\n{expression}\n)\nor {on_engine} (\n{expression}\n)"
