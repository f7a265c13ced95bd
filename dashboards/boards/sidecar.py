"""The dashboard "Sidecar": health of the metering, its cost, and what it misses."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import call, count_by, max_by, min_by, sum_by, vector
from alerts.promql.expression import Expression
from dashboards.boards.board import Board
from dashboards.grafana import style
from dashboards.grafana.layout import Row
from dashboards.grafana.ranking import highest, highest_first, lowest
from dashboards.grafana.style import BAD, GOOD, NO_TRAFFIC, WARN, Query
from dashboards.panels.latency import known_engine_times
from dashboards.queries.rates import ENGINE_LABELS, PER_ENGINE, at_sidecars, increase_by, rate_by
from exporters.vocabulary import signals
from exporters.vocabulary.signals import SCRAPE_SECONDS, SCRAPED_SAMPLES, UP, Label, Signal
from exporters.vocabulary.slo_file import SloFile

_DAY = 86400.0
_LOOP_LAG_LIMIT = 50
"""Milliseconds of loop lag that distort latencies: gaps between chunks are as short."""

_PER_SIDECAR, _PER_PROCESS = "{{instance}}", "{{process}} at {{instance}}"
_SPANS, _ENGINE_SPANS = "spans are sent only with --otlp", "spans are received only with --engine-spans"
_UNCOUNTED = {
    "dropped": signals.SIDECAR_DROPPED,
    "lost": signals.SIDECAR_LOST,
    "unmetered": signals.SIDECAR_UNMETERED,
    "not logged": signals.SIDECAR_DROPPED_LINES,
}
"""Requests that are missing from the figures, with the reason."""


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row("Status", (up(spec), lag_now(), uncounted_in_range(), restarts(), slo_file(), certificate())),
        Row(
            "Loop lag, connections and missing requests", (loop_lag(), connections(), uncounted_over_time(), version())
        ),
        Row("Resource usage", (cpu(), memory(), scrape_seconds(spec), series(spec))),
        Row("Missing data", (unparsed(), engine_times(), engine_age(plan), follow_lag())),
        Row("Errors", (upstream_errors(), engine_errors(), task_errors())),
        Row("Spans", (exported_spans(), dropped_spans(), unjoined_spans(), refused_messages())),
    )


def up(spec: SloFile) -> stat.Panel:
    text = (
        "Number of sidecars that Prometheus can scrape (up), and of the others; Fleet has their names. Good: none is "
        "down. While a sidecar is down nothing is measured, and requests may be refused. From Prometheus."
    )
    return style.yes_and_no(PanelTitle.SIDECAR, text, at_sidecars(UP, spec), ("up", "down"), 3, 6)


def lag_now() -> stat.Panel:
    text = (
        "Delay of the event loop of the slowest relay in the last second. Good: below 50 ms (orange), because the "
        "delay is part of every latency. From the sidecars' metrics."
    )
    # below a tenth of a millisecond it is the resolution of the clock
    lag = call("round", 1000 * max_by(signals.SIDECAR_LOOP_LAG, [Label.INSTANCE]), 0.1)
    panel = style.stat_panel(
        *("Loop lag now", text, style.MILLISECONDS, 4, 6),
        base=GOOD,
        steps=((_LOOP_LAG_LIMIT, WARN), (5 * _LOOP_LAG_LIMIT, BAD)),
    )
    return highest(panel, lag, _PER_SIDECAR)


def uncounted_in_range() -> stat.Panel:
    text = (
        "Requests in the time range that are missing from the figures. Dropped: the exporter was down for too long. "
        "Lost: a relay crashed, or the sidecar ended before they were recorded. Unmetered: forwarded although metering "
        "failed. Not logged: lines that the request log dropped; their requests are in all other figures. Good: 0. "
        "From the sidecars' counters."
    )
    values = ((increase_by(counter), name) for name, counter in _UNCOUNTED.items())
    return style.stat_panel(
        *("Not counted in range", text, style.COUNT, 5, 6),
        *values,
        decimals=0,
        base=GOOD,
        steps=((1, BAD),),
    )


def restarts() -> stat.Panel:
    text = (
        "Processes of the sidecars that ended unexpectedly in the time range and were restarted by the supervisor. "
        "Good: 0. From the sidecars' counters."
    )
    panel = style.stat_panel(*("Restarts in range", text, style.COUNT, 5, 6), decimals=0, base=GOOD, steps=((1, WARN),))
    return highest_first(panel, (increase_by(signals.SIDECAR_RESTARTS, Label.PROCESS), "{{process}}"))


def slo_file() -> stat.Panel:
    text = (
        "Number of sidecars whose SLO file was valid at the last SIGHUP, and of those that rejected it and judge by "
        "the last valid one. Good: none is rejected. From the sidecars' metrics."
    )
    valid = vector(signals.SIDECAR_RELOAD_SUCCESSFUL)
    return style.yes_and_no(PanelTitle.SLO_FILE, text, valid, ("valid", "rejected"), 3, 6)


def certificate() -> stat.Panel:
    text = (
        "Time until the first TLS certificate of a sidecar expires; then clients reject it. Good: more than a week "
        "(orange); vermilion is the last day. From the sidecars' metrics."
    )
    time_left = (min_by(signals.SIDECAR_CERTIFICATE_EXPIRY, [Label.INSTANCE]) - call("time")) / _DAY
    panel = style.stat_panel(
        *(PanelTitle.CERTIFICATE, text, style.DAYS, 4, 6),
        may_be_empty="there is a certificate only with --tls-cert",
        base=BAD,
        decimals=0,
        steps=((1, WARN), (7, GOOD)),
    )
    return lowest(panel, time_left, _PER_SIDECAR)


def version() -> stat.Panel:
    text = "Number of sidecars by version. Good: one version, except during a rollout. From the sidecars' metrics."
    count = count_by(signals.SIDECAR_BUILD, [Label.VERSION])
    return highest_first(style.stat_panel("Versions", text, units.Short, 3, 9), (count, "{{version}}"))


def loop_lag() -> timeseries.Panel:
    text = (
        "Delay of the event loop of each relay, the maximum of each second. Good: below the line, because the delay "
        "is part of every latency that is measured meanwhile. From the sidecars' metrics."
    )
    lag, legend = _each_process(signals.SIDECAR_LOOP_LAG)
    panel = style.time_series_panel("Loop lag over time", text, style.MILLISECONDS, 8, (1000 * lag, legend))
    return style.with_threshold_lines(panel, (_LOOP_LAG_LIMIT, WARN))


def connections() -> timeseries.Panel:
    text = "Open client connections of each relay. Good: evenly distributed. From the sidecars' metrics."
    line = _each_process(signals.SIDECAR_CONNECTIONS)
    return style.time_series_panel("Client connections", text, units.Short, 6, line)


def uncounted_over_time() -> timeseries.Panel:
    text = "Requests per second that are missing from the figures, by reason. Good: 0. From the sidecars' counters."
    each = ((name, *_each_reason(counter)) for name, counter in _UNCOUNTED.items())
    lines = ((rate, f"{name}: {legend}") for name, rate, legend in each)
    return style.time_series_panel(PanelTitle.NOT_COUNTED, text, units.RequestsPerSecond, 7, *lines)


def cpu() -> timeseries.Panel:
    text = "CPU cores that each process uses. Good: below 1, the maximum of a relay. From the sidecars' processes."
    line = (rate_by(signals.SIDECAR_CPU, Label.INSTANCE, Label.PROCESS), _PER_PROCESS)
    return style.time_series_panel("CPU", text, units.Short, 6, line)


def memory() -> timeseries.Panel:
    text = "Resident memory of each process. Good: constant at a constant load. From the sidecars' processes."
    line, reason = _each_process(signals.SIDECAR_MEMORY), "it is known on Linux only"
    return style.time_series_panel("Memory", text, units.BytesIEC, 6, line, may_be_empty=reason)


def scrape_seconds(spec: SloFile) -> timeseries.Panel:
    text = (
        "Duration of a scrape. Good: below the line, the scrape interval; above it scrapes fail, and series have "
        "gaps. From Prometheus."
    )
    line = (at_sidecars(SCRAPE_SECONDS, spec), _PER_SIDECAR)
    panel = style.time_series_panel("Scrape duration", text, style.SECONDS, 6, line)
    return style.with_threshold_lines(panel, (spec.scrape_interval, BAD))


def series(spec: SloFile) -> timeseries.Panel:
    text = (
        "Samples of one scrape, which is the number of series. Good: constant; it grows with models, classes and "
        "tenants. From Prometheus."
    )
    return style.time_series_panel("Series", text, units.Short, 6, (at_sidecars(SCRAPED_SAMPLES, spec), _PER_SIDECAR))


def unparsed() -> timeseries.Panel:
    text = (
        "Requests per second whose body was not parsed, by reason; the class depends on their size. Good: 0. From the "
        "sidecars' counters."
    )
    line = _each_reason(signals.SIDECAR_UNPARSED)
    return style.time_series_panel("Unparsed requests", text, units.RequestsPerSecond, 6, line)


def engine_times() -> timeseries.Panel:
    text = (
        "Share of ended requests whose engine times are known; the others are in no queue, prefill or decode time. "
        f"Good: close to the share of requests that end with ok. Gaps are {NO_TRAFFIC}. From the sidecars' counters."
    )
    line = (known_engine_times(Label.INSTANCE), _PER_SIDECAR)
    panel = style.ratio_panel("Engine time coverage", text, 6, line, may_be_empty="there were no requests")
    return style.limit_points(panel, 60)


def engine_errors() -> timeseries.Panel:
    text = (
        "Errors per second in the scrapes of engines: a failed scrape, or a line, value, duplicate or histogram that "
        "was ignored. Good: 0. From the sidecars' counters."
    )
    line = _each_reason(signals.ENGINE_SCRAPE_ERRORS)
    return style.hide_zero_series(style.time_series_panel("Engine scrape errors", text, "errors/s", 8, line))


def engine_age(plan: Plan) -> timeseries.Panel:
    text = (
        "Time since the last successful scrape of each engine. Good: below the line; above it the engine counts as "
        "down. From the sidecars' metrics."
    )
    line, reason = (max_by(signals.ENGINE_SCRAPE_AGE, ENGINE_LABELS), PER_ENGINE), "no engine has been scraped"
    panel = style.time_series_panel("Last scrape age", text, style.SECONDS, 6, line, may_be_empty=reason)
    return style.with_threshold_lines(panel, (plan.down_after, BAD))


def follow_lag() -> timeseries.Panel:
    text = "Bytes of the followed log that are not counted yet. Good: close to 0. From the sidecars' metrics."
    line, reason = (max_by(signals.FOLLOW_LAG, [Label.INSTANCE]), _PER_SIDECAR), "there is a log only with --follow"
    return style.time_series_panel(PanelTitle.FOLLOW_LAG, text, units.BytesIEC, 6, line, may_be_empty=reason)


def upstream_errors() -> timeseries.Panel:
    text = (
        "Connections to the upstream per second that could not be opened, by address and reason; requests that need "
        "one get status 502. Good: 0. From the sidecars' counters."
    )
    line = (rate_by(signals.SIDECAR_UPSTREAM_ERRORS, Label.UPSTREAM, Label.REASON), "{{upstream}}: {{reason}}")
    return style.time_series_panel("Upstream connection errors", text, "errors/s", 8, line)


def task_errors() -> timeseries.Panel:
    text = (
        "Exceptions per second in periodic tasks and in single records. Good: 0; the log of the sidecar has each type "
        "once. From the sidecars' counters."
    )
    line = (rate_by(signals.SIDECAR_TASK_ERRORS, Label.INSTANCE, Label.PROCESS), _PER_PROCESS)
    return style.time_series_panel(PanelTitle.TASK_ERRORS, text, "errors/s", 8, line)


def exported_spans() -> timeseries.Panel:
    text = (
        "Spans per second that the trace collector accepted. Good: it follows the requests. From the sidecars' "
        "counters."
    )
    line = (rate_by(signals.SIDECAR_EXPORTED_SPANS, Label.INSTANCE), _PER_SIDECAR)
    return _span_panel("Spans exported", text, line, _SPANS)


def dropped_spans() -> timeseries.Panel:
    text = (
        "Spans per second that were dropped because the trace collector is down or slow, by reason. Good: 0. From the "
        "sidecars' counters."
    )
    return _span_panel("Spans dropped", text, _each_reason(signals.SIDECAR_DROPPED_SPANS), _SPANS)


def unjoined_spans() -> timeseries.Panel:
    text = "Engine spans per second that were joined with no request, by reason. Good: 0. From the sidecars' counters."
    line = _each_reason(signals.SIDECAR_UNJOINED_SPANS)
    return _span_panel("Engine spans not joined", text, line, _ENGINE_SPANS)


def refused_messages() -> timeseries.Panel:
    text = (
        "Messages per second that the receiver of engine spans rejected, by reason. Good: 0. From the sidecars' "
        "counters."
    )
    line = _each_reason(signals.SIDECAR_REFUSED_MESSAGES)
    return _span_panel("Span messages refused", text, line, _ENGINE_SPANS, "messages/s")


def _span_panel(title: str, text: str, line: Query, empty: str, unit: str = "spans/s") -> timeseries.Panel:
    return style.time_series_panel(title, text, unit, 6, line, height=7, may_be_empty=empty)


def _each_process(gauge: Signal) -> tuple[Expression, str]:
    return sum_by(gauge, [Label.INSTANCE, Label.PROCESS]), _PER_PROCESS


def _each_reason(counter: Signal) -> Query:
    """The counter by reason, or by sidecar if there is only one reason."""
    if Label.REASON in counter.labels:
        return rate_by(counter, Label.REASON), "{{reason}}"
    return rate_by(counter, Label.INSTANCE), _PER_SIDECAR


BOARD = Board(
    uid=DashboardUid.SIDECAR,
    title="Sidecar",
    description="The health of the measuring itself, what it misses and what it costs.",
    rows=rows,
)
