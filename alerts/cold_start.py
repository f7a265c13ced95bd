"""Recording rules that hold back pages while an engine starts; the error budget is still charged."""

from math import ceil

from alerts.pooled_classes import POOL
from alerts.promql_text import increase, sum_by
from alerts.recording_windows import direct_interval, down_after, windows
from alerts.rule_groups import Recording
from alerts.traffic_alerts import lookback
from exporters.quantities import number, spell_duration
from exporters.signals import (
    COLD_START,
    ENGINE_START_TIME,
    ENGINE_UP,
    HELD_PAGE,
    PAGE_ERROR_RATIO,
    PAGE_HELD,
    REQUESTS_IN,
    SLO_BAD,
    Label,
)
from exporters.slos import SloFile, Source
from exporters.verdicts import SERVER_FAULT

_HELD_COLD_STARTS = 3
"""Pages of one SLO are held for as many cold starts within the interval of second starts."""


def cold_start_limit(spec: SloFile) -> float:
    """Seconds that an engine may be down, and then slow; at least the time to detect that it is down."""
    return max(spec.alerting.cold_start, down_after(spec))


def second_start_interval(spec: SloFile) -> float:
    """Seconds; a second start within this time, with failed requests, is a failure and holds back no page."""
    return max(spec.period / 720, restart_loop_interval(spec))


def restart_loop_interval(spec: SloFile) -> float:
    """Seconds; a second start within this time is a failure, even if no request fails."""
    return 4 * cold_start_limit(spec)


def failed_requests(spec: SloFile) -> str:
    """The failed requests at each sidecar, by class and outcome; a planned restart of a drained engine has none."""
    failed = "|".join(sorted(SERVER_FAULT))
    return f'{REQUESTS_IN.name}{{{Label.OUTCOME}=~"{failed}",{Label.WINDOW}="{lookback(spec)}"}}'


def cold_start(spec: SloFile) -> Recording:
    """Present if an engine went down, came up or first appeared within the limit, and this is no second failure."""
    up, started, recent = ENGINE_UP.name, ENGINE_START_TIME.name, spell_duration(cold_start_limit(spec))

    def second_start(interval: float) -> str:
        within = spell_duration(interval)
        return f"(changes({up}[{within}]) > 2 or changes({started}[{within}]) > 1)"

    failure = second_start(second_start_interval(spec))
    if spec.source is Source.SIDECAR:
        failed = f"{sum_by(failed_requests(spec), [Label.INSTANCE])} >= {spec.alerting.min_bad}"
        failure = f"({second_start(restart_loop_interval(spec))} or {failure} and on (instance) {failed})"
    return Recording(
        COLD_START,
        "group by (instance, engine) (\n"
        f"  max_over_time({up}[{recent}]) > min_over_time({up}[{recent}])\n"
        f"  or {up} unless {up} offset {recent}\n"
        f"  or time() - {started} < {number(cold_start_limit(spec))}\n"
        ")\n"
        f"unless on (instance, engine) {failure}",
    )


def starting(condition: str = COLD_START.name) -> str:
    """Sidecars with a starting engine and without another engine that is up and warm."""
    return f"({condition} unless on (instance) ({ENGINE_UP.name} == 1 unless on (instance, engine) {condition}))"


def page_bridge(spec: SloFile) -> float:
    """Seconds that a page keeps firing after its burn; bridges outliers of the short window."""
    return windows(spec).step


def page_held(spec: SloFile) -> Recording:
    """Present for an SLO if all bad events of the last step come from starting engines, and no page fires yet.

    It covers one step, as the short window still counts bad events from before the engine was warm. It does not affect
    a firing page, as a restart must not resolve it. The time that pages of the SLO are held is limited: pods that are
    replaced again and again are always starting.
    """
    step, bridge = spell_duration(windows(spec).step), spell_duration(page_bridge(spec))
    # An evaluation longer than the step, as Prometheus 3 excludes the start of a range: bad events of a pod that is
    # gone are counted for as long as it was starting. A millisecond less, as Prometheus 2 includes it.
    recent = spell_duration(windows(spec).step + direct_interval(spec) - 0.001)
    instances = starting(f"last_over_time({COLD_START.name}[{recent}])")
    bad_events, labels = increase(SLO_BAD.name, step), PAGE_HELD.labels
    unless_same_slo = f"unless on ({', '.join(labels)})"
    return Recording(
        PAGE_HELD,
        f"{sum_by(f'{bad_events} and on (instance) {instances}', labels)} > 0\n"
        f"{unless_same_slo} {sum_by(f'{bad_events} unless on (instance) {instances}', labels)} > 0\n"
        f"{unless_same_slo} last_over_time({PAGE_ERROR_RATIO.name}[{bridge}])\n"
        # The page of classes with few events has no class of its own.
        f'unless on (model, slo) last_over_time({PAGE_ERROR_RATIO.name}{{class="{POOL}"}}[{bridge}])\n'
        f"{unless_same_slo} {_held_too_long(spec)}",
    )


def held_page(burning: str) -> Recording:
    """Present while a page tier burns and its page is held: each sample is one evaluation that the page has waited."""
    by = ", ".join(HELD_PAGE.labels)
    return Recording(HELD_PAGE, f"group by ({by}) ({burning} and on ({by}) {PAGE_HELD.name})")


def _held_too_long(spec: SloFile) -> str:
    evaluations = ceil(_HELD_COLD_STARTS * cold_start_limit(spec) / direct_interval(spec))
    return f"count_over_time({HELD_PAGE.name}[{spell_duration(second_start_interval(spec))}]) >= {evaluations}"
