"""Alerts on sidecars, engines and certificates that are down, stalled, lossy or about to expire."""

from alerts.alert_annotations import annotated_alert
from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit, restart_loop_interval, second_start_interval, starting
from alerts.links import Links
from alerts.missing_targets import missing_targets, no_target
from alerts.promql_text import increase, max_by, select, sum_by, with_model
from alerts.recording_windows import down_after, windows
from alerts.rule_groups import Alert, Recording
from alerts.scrape_jobs import targets_up
from alerts.tiers import Severity, tiers
from exporters import signals
from exporters.quantities import number, spell_duration
from exporters.signals import ENGINE_MODEL, Label, Phase, Signal
from exporters.slos import SloFile, Source

_DAY = 86400.0
_COUNT = '{{ printf "%.0f" $value }}'
_OF_MODEL = "{{ with $labels.model }} of {{ . }}{{ end }}"


def engine_model(spec: SloFile) -> Recording:
    """The models of each engine. While an engine is down, the last ones are kept, as long as its target exists."""
    by = ", ".join(ENGINE_MODEL.labels)
    return Recording(
        ENGINE_MODEL,
        f"group by ({by}) ({signals.ENGINE_RUNNING.name})\n"
        f"or on (instance, engine) (last_over_time({ENGINE_MODEL.name}[1h]) and on (instance) {targets_up(spec)})",
    )


def liveness_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    return (
        _sidecar_down(spec, links),
        _engine_down(spec, links),
        _watchdog(links),
        *missing_targets(spec, links),
    )


def sidecar_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """For sidecars that work, but incompletely or not for long: they need no evaluation at each scrape."""
    return (
        _dropping(spec, links),
        _dropping_lines(spec, links),
        _lost(spec, links),
        _reload_failed(links),
        _certificate(links, Severity.PAGE, _DAY, 8),
        _certificate(links, Severity.TICKET, 7 * _DAY, 4),
    )


def _sidecar_down(spec: SloFile, links: Links) -> Alert:
    up, pending_for = targets_up(spec), down_after(spec)
    return annotated_alert(
        AlertName.SIDECAR_DOWN,
        Severity.PAGE,
        f"group by (instance, model) ({ENGINE_MODEL.name}) * on (instance) group_left (job) ({up} == 0)\n"
        # With another job name, no alert could ever fire.
        f"or on (instance) ({up} == 0 or {no_target(spec)})",
        links,
        f"the sidecar {{{{ $labels.instance }}}}{_OF_MODEL} does not answer Prometheus",
        f"No scrape of the job {' or '.join(spec.scrape_job)} "
        f"{{{{ with $labels.instance }}}}at {{{{ . }}}} {{{{ end }}}}succeeded for {spell_duration(pending_for)}. "
        "Its requests are not measured and may not be served, and no other alert can fire for it. "
        "Look first at whether clients still get responses.",
        pending_for=pending_for,
    )


def _engine_down(spec: SloFile, links: Links) -> Alert:
    """Not while the engine may be starting: a starting engine looks like one that is down."""
    down_for, limit, second = map(
        spell_duration, (down_after(spec), cold_start_limit(spec), second_start_interval(spec))
    )
    down = f"max by (instance, engine) (max_over_time({signals.ENGINE_UP.name}[{down_for}])) == 0"
    expr = with_model(f"{down}\nunless on (instance, engine) {signals.COLD_START.name}")
    if spec.source is Source.SIDECAR:
        engine, observer = "the engine {{ $labels.engine }}", "its sidecar"
        symptom = f"{{{{ $labels.instance }}}} is up, but has not reached {engine} for {down_for} or more"
        healthy = f" (if no request failed, within {spell_duration(restart_loop_interval(spec))})"
    else:
        job = spec.engine.job
        engine = f"the {{{{ with $labels.engine }}}}engine {{{{ . }}}}{{{{ else }}}}job {job}{{{{ end }}}}"
        observer = "Prometheus"
        expr += f"\nor {no_target(spec, down_for)}"
        symptom = f"No scrape of {engine} has worked for {down_for} or more"
        healthy = ""
    return annotated_alert(
        AlertName.ENGINE_DOWN,
        Severity.PAGE,
        expr,
        links,
        f"{engine}{_OF_MODEL} does not answer {observer}",
        f"{symptom}. A start of up to {limit} raises no page, unless it is the second within {second}{healthy}. No "
        "request is served there. Look first at the last lines of the engine's log.",
        # An engine that restarts and exits again is one incident.
        keep_firing_for=windows(spec).step,
    )


