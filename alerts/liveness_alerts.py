"""Alerts on sidecars, engines and certificates that are down, stalled, lossy or about to expire."""

from alerts.alert_annotations import annotations
from alerts.alert_names import AlertName
from alerts.cold_start import cold_start_limit, second_start_interval, starting
from alerts.links import Links
from alerts.promql import escape, increase, select, sum_by
from alerts.recording_windows import down_after, windows
from alerts.rule_groups import Alert
from alerts.tiers import Severity, tiers
from exporters.quantities import number, spell_duration
from exporters.signals import (
    COLD_START,
    COMPLETION_TOKENS,
    ENGINE_COUNTS_LIVE,
    ENGINE_GENERATION_TOKENS,
    ENGINE_PROMPT_TOKENS,
    ENGINE_RUNNING,
    ENGINE_UP,
    ENGINE_WAITING,
    IN_FLIGHT,
    OLDEST_WAIT,
    PROMPT_TOKENS,
    SIDECAR_CERTIFICATE_EXPIRY,
    SIDECAR_DROPPED,
    SIDECAR_LOST,
    Label,
    Phase,
    Signal,
)
from exporters.slos import SloFile, Source

SIDECAR_JOB = "vllm-slo-sidecar"
"""The `job` under which Prometheus scrapes the sidecar."""

_DAY = 86400.0
_COUNT = '{{ printf "%.0f" $value }}'


def liveness_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    return (
        _sidecar_down(spec, links),
        *_engine_down(spec, links),
        _engine_stalled(spec, links),
        _dropping(spec, links),
        _lost(spec, links),
        _certificate(links, Severity.PAGE, _DAY, 8),
        _certificate(links, Severity.TICKET, 7 * _DAY, 4),
        _watchdog(links),
    )


def _severity(severity: Severity) -> dict[str, str]:
    return {Label.SEVERITY.value: severity.value}


def _sidecar_down(spec: SloFile, links: Links) -> Alert:
    up = f'up{{job="{SIDECAR_JOB}"}}'
    pending_for = down_after(spec)
    return Alert(
        AlertName.SIDECAR_DOWN,
        f"{up} == 0\nor absent({up})",  # absent: a job under another name would leave every alert asleep
        _severity(Severity.PAGE),
        annotations(
            AlertName.SIDECAR_DOWN,
            links,
            "the sidecar {{ $labels.instance }} does not answer Prometheus",
            f"No scrape of the job {SIDECAR_JOB} {{{{ with $labels.instance }}}}at {{{{ . }}}} {{{{ end }}}}has worked "
            f"for {spell_duration(pending_for)}. Requests are not measured and may not be served; no other alert of "
            "this bundle can fire for it. Look first at whether clients still get answers.",
        ),
        pending_for=pending_for,
    )


