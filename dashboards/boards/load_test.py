"""The dashboard "Load test": scheduled, sent, ended and good requests, and the validity of the test."""

from collections.abc import Mapping
from itertools import pairwise

from grafana_foundation_sdk.builders import bargauge, stat, table, timeseries
from grafana_foundation_sdk.models import units

from alerts.links import DashboardUid
from alerts.plan import Plan
from alerts.promql.build import call, either, on, quantile, ratio, regex, select
from alerts.promql.expression import Expression
from dashboards.boards.board import Board
from dashboards.grafana import style, tables
from dashboards.grafana.layout import Row
from dashboards.grafana.ranking import lowest_first
from dashboards.grafana.style import BAD, BLUE, GOOD, GREY, LAST_MINUTE, PINK, SKY, WARN
from dashboards.grafana.tables import DifferenceColumn, ValueColumn
from dashboards.panels import slo_status, traffic
from dashboards.panels.load_runs import (
    configurations,
    describe_load,
    goodput_by_configuration,
    runs,
    ttft_by_configuration,
)
from dashboards.queries.labels import constant, with_label
from dashboards.queries.rates import PER_CLASS, RATE, increase_by, rate_by
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.signals import SEND_LATE, Label, LoadOutcome, Outcome
from exporters.vocabulary.slo_file import SloFile

_GOOD_COUNT = "Good requests are counted by the sidecar, also those of other clients."
_LOAD_AND_SIDECARS = "From the load generator's counters and the sidecars'."
_LAG_TEXT = describe_load(
    "Delay between the scheduled and the actual time of sending, which the load generator causes. Good: below "
    f"{spell_duration(SEND_LATE)} at p99; above it latencies include delays of the load generator, and its report "
    "warns. From the load generator's histogram."
)
_NOT_SENT = select(signals.LOAD_ENDED, regex(Label.OUTCOME, LoadOutcome.NOT_SENT))

_LOSSES = {"scheduled, not sent": BAD, "sent, not ended": WARN, "ended, not good": PINK}
_OWN_OUTCOMES: Mapping[str, str] = {LoadOutcome.TIMEOUT: WARN, LoadOutcome.CUT: PINK, LoadOutcome.NOT_SENT: BLUE}


def rows(plan: Plan) -> tuple[Row, ...]:
    spec = plan.spec
    return (
        Row(
            "Offered and achieved load",
            (rates_now(), send_lag_now(), unsent_requests(), offered_against_achieved(), losses()),
        ),
        Row("Runs", (runs(),)),
        Row(
            "Configurations", (configurations(), goodput_by_configuration(), ttft_by_configuration()), is_collapsed=True
        ),
        Row("Send lag and open requests", (send_lag(), traffic.in_flight(spec))),
        Row("Goodput", (goodput(spec), good_share(spec))),
        Row("Request outcomes", (outcomes(), traffic.outcomes(), outcomes_compared())),
    )


def rates_now() -> stat.Panel:
    text = describe_load(
        f"Requests per second that are scheduled, sent, ended and good. {_GOOD_COUNT} Good: four equal rates. "
        f"{_LOAD_AND_SIDECARS}"
    )
    panel = style.stat_panel(
        *(f"Offered and achieved {LAST_MINUTE}", text, units.RequestsPerSecond, 12, 5), *_steps(), decimals=1
    )
    return style.over_last_minute(style.below_each_other(panel)).text(style.text_size(18))


def send_lag_now() -> stat.Panel:
    panel = style.stat_panel(
        *(f"Send lag {LAST_MINUTE}", _LAG_TEXT, style.SECONDS, 6, 5),
        (_lag(0.99), "p99"),
        base=GOOD,
        steps=((SEND_LATE, BAD),),
    )
    return style.over_last_minute(panel)


def unsent_requests() -> stat.Panel:
    text = describe_load(
        "Requests in the time range that were due, but that the load generator could not send: the service saw less "
        "load than scheduled. Good: 0. From the load generator's counters."
    )
    return style.stat_panel(
        *("Never sent in range", text, style.COUNT, 6, 5),
        (increase_by(_NOT_SENT), "in range"),
        decimals=0,
        base=GOOD,
        steps=((1, BAD),),
    )


def offered_against_achieved() -> timeseries.Panel:
    text = describe_load(
        "Requests per second that were scheduled, that were sent, that ended with any outcome, and that were good for "
        f"all their SLOs. {_GOOD_COUNT} Good: one line. {_LOAD_AND_SIDECARS}"
    )
    return style.time_series_panel(
        *("Offered against achieved", text, units.RequestsPerSecond, 12), *_steps(), height=10
    )


def losses() -> timeseries.Panel:
    text = describe_load(
        "Requests per second lost between schedule and goodput. Scheduled, not sent: by the load generator. Sent, not "
        "ended: they accumulate in the service; 0 while a backlog is processed. Ended, not good: late, failed or "
        "lost. Good: 0. From the load generator's counters and the sidecars'."
    )
    lines = (
        (call("clamp_min", before - after, 0), loss, colour)
        for (loss, colour), ((before, *_), (after, *_)) in zip(_LOSSES.items(), pairwise(_steps()), strict=True)
    )
    panel = style.time_series_panel(*("Lost of what was offered", text, units.RequestsPerSecond, 12), *lines, height=10)
    return style.stack(panel)