def stalled_alert(spec: SloFile, links: Links) -> Alert:
    """Requests are open but no token count grows: by each engine's counters, else by the waits at the sidecar.

    With `llm_engine_token_counts_live` 0, an engine counts tokens only when a request ends, so its counters stand
    still during each long response. The sidecar also counts at the end, but it knows which requests wait and which
    stream. Such an engine counts as stalled when no request streams. A stall of streaming responses is detected only
    after their clients have disconnected.
    """
    step = windows(spec).step
    # Twice in a window for targets that are scraped each minute.
    lookback = spell_duration(max(4 * spec.scrape_interval, min(2.5 * 60.0, step)))
    pending_for = max(step, 30.0)
    on_engine, on_instance = "on (instance, engine)", "on (instance)"

    def latest(signal: Signal) -> str:
        return f"max_over_time({signal.name}[{lookback}])"

    def increased(counters: tuple[Signal, ...], by: list[Label]) -> str:
        return " or ".join(f"{sum_by(increase(counter.name, lookback), by)} > 0" for counter in counters)

    engine, instance = [Label.INSTANCE, Label.ENGINE, Label.MODEL], [Label.INSTANCE]
    tokens = (signals.ENGINE_GENERATION_TOKENS, signals.ENGINE_PROMPT_TOKENS)
    gauges = (signals.ENGINE_RUNNING, signals.ENGINE_WAITING)
    requests = " or ".join(f"{sum_by(latest(gauge), engine)} > 0" for gauge in gauges)
    streams = f"max_over_time({select(signals.IN_FLIGHT, {Label.PHASE: Phase.STREAMING})}[{lookback}])"
    all_tokens = (*tokens, signals.PROMPT_TOKENS, signals.COMPLETION_TOKENS)
    # With one sample in the window, tokens show no growth however fast they move.
    scraped_twice = f"count_over_time({signals.ENGINE_UP.name}[{lookback}]) >= 2"
    by_counts = f"({requests})\nand {on_engine} {latest(signals.ENGINE_COUNTS_LIVE)} == 1"
    waits = f"{max_by(latest(signals.OLDEST_WAIT), [Label.INSTANCE, Label.MODEL])} > {number(down_after(spec))}"
    on_model = "on (instance, model)"
    by_waits = (
        f"({ENGINE_MODEL.name} * {on_model} group_left () ({waits}) or {on_model} ({waits}))\n"
        f"and {on_instance} {latest(signals.ENGINE_UP)} == 1\n"
        f"and {on_instance} {scraped_twice}\n"
        f"unless {on_instance} {sum_by(streams, instance)} > 0\n"
        f"unless {on_instance} ({increased(all_tokens, instance)})\n"
        f"unless {on_instance} ({by_counts})\n"
        f"unless {on_instance} {starting()}"
    )
    engine_at = "{{ with $labels.engine }}the engine {{ . }}{{ else }}an engine{{ end }} at {{ $labels.instance }}"
    duration = f"for {spell_duration(pending_for)}"
    return annotated_alert(
        AlertName.ENGINE_STALLED,
        Severity.PAGE,
        # Not during a cold start: the engine compiles and captures graphs before the first token.
        f"{by_counts}\nand {on_engine} {scraped_twice}\nunless {on_engine} ({increased(tokens, engine)})\n"
        f"unless {on_engine} {signals.COLD_START.name}" + (f"\nor {by_waits}" if spec.source is Source.SIDECAR else ""),
        links,
        f"{engine_at}{_OF_MODEL} holds requests and generates no token",
        f"Requests are open at {engine_at}, and {duration} no prompt or generation token has been counted. "
        f"The engine still answers its metrics. Held back for {spell_duration(cold_start_limit(spec))} "
        "after a start. Look first at the GPU and at the end of the engine's log.",
        pending_for=pending_for,
    )


def _slow_page_short_window(spec: SloFile) -> str:
    """The window in which lost measurements raise a ticket: 30 m of 30 d."""
    _, slow_page, *_ = tiers(spec.period)
    return spell_duration(slow_page.short)


