"""Alerts on what must be up for the SLOs to mean anything; each tells one cause apart from the others."""

from alerts.alert_names import AlertName
from alerts.annotations import annotations
from alerts.cold_start import mute, second_start, starting
from alerts.links import Links
from alerts.promql import escape, increase, select, sum_by
from alerts.recording_windows import patience, windows
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
    wait = patience(spec)
    return Alert(
        AlertName.SIDECAR_DOWN,
        f"{up} == 0\nor absent({up})",  # absent: a job under another name would leave every alert asleep
        _severity(Severity.PAGE),
        annotations(
            AlertName.SIDECAR_DOWN,
            links,
            "the sidecar {{ $labels.instance }} does not answer Prometheus",
            f"No scrape of the job {SIDECAR_JOB} {{{{ with $labels.instance }}}}at {{{{ . }}}} {{{{ end }}}}has worked "
            f"for {spell_duration(wait)}. Requests are not measured and may not be served; no other alert of this "
            "bundle can fire for it. Look first at whether clients still get answers.",
        ),
        wait=wait,
    )


def _engine_down(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    """The page, and until it comes a ticket: an engine that starts and one that is dead look alike from outside."""
    sure, muted, twice = map(spell_duration, (patience(spec), mute(spec), second_start(spec)))
    down = f"max_over_time({ENGINE_UP.name}[{sure}]) == 0"
    if spec.source is Source.SIDECAR:
        engine, who, unknown = "the engine {{ $labels.engine }}", "its sidecar", ""
        gone = f"{{{{ $labels.instance }}}} is up, but has not reached {engine} for {sure} or more"
    else:
        job = spec.engine.job
        engine = f"the {{{{ with $labels.engine }}}}engine {{{{ . }}}}{{{{ else }}}}job {job}{{{{ end }}}}"
        who, unknown = "Prometheus", f'\nor absent_over_time(up{{job="{escape(job)}"}}[{sure}])'
        gone = f"No scrape of {engine} has worked for {sure} or more"
    return (
        Alert(
            AlertName.ENGINE_DOWN,
            f"{down}\nunless on (instance, engine) {COLD_START.name}{unknown}",
            _severity(Severity.PAGE),
            annotations(
                AlertName.ENGINE_DOWN,
                links,
                f"{engine} does not answer {who}",
                f"{gone}. A start of up to {muted} raises no page, unless it is the second within {twice}. No "
                "request is served there. Look first at the last lines of the engine's log.",
            ),
            hold=windows(spec).step,  # an engine that dies again at once is one incident
        ),
        Alert(
            AlertName.PAGE_HELD,
            f"{down}\nand on (instance, engine) {COLD_START.name}",
            _severity(Severity.TICKET),
            annotations(
                AlertName.PAGE_HELD,
                links,
                f"no page yet, as it may be starting: {engine} does not answer {who}",
                f"{gone}, and it went away less than {muted} ago. If it is not back by then, "
                f"*{AlertName.ENGINE_DOWN}* pages. The budget is charged all the same. Look first at whether somebody "
                "has restarted it.",
            ),
        ),
    )


def _engine_stalled(spec: SloFile, links: Links) -> Alert:
    """Who holds requests and moves no token: each engine by its own counts, else all behind a sidecar by its waits.

    An engine that counts tokens only as requests end (`llm_engine_token_counts_live` 0) stands still by them during
    each long answer. The sidecar counts at the end too; what it knows before is who waits and what streams. So such an
    engine is told to stall when nothing streams: a stall in the middle of answers shows once their clients are gone.
    """
    look = spell_duration(4 * spec.scrape_interval)
    wait = max(windows(spec).step, 30.0)
    each, here = "on (instance, engine)", "on (instance)"

    def most(series: str, by: list[Label]) -> str:
        return sum_by(f"max_over_time({series}[{look}])", by)

    def moved(signals: tuple[Signal, ...], by: list[Label]) -> str:
        return " or ".join(f"{sum_by(increase(signal.name, look), by)} > 0" for signal in signals)

    engine, instance = [Label.INSTANCE, Label.ENGINE], [Label.INSTANCE]
    works = (ENGINE_GENERATION_TOKENS, ENGINE_PROMPT_TOKENS)
    held = " or ".join(f"{most(signal.name, engine)} > 0" for signal in (ENGINE_RUNNING, ENGINE_WAITING))
    by_its_counts = f"({held})\nand {each} max_over_time({ENGINE_COUNTS_LIVE.name}[{look}]) == 1"
    by_waits = (
        f"max by (instance) (max_over_time({OLDEST_WAIT.name}[{look}])) > {number(patience(spec))}\n"
        f"and {here} max_over_time({ENGINE_UP.name}[{look}]) == 1\n"
        f"unless {here} {most(select(IN_FLIGHT, {Label.PHASE: Phase.STREAMING}), instance)} > 0\n"
        f"unless {here} ({moved((*works, PROMPT_TOKENS, COMPLETION_TOKENS), instance)})\n"
        f"unless {here} ({by_its_counts})\n"
        f"unless {here} {starting()}"
    )
    still = f"for {spell_duration(wait)}"
    return Alert(
        AlertName.ENGINE_STALLED,
        # graphs are compiled and captured before the first token
        f"{by_its_counts}\nunless {each} ({moved(works, engine)})\nunless {each} {COLD_START.name}"
        + (f"\nor {by_waits}" if spec.source is Source.SIDECAR else ""),
        _severity(Severity.PAGE),
        annotations(
            AlertName.ENGINE_STALLED,
            links,
            "{{ with $labels.engine }}the engine {{ . }} holds requests and moves no token{{ else }}"
            "no request at {{ $labels.instance }} gets a first token{{ end }}",
            f"{{{{ with $labels.engine }}}}{{{{ . }}}} holds {_COUNT} requests, and {still} neither prompt nor "
            "generation tokens have moved by its own count.{{ else }}A stream at {{ $labels.instance }} has waited "
            f"{_COUNT} s for its first token, and {still} none has streamed, nor has a token been counted."
            f"{{{{ end }}}} The engine still answers its metrics. Held back for {spell_duration(mute(spec))} after a "
            "start. Look first at the GPU and at the end of the engine's log.",
        ),
        wait=wait,
    )


def _short_of_slow_page(spec: SloFile) -> str:
    """How far back a loss is worth a ticket: 30 m of 30 d."""
    return spell_duration(next(tier for tier in tiers(spec.period) if tier.name == "slow-page").short)


def _dropping(spec: SloFile, links: Links) -> Alert:
    look = _short_of_slow_page(spec)
    return Alert(
        AlertName.DROPPING,
        f"{sum_by(increase(select(SIDECAR_DROPPED), look), [Label.INSTANCE])} > 0",
        _severity(Severity.TICKET),
        annotations(
            AlertName.DROPPING,
            links,
            "the sidecar {{ $labels.instance }} loses measurements",
            f"{{{{ $labels.instance }}}} has dropped {_COUNT} records in the last {look}: its "
            "exporter process was away for too long or is too slow. Requests were served, but these are in no count. "
            "Look first at the disk of the request log.",
        ),
    )


def _lost(spec: SloFile, links: Links) -> Alert:
    look = _short_of_slow_page(spec)
    return Alert(
        AlertName.LOST,
        f"{sum_by(increase(SIDECAR_LOST.name, look), [Label.INSTANCE, Label.PROCESS])} > 0",
        _severity(Severity.TICKET),
        annotations(
            AlertName.LOST,
            links,
            "{{ $labels.process }} of the sidecar {{ $labels.instance }} died with requests open",
            f"{{{{ $labels.process }}}} of {{{{ $labels.instance }}}} died within the last {look} and broke off "
            f"{_COUNT} requests or so. Their clients saw the connection end; they are in no count, so "
            "no budget pays for them. The supervisor has started it again. Look first at the memory limit, then at "
            "what the supervisor says on standard error.",
        ),
    )


def _certificate(links: Links, severity: Severity, least: float, part: int) -> Alert:
    """Less than `least` seconds are left; of a short-lived one, that was renewed within a week, less than a `part`th.

    How long one lives is not told: the most that was left in a week is that, once a renewal has been seen.
    """
    ends = SIDECAR_CERTIFICATE_EXPIRY.name
    left, week = f"({ends} - time())", "[7d:30m]"
    return Alert(
        AlertName.CERTIFICATE,
        f"{left} < {least:.0f}\nunless ({left} > max_over_time({left}{week}) / {part} and changes({ends}{week}) > 0)",
        _severity(severity),
        annotations(
            AlertName.CERTIFICATE,
            links,
            "the certificate of {{ $labels.instance }} ends in {{ $value | humanizeDuration }}",
            f"Clients refuse {{{{ $labels.instance }}}} when its certificate has ended, in {{{{ $value | "
            f"humanizeDuration }}}}. A {severity} from {spell_duration(least)} on; where it is renewed "
            f"every week or sooner, when less than 1/{part} of its life is left. Look first at why none replaced it; "
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
