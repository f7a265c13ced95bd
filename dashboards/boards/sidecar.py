"""The dashboard "Sidecar": health of the metering, its cost, and what it misses."""

from grafana_foundation_sdk.builders import stat, timeseries
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql_text import max_by, rate, ratio, sum_by
from dashboards import style
from dashboards.board import Board
from dashboards.label_selectors import RATE, select_sidecar, sidecar_job
from dashboards.layout import Row
from dashboards.ranked_values import highest_first, lowest_first
from dashboards.style import BAD, GOOD, NO_TRAFFIC, WARN, describe, query
from exporters import signals
from exporters.signals import SCRAPE_SECONDS, SCRAPED_SAMPLES, UP, Label, Signal
from exporters.slos import SloFile

_DAY = 86400.0
_LOOP_LAG_LIMIT = 0.05
"""Seconds of loop lag that distort latencies: gaps between chunks are as short."""

_NO_SIDECAR = "no sidecar"
_PER_SIDECAR, _PER_PROCESS, _PER_REASON = "{{instance}}", "{{process}} at {{instance}}", "{{reason}}"
_SPANS, _ENGINE_SPANS = "spans are sent only with --otlp", "spans are received only with --engine-spans"


def rows(spec: SloFile) -> tuple[Row, ...]:
    return (
        Row(
            "Status",
            (up(spec), lag_now(), uncounted_in_range(), restarts(), slo_file(), certificate(), version()),
        ),
        Row("Loop lag, connections and missing requests", (loop_lag(), connections(), uncounted_over_time())),
        Row("Resource usage", (cpu(), memory(), scrape_seconds(spec), series(spec))),
        Row("Missing data", (unparsed(), engine_times(), engine_errors(), engine_age(spec))),
        Row("Spans", (exported_spans(), dropped_spans(), unjoined_spans(), refused_messages())),
    )


def up(spec: SloFile) -> stat.Panel:
    text = (
        "Whether Prometheus can scrape each sidecar. Good: up. While a sidecar is down nothing is measured, and "
        "requests may be refused. From Prometheus."
    )
    panel = style.stat_panel(PanelTitle.SIDECAR, text, units.NoUnit, 3, 6).thresholds(style.thresholds(BAD, (1, GOOD)))
    style.if_absent(panel, _NO_SIDECAR, *style.UP_DOWN_MAPPINGS)
    return lowest_first(panel, (select_sidecar(UP, sidecar_job(spec)), _PER_SIDECAR))


def lag_now() -> stat.Panel:
    text = (
        "Delay of the event loop of the slowest relay in the last second. Good: below 50 ms (orange), because the "
        "delay is part of every latency. From the sidecars' metrics."
    )
    # below a tenth of a millisecond it is the resolution of the clock
    lag = f"round({max_by(select_sidecar(signals.SIDECAR_LOOP_LAG), [Label.INSTANCE])}, 0.0001)"
    panel = style.if_absent(style.stat_panel("Loop lag", text, units.Seconds, 3, 6), _NO_SIDECAR)
    panel.thresholds(style.thresholds(GOOD, (_LOOP_LAG_LIMIT, WARN), (5 * _LOOP_LAG_LIMIT, BAD)))
    return highest_first(panel, (lag, _PER_SIDECAR))


def uncounted_in_range() -> stat.Panel:
    text = (
        "Requests in the time range that are missing from the figures. Dropped: the exporter was down for too long. "
        "Lost: a relay crashed, or the sidecar ended before they were recorded. Unmetered: forwarded although metering "
        "failed. Not logged: lines that the request log dropped; their requests are in all other figures. Good: 0. "
        "From the sidecars' counters."
    )
    panel = style.if_absent(style.stat_panel("Not counted in range", text, style.COUNT, 6, 6), _NO_SIDECAR)
    for name, counter in (
        ("dropped", signals.SIDECAR_DROPPED),
        ("lost", signals.SIDECAR_LOST),
        ("unmetered", signals.SIDECAR_UNMETERED),
        ("not logged", signals.SIDECAR_DROPPED_LINES),
    ):
        panel.with_target(query(f"sum (increase({select_sidecar(counter)}[$__range]))", name, instant=True))
    return panel.decimals(0).thresholds(style.thresholds(GOOD, (1, BAD)))


def restarts() -> stat.Panel:
    text = (
        "Processes of the sidecar that ended unexpectedly in the time range and were restarted by the supervisor. "
        "Good: 0. From the sidecars' counters."
    )
    expression = sum_by(f"increase({select_sidecar(signals.SIDECAR_RESTARTS)}[$__range])", [Label.PROCESS])
    panel = style.if_absent(style.stat_panel("Restarts in range", text, style.COUNT, 3, 6), _NO_SIDECAR)
    panel.decimals(0).thresholds(style.thresholds(GOOD, (1, WARN)))
    return highest_first(panel, (expression, "{{process}}"))


