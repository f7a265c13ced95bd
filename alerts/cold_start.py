"""Holds back pages while an engine starts, for a stated time; the budget is never spared."""

from alerts.alert_names import AlertName
from alerts.promql import increase, sum_by
from alerts.recording_windows import down_after, windows
from alerts.rule_groups import Recording
from alerts.tiers import Severity
from exporters.quantities import number, spell_duration
from exporters.signals import COLD_START, ENGINE_START_TIME, ENGINE_UP, PAGE_HELD, SLO_BAD
from exporters.slos import SloFile


def cold_start_limit(spec: SloFile) -> float:
    """How long an engine may be away, and again how long it may be slow; never less than it takes to be sure of it."""
    return max(spec.alerting.cold_start, down_after(spec))


def second_start_interval(spec: SloFile) -> float:
    """Whoever starts twice within this time is not starting but failing, and mutes nothing the second time."""
    return max(spec.period / 720, 4 * cold_start_limit(spec))


def cold_start(spec: SloFile) -> Recording:
    """The engine has gone, has come back or was first seen within `mute`, and not for the second time."""
    up, started, recent = ENGINE_UP.name, ENGINE_START_TIME.name, spell_duration(cold_start_limit(spec))
    long = spell_duration(second_start_interval(spec))
    return Recording(
        COLD_START,
        "group by (instance, engine) (\n"
        f"  max_over_time({up}[{recent}]) > min_over_time({up}[{recent}])\n"
        f"  or {up} unless {up} offset {recent}\n"
        f"  or time() - {started} < {number(cold_start_limit(spec))}\n"
        ")\n"
        f"unless on (instance, engine) (changes({up}[{long}]) > 2 or changes({started}[{long}]) > 1)",
    )


def starting(condition: str = COLD_START.name) -> str:
    """Sidecars of which an engine is starting and no other is up and warm."""
    return f"({condition} unless on (instance) ({ENGINE_UP.name} == 1 unless on (instance, engine) {condition}))"


def page_held(spec: SloFile) -> Recording:
    """Looks back one step, as the short window still counts what went wrong before the engine was warm.

    Not where bad events come from elsewhere too, and not where a page is out already: a restart must not look like its
    end.
    """
    step = spell_duration(windows(spec).step)
    instances = starting(f"last_over_time({COLD_START.name}[{step}])")
    bad_events, labels = increase(SLO_BAD.name, step), PAGE_HELD.labels
    unless_same_slo = f"unless on ({', '.join(labels)})"
    firing_page = f'ALERTS{{alertname="{AlertName.BURN}",alertstate="firing",severity="{Severity.PAGE}"}}'
    return Recording(
        PAGE_HELD,
        f"{sum_by(f'{bad_events} and on (instance) {instances}', labels)} > 0\n"
        f"{unless_same_slo} {sum_by(f'{bad_events} unless on (instance) {instances}', labels)} > 0\n"
        f"{unless_same_slo} {firing_page}",
    )
