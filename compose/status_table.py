"""What the lab shows of itself: read from its Prometheus, drawn as one table or told in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from alerts.promql import increase, quantile, rate, select, sum_by
from exporters import signals
from exporters.prometheus_api import Alert, Prometheus, PrometheusError
from exporters.quantities import spell_duration
from exporters.signals import Label
from exporters.slos import SloFile

_RECENT = "30s"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class at this moment; None is "nothing to be said", as a goodput without traffic."""

    name: str
    offered: float | None  # a second
    in_flight: float | None
    goodput: float | None
    ttft_p95: float | None
    burn_rate: float | None
    oldest_wait: float | None


@dataclass(frozen=True, slots=True)
class View:
    """The whole lab at one moment."""

    seconds: float
    services: Mapping[str, bool]  # by name: is it well?
    rows: tuple[ClassRow, ...]
    alerts: tuple[str, ...]
    pages: tuple[str, ...]
    places: Mapping[str, str]


def queries(spec: SloFile) -> dict[str, str]:
    """By the field of `ClassRow`, a query with one value a class."""
    by, every = [Label.CLASS], {Label.CLASS: ".*"}
    events, good = (
        sum_by(increase(signal.name, _RECENT), by) for signal in (signals.GOODPUT_EVENTS, signals.GOODPUT_REQUESTS)
    )
    fastest = spell_duration(spec.period / 720)  # the long window of the fastest page
    return {
        # Ended ones and the growth of the open ones: in an overload hardly any of what arrives has ended.
        "offered": f"clamp_min({sum_by(rate(signals.REQUESTS.name, _RECENT), by)} + "
        f"{sum_by(f'deriv({signals.IN_FLIGHT.name}[{_RECENT}])', by)}, 0)",
        "in_flight": sum_by(signals.IN_FLIGHT.name, by),
        "goodput": f"{good} / ({events} > 0)",
        "ttft_p95": quantile(0.95, signals.TTFT, _RECENT, by, every),
        "burn_rate": f"max by ({Label.CLASS}) ({select(signals.SLO_BURN_RATE, {Label.WINDOW: fastest})})",
        "oldest_wait": f"max by ({Label.CLASS}) ({signals.OLDEST_WAIT.name})",
    }


def read_rows(prometheus: Prometheus, spec: SloFile) -> tuple[ClassRow, ...]:
    """A row for each class of the SLO file; what Prometheus does not answer is None."""
    found: dict[str, dict[str, float]] = {}
    for name, expression in queries(spec).items():
        try:
            found[name] = prometheus.query_by(Label.CLASS, expression)
        except PrometheusError:  # it is starting, or the machine is busy: the next look may have it
            found[name] = {}
    return tuple(
        ClassRow(each.name, **{key: _some(found[key].get(each.name)) for key in found}) for each in spec.classes
    )


def _some(value: float | None) -> float | None:
    return None if value is None or value != value else value  # noqa: PLR0124 - NaN, a quantile of nothing


def alert_names(alerts: Sequence[Alert]) -> tuple[str, ...]:
    """`page LLMErrorBudgetBurn ttft/siso`, the firing ones first, each once."""
    names = {
        f"{alert.labels.get('severity', '-')} {named(alert.labels)}{'' if alert.state == 'firing' else ' (pending)'}"
        for alert in alerts
        if alert.labels.get("severity") != "none"  # the watchdog, which always fires
    }
    return tuple(sorted(names, key=lambda name: (name.endswith("(pending)"), name)))


def named(labels: Mapping[str, str]) -> str:
    """An alert's name with what it is about."""
    about = "/".join(labels[key] for key in ("slo", "class") if key in labels)
    tier = f" ({labels['tier']})" if "tier" in labels else ""
    return f"{labels.get('alertname', '(no name)')}{' ' + about if about else ''}{tier}"


def line(view: View) -> str:
    """One line for a log."""
    classes = "; ".join(
        f"{row.name} {_rate(row.offered)}/s open {_count(row.in_flight)} goodput {_share(row.goodput)} "
        f"ttft {_seconds(row.ttft_p95)} burn {_count(row.burn_rate)}"
        for row in view.rows
    )
    pages = [alert for alert in view.alerts if alert.startswith("page")]
    others = len(view.alerts) - len(pages)
    alerts = ", ".join([*pages, *([f"{others} below a page"] if others else [])]) or "none"
    ill = ", ".join(name for name, well in view.services.items() if not well)
    return (
        f"{classes}; alerts: {alerts}; arrived at the webhook: {len(view.pages)}"
        f"{'; not healthy: ' + ill if ill else ''}"
    )


def draw(view: View) -> RenderableType:
    """The live table."""
    services = Text.assemble(
        f"{view.seconds:4.0f} s  ",
        *((f"● {name}  ", "green" if well else "red") for name, well in view.services.items()),
    )
    table = Table("class")
    for title in ("offered/s", "in flight", "goodput", "TTFT p95", "burn rate", "oldest wait"):
        table.add_column(title, justify="right")
    for row in view.rows:
        table.add_row(
            row.name,
            _rate(row.offered),
            _count(row.in_flight),
            Text(_share(row.goodput), style="red" if row.goodput is not None and row.goodput < 0.9 else ""),
            _seconds(row.ttft_p95),
            Text(_count(row.burn_rate), style="red" if (row.burn_rate or 0) > 1 else ""),
            _seconds(row.oldest_wait),
        )
    told = Table.grid(padding=(0, 1))
    told.add_row("alerts", Text(", ".join(view.alerts) or "none", style="red" if view.alerts else "green"))
    told.add_row("webhook", Text("\n".join(view.pages[-5:]) or "nothing has arrived"))
    for name, place in view.places.items():
        told.add_row(name, Text(place, style="dim"))
    return Group(services, table, told)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