def slo_file() -> stat.Panel:
    text = (
        "Whether the SLO file was valid at the last SIGHUP. Good: valid. If it was rejected, requests are judged by "
        "the last valid file. From the sidecars' metrics."
    )
    panel = style.stat_panel(PanelTitle.SLO_FILE, text, units.NoUnit, 3, 6)
    style.if_absent(panel, _NO_SIDECAR, *style.VALID_REJECTED_MAPPINGS)
    panel.thresholds(style.thresholds(BAD, (1, GOOD)))
    return lowest_first(panel, (select_sidecar(signals.SIDECAR_RELOAD_SUCCESSFUL), _PER_SIDECAR))


def certificate() -> stat.Panel:
    text = describe(
        "Time until the TLS certificate of the sidecar expires; then clients reject it. Good: more than a week "
        "(orange); vermilion is the last day. From the sidecars' metrics.",
        may_be_empty="there is a certificate only with --tls-cert",
    )
    time_left = f"min by ({Label.INSTANCE}) ({select_sidecar(signals.SIDECAR_CERTIFICATE_EXPIRY)}) - time()"
    panel = style.if_absent(style.stat_panel(PanelTitle.CERTIFICATE, text, units.Seconds, 3, 6), "no TLS")
    panel.thresholds(style.thresholds(BAD, (_DAY, WARN), (7 * _DAY, GOOD)))
    return lowest_first(panel, (time_left, _PER_SIDECAR))


def version() -> stat.Panel:
    text = "Number of sidecars by version. Good: one version, except during a rollout. From the sidecars' metrics."
    count = f"count by ({Label.VERSION}) ({select_sidecar(signals.SIDECAR_BUILD)})"
    return highest_first(style.stat_panel("Versions", text, units.Short, 3, 6), (count, "{{version}}"))


def loop_lag() -> timeseries.Panel:
    text = (
        "Delay of the event loop of each relay, the maximum of each second. Good: below the line, because the delay "
        "is part of every latency that is measured meanwhile. From the sidecars' metrics."
    )
    panel = style.time_series_panel("Loop lag over time", text, units.Seconds, 8)
    return style.with_threshold_lines(_each_process(panel, signals.SIDECAR_LOOP_LAG), (_LOOP_LAG_LIMIT, WARN))


def connections() -> timeseries.Panel:
    text = "Open client connections of each relay. Good: evenly distributed. From the sidecars' metrics."
    return style.stack(
        _each_process(style.time_series_panel("Client connections", text, units.Short, 7), signals.SIDECAR_CONNECTIONS)
    )


def uncounted_over_time() -> timeseries.Panel:
    text = "Requests per second that are missing from the figures, by reason. Good: 0. From the sidecars' counters."
    panel = style.time_series_panel(PanelTitle.NOT_COUNTED, text, units.RequestsPerSecond, 9)
    panel.with_target(query(_rate(signals.SIDECAR_DROPPED, Label.INSTANCE), f"dropped: {_PER_SIDECAR}"))
    for name, counter in (
        ("lost", signals.SIDECAR_LOST),
        ("unmetered", signals.SIDECAR_UNMETERED),
        ("not logged", signals.SIDECAR_DROPPED_LINES),
    ):
        panel.with_target(query(_rate(counter, Label.REASON), f"{name}: {_PER_REASON}"))
    return panel


def cpu() -> timeseries.Panel:
    text = "CPU cores that each process uses. Good: below 1, the maximum of a relay. From the sidecars' processes."
    cpu_seconds = query(_rate(signals.SIDECAR_CPU, Label.INSTANCE, Label.PROCESS), _PER_PROCESS)
    return style.stack(style.time_series_panel("CPU", text, units.Short, 6).with_target(cpu_seconds))


def memory() -> timeseries.Panel:
    text = describe(
        "Resident memory of each process. Good: constant at a constant load. From the sidecars' processes.",
        may_be_empty="it is known on Linux only",
    )
    return style.stack(
        _each_process(style.time_series_panel("Memory", text, units.BytesIEC, 6), signals.SIDECAR_MEMORY)
    )


def scrape_seconds(spec: SloFile) -> timeseries.Panel:
    text = (
        "Duration of a scrape. Good: below the line, the scrape interval; above it scrapes fail, and series have "
        "gaps. From Prometheus."
    )
    panel = style.time_series_panel("Scrape duration", text, units.Seconds, 6)
    panel.with_target(query(select_sidecar(SCRAPE_SECONDS, sidecar_job(spec)), _PER_SIDECAR))
    return style.with_threshold_lines(panel, (spec.scrape_interval, BAD))


