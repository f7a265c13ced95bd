"""The state of the lab, read from its Prometheus, as a table or as one line."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from alerts.plan import Plan
from alerts.promql.build import call, in_window, increase, max_by, over, quantile, rate, ratio, regex, sum_by
from compose.lab.webhook import alert_title
from exporters.analysis.prometheus_api import Alert, Prometheus, PrometheusError
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label
from exporters.vocabulary.slo_file import Severities, SloFile
from loadgen.report.tables import format_seconds

_RECENT = "30s"


@dataclass(frozen=True, slots=True)
class ClassRow:
    """One class at one moment; None where there is no value, such as goodput without traffic."""

    name: str
    offered: float | None  # requests/s
    in_flight: float | None
    goodput: float | None
    ttft_p95: float | None
    burn_rate: float | None
    oldest_wait: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole lab at one moment."""

    seconds: float
    services: Mapping[str, bool]  # health by name
    rows: tuple[ClassRow, ...]
    alerts: tuple[str, ...]
    pages: tuple[str, ...]
    addresses: Mapping[str, str]


def queries(spec: SloFile) -> dict[str, str]:
    """A query with one value per class, by field of `ClassRow`."""
    by = [Label.CLASS]
    events, good = (
        sum_by(increase(signal, _RECENT), by) for signal in (signals.GOODPUT_EVENTS, signals.GOODPUT_REQUESTS)
    )
    ended, growth = rate(signals.REQUESTS, _RECENT), over("deriv", signals.IN_FLIGHT, _RECENT)
    expressions = {
        # Ended requests plus the growth of open ones, because in an overload most recent requests are still open.
        "offered": call("clamp_min", sum_by(ended, by) + sum_by(growth, by), 0),
        "in_flight": sum_by(signals.IN_FLIGHT, by),
        "goodput": ratio(good, events),
        "ttft_p95": quantile(0.95, signals.TTFT, _RECENT, by, [regex(Label.CLASS, ".*")]),
        "burn_rate": max_by(in_window(signals.SLO_BURN_RATE, Plan.of(spec).hour), by),
        "oldest_wait": max_by(signals.OLDEST_WAIT, by),
    }
    return {name: str(expression) for name, expression in expressions.items()}


def read_rows(prometheus: Prometheus, spec: SloFile) -> tuple[ClassRow, ...]:
    """A row for each class of the SLO file; None where Prometheus returns no value."""
    columns: dict[str, dict[str, float]] = {}
    for name, expression in queries(spec).items():
        try:
            columns[name] = prometheus.query_by(Label.CLASS, expression)
        except PrometheusError:  # Prometheus is starting or slow; the next snapshot queries again
            columns[name] = {}
    return tuple(
        ClassRow(each.name, **{key: _number(columns[key].get(each.name)) for key in columns}) for each in spec.classes
    )


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else value  # noqa: PLR0124 - NaN, the quantile of no observation


def alert_names(alerts: Sequence[Alert], severities: Severities) -> tuple[str, ...]:
    """Distinct alerts such as `page LLMErrorBudgetBurn ttft/siso`, firing alerts first."""
    ours = {severities.page: "page", severities.ticket: "ticket"}
    names = {
        f"{ours.get(alert.labels.get('severity', ''), '-')} {alert_title(alert.labels)}"
        f"{'' if alert.state == 'firing' else ' (pending)'}"
        for alert in alerts
        if alert.labels.get("severity") != "none"  # Watchdog, which always fires
    }
    return tuple(sorted(names, key=lambda name: (name.endswith("(pending)"), name)))


def line(snapshot: Snapshot) -> str:
    """One line for a log."""
    classes = "; ".join(
        f"{row.name} {_rate(row.offered)}/s open {_count(row.in_flight)} goodput {_share(row.goodput)} "
        f"ttft {format_seconds(row.ttft_p95)} burn {_count(row.burn_rate)}"
        for row in snapshot.rows
    )
    pages = [alert for alert in snapshot.alerts if alert.startswith("page")]
    others = len(snapshot.alerts) - len(pages)
    alerts = ", ".join([*pages, *([f"{others} other"] if others else [])]) or "none"
    unhealthy = ", ".join(name for name, healthy in snapshot.services.items() if not healthy)
    return (
        f"{classes}; alerts: {alerts}; pages received: {len(snapshot.pages)}"
        f"{'; unhealthy: ' + unhealthy if unhealthy else ''}"
    )


def table(snapshot: Snapshot) -> RenderableType:
    """The live table."""
    services = Text.assemble(
        f"{snapshot.seconds:4.0f} s  ",
        *((f"● {name}  ", "green" if healthy else "red") for name, healthy in snapshot.services.items()),
    )
    table = Table("class")
    for title in ("offered/s", "in flight", "goodput", "TTFT p95", "burn rate", "oldest wait"):
        table.add_column(title, justify="right")
    for row in snapshot.rows:
        table.add_row(
            row.name,
            _rate(row.offered),
            _count(row.in_flight),
            Text(_share(row.goodput), style="red" if row.goodput is not None and row.goodput < 0.9 else ""),
            format_seconds(row.ttft_p95),
            Text(_count(row.burn_rate), style="red" if (row.burn_rate or 0) > 1 else ""),
            format_seconds(row.oldest_wait),
        )
    details = Table.grid(padding=(0, 1))
    details.add_row("alerts", Text(", ".join(snapshot.alerts) or "none", style="red" if snapshot.alerts else "green"))
    details.add_row("pages", Text("\n".join(snapshot.pages[-5:]) or "none"))
    for name, address in snapshot.addresses.items():
        details.add_row(name, Text(address, style="dim"))
    return Group(services, table, details)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
