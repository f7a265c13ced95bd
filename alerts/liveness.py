"""Alerts on what must be up for the SLOs to mean anything; each tells one cause apart from the others."""

from alerts.promql import increase, select, sum_by
from alerts.rule import Alert
from alerts.tiers import Severity, tiers
from alerts.windows import patience, windows
from alerts.wording import AlertName, Links, annotations
from exporters.signals import (
    COMPLETION_TOKENS,
    ENGINE_GENERATION_TOKENS,
    ENGINE_PROMPT_TOKENS,
    ENGINE_UP,
    IN_FLIGHT,
    PROMPT_TOKENS,
    SIDECAR_DROPPED,
    Label,
    Signal,
)
from exporters.slos import SloFile
from exporters.yamlfile import spell_duration

SIDECAR_JOB = "vllm-slo-sidecar"
"""The `job` under which Prometheus scrapes the sidecar."""

_INSTANCE = "instance"


def liveness_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    return (
        _sidecar_down(spec, links),
        _engine_down(spec, links),
        _engine_stalled(spec, links),
        _dropping(spec, links),
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
            "bundle can fire for it.",
        ),
        wait=wait,
    )


def _engine_down(spec: SloFile, links: Links) -> Alert:
    wait = patience(spec)
    return Alert(
        AlertName.ENGINE_DOWN,
        f"{ENGINE_UP.name} == 0",
        _severity(Severity.PAGE),
        annotations(
            AlertName.ENGINE_DOWN,
            links,
            "the engine {{ $labels.engine }} does not answer its sidecar",
            f"{{{{ $labels.instance }}}} is up, but could not reach the engine {{{{ $labels.engine }}}} for "
            f"{spell_duration(wait)}. A restart that takes less raises no alert.",
        ),
        wait=wait,
        hold=windows(spec).step,  # an engine that dies again at once is one incident
    )


def _engine_stalled(spec: SloFile, links: Links) -> Alert:
    """The engine answers, holds requests and moves no token.

    The sidecar's own token counts move when requests end, the engine's as it works: only an engine that has
    counters can be told to stall, and one prompt so long that it fills `wait` alone would look the same.
    """
    look = spell_duration(4 * spec.scrape_interval)
    wait = max(windows(spec).step, 30.0)

    def moved(signal: Signal) -> str:
        return sum_by(increase(signal.name, look), [_INSTANCE])

    others = (ENGINE_PROMPT_TOKENS, PROMPT_TOKENS, COMPLETION_TOKENS)
    return Alert(
        AlertName.ENGINE_STALLED,
        f"{sum_by(f'max_over_time({IN_FLIGHT.name}[{look}])', [_INSTANCE])} > 0\n"
        f"and on (instance) {moved(ENGINE_GENERATION_TOKENS)} == 0\n"
        + "\n".join(f"unless on (instance) {moved(signal)} > 0" for signal in others),
        _severity(Severity.PAGE),
        annotations(
            AlertName.ENGINE_STALLED,
            links,
            "the engine behind {{ $labels.instance }} holds requests and moves no token",
            '{{ printf "%.0f" $value }} requests are open at {{ $labels.instance }}, and for '
            f"{spell_duration(wait)} neither prompt nor generation tokens have moved, by the engine's count and by the "
            "sidecar's. The engine still answers its metrics.",
        ),
        wait=wait,
    )


def _dropping(spec: SloFile, links: Links) -> Alert:
    slow_page = next(tier for tier in tiers(spec.period) if tier.name == "slow-page")
    look = spell_duration(slow_page.short)
    return Alert(
        AlertName.DROPPING,
        f"{sum_by(increase(select(SIDECAR_DROPPED), look), [_INSTANCE])} > 0",
        _severity(Severity.TICKET),
        annotations(
            AlertName.DROPPING,
            links,
            "the sidecar {{ $labels.instance }} loses measurements",
            f'{{{{ $labels.instance }}}} has dropped {{{{ printf "%.0f" $value }}}} records in the last {look}: its '
            "exporter process was away for too long or is too slow. Requests were served, but these are in no count.",
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