def _engine_down(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """A page, and a ticket until then: a starting engine and a dead one cannot be distinguished at first."""
    down_for, limit, second = map(
        spell_duration, (down_after(spec), cold_start_limit(spec), second_start_interval(spec))
    )
    down = f"max_over_time({ENGINE_UP.name}[{down_for}]) == 0"
    if spec.source is Source.SIDECAR:
        engine, observer, or_absent = "the engine {{ $labels.engine }}", "its sidecar", ""
        symptom = f"{{{{ $labels.instance }}}} is up, but has not reached {engine} for {down_for} or more"
    else:
        job = spec.engine.job
        engine = f"the {{{{ with $labels.engine }}}}engine {{{{ . }}}}{{{{ else }}}}job {job}{{{{ end }}}}"
        observer, or_absent = "Prometheus", f'\nor absent_over_time(up{{job="{escape(job)}"}}[{down_for}])'
        symptom = f"No scrape of {engine} has worked for {down_for} or more"
    return (
        Alert(
            AlertName.ENGINE_DOWN,
            f"{down}\nunless on (instance, engine) {COLD_START.name}{or_absent}",
            _severity(Severity.PAGE),
            annotations(
                AlertName.ENGINE_DOWN,
                links,
                f"{engine} does not answer {observer}",
                f"{symptom}. A start of up to {limit} raises no page, unless it is the second within {second}. No "
                "request is served there. Look first at the last lines of the engine's log.",
            ),
            keep_firing_for=windows(spec).step,  # an engine that dies again at once is one incident
        ),
        Alert(
            AlertName.PAGE_HELD,
            f"{down}\nand on (instance, engine) {COLD_START.name}",
            _severity(Severity.TICKET),
            annotations(
                AlertName.PAGE_HELD,
                links,
                f"no page yet, as it may be starting: {engine} does not answer {observer}",
                f"{symptom}, and it went away less than {limit} ago. If it is not back by then, "
                f"*{AlertName.ENGINE_DOWN}* pages. The budget is charged all the same. Look first at whether somebody "
                "has restarted it.",
            ),
        ),
    )


def _engine_stalled(spec: SloFile, links: Links) -> Alert:
    """Requests are open and no token moves: by the counts of each engine, else by the waits at the sidecar.

    The counters of an engine that counts tokens at the end of a request (`llm_engine_token_counts_live` 0) stand still
    during each long response. The sidecar also counts at the end, but knows which requests wait and which stream. Such
    an engine counts as stalled when nothing streams; a stall during responses is detected once their clients are gone.
    """
    lookback = spell_duration(4 * spec.scrape_interval)
    pending_for = max(windows(spec).step, 30.0)
    on_engine, on_instance = "on (instance, engine)", "on (instance)"

    def sum_of_max(series: str, by: list[Label]) -> str:
        return sum_by(f"max_over_time({series}[{lookback}])", by)

    def increased(signals: tuple[Signal, ...], by: list[Label]) -> str:
        return " or ".join(f"{sum_by(increase(signal.name, lookback), by)} > 0" for signal in signals)

    engine, instance = [Label.INSTANCE, Label.ENGINE], [Label.INSTANCE]
    tokens = (ENGINE_GENERATION_TOKENS, ENGINE_PROMPT_TOKENS)
    requests = " or ".join(f"{sum_of_max(signal.name, engine)} > 0" for signal in (ENGINE_RUNNING, ENGINE_WAITING))
    by_counts = f"({requests})\nand {on_engine} max_over_time({ENGINE_COUNTS_LIVE.name}[{lookback}]) == 1"
    by_waits = (
        f"max by (instance) (max_over_time({OLDEST_WAIT.name}[{lookback}])) > {number(down_after(spec))}\n"
        f"and {on_instance} max_over_time({ENGINE_UP.name}[{lookback}]) == 1\n"
        f"unless {on_instance} {sum_of_max(select(IN_FLIGHT, {Label.PHASE: Phase.STREAMING}), instance)} > 0\n"
        f"unless {on_instance} ({increased((*tokens, PROMPT_TOKENS, COMPLETION_TOKENS), instance)})\n"
        f"unless {on_instance} ({by_counts})\n"
        f"unless {on_instance} {starting()}"
    )
    duration = f"for {spell_duration(pending_for)}"
    return Alert(
        AlertName.ENGINE_STALLED,
        # graphs are compiled and captured before the first token
        f"{by_counts}\nunless {on_engine} ({increased(tokens, engine)})\nunless {on_engine} {COLD_START.name}"
        + (f"\nor {by_waits}" if spec.source is Source.SIDECAR else ""),
        _severity(Severity.PAGE),
        annotations(
            AlertName.ENGINE_STALLED,
            links,
            "{{ with $labels.engine }}the engine {{ . }} holds requests and moves no token{{ else }}"
            "no request at {{ $labels.instance }} gets a first token{{ end }}",
            f"{{{{ with $labels.engine }}}}{{{{ . }}}} holds {_COUNT} requests, and {duration} neither prompt nor "
            "generation tokens have moved by its own count.{{ else }}A stream at {{ $labels.instance }} has waited "
            f"{_COUNT} s for its first token, and {duration} none has streamed, nor has a token been counted."
            f"{{{{ end }}}} The engine still answers its metrics. Held back for "
            f"{spell_duration(cold_start_limit(spec))} after a start. Look first at the GPU and at the end of the "
            "engine's log.",
        ),
        pending_for=pending_for,
    )


def _slow_page_short_window(spec: SloFile) -> str:
    """The window in which a loss raises a ticket: 30 m of 30 d."""
    return spell_duration(next(tier for tier in tiers(spec.period) if tier.name == "slow-page").short)


def _dropping(spec: SloFile, links: Links) -> Alert:
    lookback = _slow_page_short_window(spec)
    return Alert(
        AlertName.DROPPING,
        f"{sum_by(increase(select(SIDECAR_DROPPED), lookback), [Label.INSTANCE])} > 0",
        _severity(Severity.TICKET),
        annotations(
            AlertName.DROPPING,
            links,
            "the sidecar {{ $labels.instance }} loses measurements",
            f"{{{{ $labels.instance }}}} has dropped {_COUNT} records in the last {lookback}: its "
            "exporter process was away for too long or is too slow. Requests were served, but these are in no count. "
            "Look first at the disk of the request log.",
        ),
    )


def _lost(spec: SloFile, links: Links) -> Alert:
    lookback = _slow_page_short_window(spec)
    return Alert(
        AlertName.LOST,
        f"{sum_by(increase(SIDECAR_LOST.name, lookback), [Label.INSTANCE, Label.PROCESS])} > 0",
        _severity(Severity.TICKET),
        annotations(
            AlertName.LOST,
            links,
            "{{ $labels.process }} of the sidecar {{ $labels.instance }} died with requests open",
            f"{{{{ $labels.process }}}} of {{{{ $labels.instance }}}} died within the last {lookback} and broke off "
            f"{_COUNT} requests or so. Their clients saw the connection end; they are in no count, so "
            "no budget pays for them. The supervisor has started it again. Look first at the memory limit, then at "
            "what the supervisor says on standard error.",
        ),
    )


def _certificate(links: Links, severity: Severity, least: float, nth: int) -> Alert:
    """Less than `least` seconds are left; for a certificate renewed within a week, less than an `nth` of its life.

    The life of a certificate is not exposed: the maximum time left in a week with a renewal stands for it.
    """
    expiry = SIDECAR_CERTIFICATE_EXPIRY.name
    left, week = f"({expiry} - time())", "[7d:30m]"
    return Alert(
        AlertName.CERTIFICATE,
        f"{left} < {least:.0f}\nunless ({left} > max_over_time({left}{week}) / {nth} and changes({expiry}{week}) > 0)",
        _severity(severity),
        annotations(
            AlertName.CERTIFICATE,
            links,
            "the certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
            f"Clients refuse {{{{ $labels.instance }}}} when its certificate has ended, in {{{{ $value | "
            f"humanizeDuration }}}}. A {severity} from {spell_duration(least)} on; where it is renewed "
            f"every week or sooner, when less than 1/{nth} of its life is left. Look first at why none replaced it; "
            "SIGHUP makes the sidecar read the new file.",
        ),
    )


def _watchdog(links: Links) -> Alert:
    return Alert(
        AlertName.WATCHDOG,
        "vector(1)",
        _severity(Severity.NONE),
        annotations(
            AlertName.WATCHDOG,
            links,
            "the alerting path works",
            "Fires always. Route it to a dead man's switch, which speaks up when it no longer hears this.",
        ),
    )