def send_lag() -> timeseries.Panel:
    lines = (_lag(0.5), "p50", SKY), (_lag(0.99), "p99", BLUE)
    panel = style.time_series_panel("Send lag", _LAG_TEXT, style.SECONDS, 12, *lines)
    return style.with_threshold_lines(style.limit_points(panel), (SEND_LATE, BAD))


def goodput(spec: SloFile) -> timeseries.Panel:
    text = describe_load(
        "Requests per second, offered (dotted) and good for all their SLOs (solid), by class. If good decreases while "
        "offered increases, the service is over its capacity. Good: the two lines are equal. From the load "
        "generator's counters and the sidecars'."
    )
    panel = style.time_series_panel(
        *("Goodput at the offered rate", text, units.RequestsPerSecond, 18),
        (rate_by(signals.LOAD_SCHEDULED, Label.CLASS), f"{PER_CLASS} offered"),
        (rate_by(signals.GOODPUT_REQUESTS, Label.CLASS), f"{PER_CLASS} good"),
    )
    return style.colour_by_class(panel.override_by_regexp("/ offered$/", style.DOTTED), spec)


def good_share(spec: SloFile) -> bargauge.Panel:
    text = describe_load(
        "Share of the scheduled requests in the time range that were good for all their SLOs. Unlike goodput it "
        "includes requests that were not sent, were lost, or are still open. Good: at or above the lowest objective. "
        "From the load generator's counters and the sidecars'."
    )
    share = ratio(*(increase_by(each, Label.CLASS) for each in (signals.GOODPUT_REQUESTS, signals.LOAD_SCHEDULED)))
    limits = slo_status.goodput_limits(spec)
    panel = style.ratio_bars_panel("Good of offered in range", text, 6, *limits, height=9)
    return lowest_first(panel, (share, PER_CLASS))


def outcomes() -> timeseries.Panel:
    text = describe_load(
        "Requests that end per second, by outcome, as the load generator sees them. Timeout: the timeout of the "
        "scenario; cut: still open at the end of the run; both are client_abort for the sidecar, which never sees "
        "not_sent. Good: nearly all are ok. From the load generator's counters."
    )
    line = (rate_by(signals.LOAD_ENDED, Label.OUTCOME), "{{outcome}}")
    panel = style.time_series_panel(*("Outcomes: load generator", text, units.RequestsPerSecond, 12, line))
    style.colour_by_name(panel, {**style.OUTCOME_COLOURS, **_OWN_OUTCOMES})
    return style.hide_zero_series(style.stack(panel))


def outcomes_compared() -> table.Panel:
    """Uses the outcomes of the sidecar, so that a row has the same requests on both sides; rows of zeros are hidden."""
    text = describe_load(
        "Requests in the time range by outcome, as the load generator and as the sidecar count them. If the load "
        "generator has more, requests did not reach the sidecar or ended differently on the way back; if the sidecar "
        "has more, it has other clients. Good: Between is a few requests, those that end between two scrapes. From "
        "the load generator's counters and the sidecars'."
    )
    aborted, others = (
        select(signals.LOAD_ENDED, regex(Label.OUTCOME, "|".join(outcomes)))
        for outcomes in ((LoadOutcome.TIMEOUT, LoadOutcome.CUT), Outcome)
    )
    ended = increase_by(others, Label.OUTCOME).or_(
        with_label(increase_by(aborted), Label.OUTCOME, Outcome.CLIENT_ABORT)
    )
    # without zeros there is no difference for an outcome that only the sidecar has counted
    zeros = either(constant(0, Label.OUTCOME, outcome) for outcome in Outcome)
    generator, sidecar = ended.or_(zeros.and_(ended, on())), increase_by(signals.REQUESTS, Label.OUTCOME)
    # integers, so that Grafana does not show -0
    columns = [
        ValueColumn(title, call("round", each), style.COUNT, decimals=0)
        for title, each in (("Generator", generator), ("Sidecar", sidecar))
    ]
    between = DifferenceColumn("Between", "Generator", "Sidecar", style.COUNT, decimals=0)
    panel = style.table_panel("Outcomes compared in range", text, units.NoUnit, 24)
    tables.sort_rows(panel, "Outcome")
    tables.join_queries(panel, {Label.OUTCOME: "Outcome"}, [*columns, between])
    return tables.hide_zero_rows(panel, 2)


def _steps() -> tuple[tuple[Expression, str, str], ...]:
    """Requests per second at each step from the schedule to goodput."""
    return (
        (rate_by(signals.LOAD_SCHEDULED), "scheduled", GREY),
        (rate_by(signals.LOAD_SENT), "sent", BLUE),
        (rate_by(signals.LOAD_ENDED) - rate_by(_NOT_SENT), "ended", SKY),
        (rate_by(signals.GOODPUT_REQUESTS), "good", GOOD),
    )


def _lag(q: float) -> Expression:
    return quantile(q, signals.LOAD_SEND_LAG, RATE, [])


BOARD = Board(
    uid=DashboardUid.LOAD_TEST,
    title="Load test",
    description="Offered against achieved load, the load generator's own lateness, and what got lost between.",
    shows_load_tests=True,
    rows=rows,
)