def _dropping(spec: SloFile, links: Links) -> Alert:
    lookback = _slow_page_short_window(spec)
    return annotated_alert(
        AlertName.DROPPING,
        Severity.TICKET,
        f"{sum_by(increase(signals.SIDECAR_DROPPED.name, lookback), [Label.INSTANCE])} > 0",
        links,
        "the sidecar {{ $labels.instance }} loses measurements",
        f"{{{{ $labels.instance }}}} has dropped the records of {_COUNT} requests in the last {lookback}: its "
        "exporter process was away for too long or is too slow. Requests were served, but these are in no count. "
        "Look first at the CPU time and the log of the exporter process.",
    )


def _dropping_lines(spec: SloFile, links: Links) -> Alert:
    lookback = _slow_page_short_window(spec)
    return annotated_alert(
        AlertName.LOG_LINES,
        Severity.TICKET,
        f"{sum_by(increase(signals.SIDECAR_DROPPED_LINES.name, lookback), [Label.INSTANCE, Label.REASON])} > 0",
        links,
        "the request log of the sidecar {{ $labels.instance }} is incomplete",
        f"{{{{ $labels.instance }}}} has dropped {_COUNT} lines of its request log in the last {lookback} "
        "({{ $labels.reason }}), because it could not write the log for too long. Requests were served and all series "
        "are correct; reports that read the log miss these requests. Look first at the disk of the request log.",
    )


def _lost(spec: SloFile, links: Links) -> Alert:
    lookback = _slow_page_short_window(spec)
    return annotated_alert(
        AlertName.LOST,
        Severity.TICKET,
        f"{sum_by(increase(signals.SIDECAR_LOST.name, lookback), [Label.INSTANCE, Label.REASON])} > 0",
        links,
        "a process of the sidecar {{ $labels.instance }} ended with requests open or unrecorded",
        f"{{{{ $labels.instance }}}} has lost {_COUNT} requests in the last {lookback} ({{{{ $labels.reason }}}}). "
        "They are in no other count and consume no error budget. relay_crashed: their clients saw the connection end, "
        "and the supervisor has started the relay again. sidecar_stopped: the sidecar ended before the exporter had "
        "recorded them. Look first at the memory limit, then at the log of the supervisor.",
    )


def _reload_failed(links: Links) -> Alert:
    return annotated_alert(
        AlertName.RELOAD_FAILED,
        Severity.TICKET,
        f"{signals.SIDECAR_RELOAD_SUCCESSFUL.name} == 0",
        links,
        "the sidecar {{ $labels.instance }} has rejected its SLO file",
        "The SLO file was invalid when {{ $labels.instance }} received SIGHUP. It judges requests by the last valid "
        "file, which rules that are rendered from a newer file may not match. It does not start with the invalid file. "
        "Look first at the error in the log of the supervisor.",
    )


def _certificate(links: Links, severity: Severity, least: float, nth: int) -> Alert:
    """Less than `least` seconds are left; for certificates renewed within a week, less than an `nth` of the lifetime.

    The lifetime is not exposed. The maximum time left, over a week with a renewal, approximates it.
    """
    expiry = signals.SIDECAR_CERTIFICATE_EXPIRY.name
    left, week = f"({expiry} - time())", "[7d:30m]"
    return annotated_alert(
        AlertName.CERTIFICATE,
        severity,
        f"{left} < {least:.0f}\nunless ({left} > max_over_time({left}{week}) / {nth} and changes({expiry}{week}) > 0)",
        links,
        "the certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
        f"Clients refuse {{{{ $labels.instance }}}} when its certificate has ended, in {{{{ $value | "
        f"humanizeDuration }}}}. A {severity} from {spell_duration(least)} on; where it is renewed "
        f"every week or sooner, when less than 1/{nth} of its life is left. Look first at why none replaced it; "
        "SIGHUP makes the sidecar read the new file.",
    )


def _watchdog(links: Links) -> Alert:
    return annotated_alert(
        AlertName.WATCHDOG,
        Severity.NONE,
        "vector(1)",
        links,
        "the alerting path works",
        "Fires always. Route it to a dead man's switch, which speaks up when it no longer hears this.",
    )