def series(spec: SloFile) -> timeseries.Panel:
    text = (
        "Samples of one scrape, which is the number of series. Good: constant; it grows with models, classes and "
        "tenants. From Prometheus."
    )
    return style.time_series_panel("Series", text, units.Short, 6).with_target(
        query(select_sidecar(SCRAPED_SAMPLES, sidecar_job(spec)), _PER_SIDECAR)
    )


def unparsed() -> timeseries.Panel:
    text = (
        "Requests per second whose body was not parsed, by reason; the class depends on their size. Good: 0. From the "
        "sidecars' counters."
    )
    return _each_reason(
        style.time_series_panel("Unparsed requests", text, units.RequestsPerSecond, 6), signals.SIDECAR_UNPARSED
    )


def engine_times() -> timeseries.Panel:
    text = describe(
        "Share of ended requests whose engine times are known; the others are in no queue, prefill or decode time. "
        f"Good: close to the share of requests that end with ok. Gaps are {NO_TRAFFIC}. From the sidecars' counters.",
        may_be_empty="there were no requests",
    )
    with_times, ended = (_rate(each, Label.INSTANCE) for each in (signals.REQUESTS_WITH_ENGINE_TIMES, signals.REQUESTS))
    return (
        style.limit_points(style.ratio_panel("Engine time coverage", text, 6), 60)
        .with_target(query(f"clamp_max({ratio(with_times, ended)}, 1)", _PER_SIDECAR))
        .no_value(NO_TRAFFIC)
    )


def engine_errors() -> timeseries.Panel:
    text = (
        "Errors per second in the scrapes of engines: a failed scrape, or a line, value, duplicate or histogram that "
        "was ignored. Good: 0. From the sidecars' counters."
    )
    return _each_reason(
        style.time_series_panel("Engine scrape errors", text, "errors/s", 6), signals.ENGINE_SCRAPE_ERRORS
    )


def engine_age(spec: SloFile) -> timeseries.Panel:
    text = describe(
        "Time since the last successful scrape of each engine. Good: below the line; above it the engine counts as "
        "down. From the sidecars' metrics.",
        may_be_empty="no engine has been scraped",
    )
    age = max_by(select_sidecar(signals.ENGINE_SCRAPE_AGE), [Label.INSTANCE, Label.ENGINE])
    panel = style.time_series_panel("Last scrape age", text, units.Seconds, 6)
    return style.with_threshold_lines(
        panel.with_target(query(age, "{{engine}} at {{instance}}")), (Plan.of(spec).down_after, BAD)
    )


def exported_spans() -> timeseries.Panel:
    text = (
        "Spans per second that the trace collector accepted. Good: it follows the requests. From the sidecars' "
        "counters."
    )
    exported = query(_rate(signals.SIDECAR_EXPORTED_SPANS, Label.INSTANCE), _PER_SIDECAR)
    return _span_panel("Spans exported", text, _SPANS).with_target(exported)


def dropped_spans() -> timeseries.Panel:
    text = (
        "Spans per second that were dropped because the trace collector is down or slow, by reason. Good: 0. From the "
        "sidecars' counters."
    )
    return _each_reason(_span_panel("Spans dropped", text, _SPANS), signals.SIDECAR_DROPPED_SPANS)


def unjoined_spans() -> timeseries.Panel:
    text = "Engine spans per second that were joined with no request, by reason. Good: 0. From the sidecars' counters."
    return _each_reason(_span_panel("Engine spans not joined", text, _ENGINE_SPANS), signals.SIDECAR_UNJOINED_SPANS)


def refused_messages() -> timeseries.Panel:
    text = (
        "Messages per second that the receiver of engine spans rejected, by reason. Good: 0. From the sidecars' "
        "counters."
    )
    return _each_reason(
        _span_panel("Span messages refused", text, _ENGINE_SPANS, "messages/s"), signals.SIDECAR_REFUSED_MESSAGES
    )


def _span_panel(title: str, text: str, empty: str, unit: str = "spans/s") -> timeseries.Panel:
    text = describe(text, may_be_empty=empty)
    return style.time_series_panel(title, text, unit, 6, 7).no_value(empty)


def _each_process(panel: timeseries.Panel, gauge: Signal) -> timeseries.Panel:
    return panel.with_target(query(sum_by(select_sidecar(gauge), [Label.INSTANCE, Label.PROCESS]), _PER_PROCESS))


def _each_reason(panel: timeseries.Panel, counter: Signal) -> timeseries.Panel:
    return panel.with_target(query(_rate(counter, Label.REASON), _PER_REASON))


def _rate(counter: Signal, *by: Label) -> str:
    return sum_by(rate(select_sidecar(counter), RATE), by)


BOARD = Board(
    uid=DashboardUid.SIDECAR,
    title="Sidecar",
    description="The health of the measuring itself, what it misses and what it costs.",
    rows=rows,
)
