"""Records the series of vLLM under the sidecar's names, so that the other rules work without a sidecar."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from alerts.alert_annotations import annotated_alert
from alerts.alert_names import AlertName
from alerts.engine_only import ALL_REQUESTS, CAVEAT, SupportedSlo, supported_slos, version
from alerts.links import Links
from alerts.promql_text import escape, select
from alerts.recording_windows import direct_interval, windows
from alerts.rule_groups import Alert, Recording, RuleGroup
from alerts.tiers import Severity
from exporters import signals
from exporters.engines.signal_table import START_TIME, VLLM
from exporters.engines.vllm_buckets import FINISHED, family
from exporters.quantities import number
from exporters.signals import OTHER, Kind, Label, Outcome
from exporters.slos import SloFile

_OUTCOMES = {
    Outcome.OK: "stop|length|repetition",
    Outcome.UPSTREAM_ERROR: "error",
    Outcome.CLIENT_ABORT: "abort",
}
"""By `finished_reason`; vLLM's Python frontend counts no aborts, its Rust frontend does."""

_ALL_REQUESTS_LABELS: dict[str, str] = {Label.CLASS: ALL_REQUESTS, Label.TENANT: OTHER}

# Only the sidecar exposes the series of these rules.
_SIDECAR_ALERTS = frozenset(
    {
        *(AlertName.CLIENT_ERRORS, AlertName.REJECTIONS, AlertName.BUSY_BUT_USELESS),
        *(AlertName.TRAFFIC_LOST, AlertName.SIDECAR_DOWN, AlertName.DROPPING, AlertName.LOG_LINES, AlertName.LOST),
        *(AlertName.RELOAD_FAILED, AlertName.CERTIFICATE),
    }
)
_SIDECAR_SERIES = frozenset(
    {
        *(signals.GOODPUT_EVENTS_IN, signals.GOODPUT_REQUESTS_IN, signals.GOODPUT_RATIO, signals.GOODPUT_AT),
        *(
            signals.MODEL_REQUESTS_IN,
            signals.SURGE_AT,
            signals.SURGE_BEFORE,
            signals.OTHER_REQUESTS_IN,
            signals.TOKENS_IN,
            signals.TOKENS_MEDIAN,
            signals.COST_GOOD_IN,
            signals.COST_PER_GOOD,
        ),
    }
)


def vllm_groups(spec: SloFile, links: Links) -> tuple[RuleGroup, ...]:
    """The sidecar's series at the scrape interval, alerts on missing buckets, and the bounds of goodput."""
    slos = supported_slos(spec)
    ratio, by = signals.SLO_ERROR_RATIO.name, "by (model, class, window)"
    return (
        RuleGroup(
            "vllm-slo-engine-series",
            spec.scrape_interval,
            (
                *_engine_state(spec),
                *(rule for each in slos for rule in _slo_counts(spec, each)),
                *(_unmeasured(spec, each, links) for each in slos),
            ),
        ),
        RuleGroup(
            "vllm-slo-goodput-bounds",
            direct_interval(spec),
            (
                Recording(signals.GOODPUT_AT_LEAST, f"clamp_min(1 - sum {by} ({ratio}), 0)"),
                Recording(signals.GOODPUT_AT_MOST, f"1 - max {by} ({ratio})"),
            ),
        ),
    )


def supported_groups(groups: Iterable[RuleGroup], spec: SloFile) -> Iterator[RuleGroup]:
    """The rules that vLLM can feed; the notes of burn alerts explain how their SLO is counted."""
    notes = {
        each.slo.name: f"The SLO {each.slo.name} is judged by vLLM itself: {each.note}. "
        for each in supported_slos(spec)
    }
    for group in groups:
        rules = tuple(_with_note(rule, notes) for rule in group.rules if _is_supported(rule))
        if rules:
            yield replace(group, rules=rules)


def _is_supported(rule: Recording | Alert) -> bool:
    if isinstance(rule, Alert):
        return rule.name not in _SIDECAR_ALERTS
    return rule.series not in _SIDECAR_SERIES


def _with_note(rule: Recording | Alert, notes: dict[str, str]) -> Recording | Alert:
    if isinstance(rule, Recording) or not (Label.SLO in rule.labels or rule.name == AlertName.LOW_TRAFFIC):
        return rule
    note = f"{notes.get(rule.labels.get(Label.SLO, ''), '')}{CAVEAT}"
    return replace(rule, annotations={**rule.annotations, "note": note})


def _engine_state(spec: SloFile) -> Iterator[Recording]:
    """The engine state and the outcomes of requests."""
    yield Recording(signals.ENGINE_UP, _relabelled(f"up{{{_job(spec)}}}"))
    yield Recording(signals.ENGINE_COUNTS_LIVE, f"{signals.ENGINE_UP.name} == 1")
    yield Recording(signals.ENGINE_START_TIME, _relabelled(_scraped_series(spec, START_TIME)))
    for row in VLLM.rows:
        family_found = family(row, version(spec))
        if family_found and row.signal.kind is not Kind.HISTOGRAM:
            only = f'{family_found.only[0]}="{family_found.only[1]}"' if family_found.only else ""
            yield Recording(row.signal, _relabelled(_scraped_series(spec, family_found.name, only)))
    for outcome, reasons in _OUTCOMES.items():
        ended = _scraped_series(spec, FINISHED, f'finished_reason=~"{reasons}"')
        yield Recording(signals.REQUESTS, _relabelled(ended), {**_ALL_REQUESTS_LABELS, Label.OUTCOME: outcome})


def _slo_counts(spec: SloFile, each: SupportedSlo) -> Iterator[Recording]:
    """Good events are those in the bucket. Without the bucket, events are absent too; otherwise all would be good."""
    labels: dict[str, str] = {**_ALL_REQUESTS_LABELS, Label.SLO: each.slo.name}
    events = _scraped_series(spec, f"{each.histogram.name}_count")
    good = _scraped_series(spec, f"{each.histogram.name}_bucket", f'le=~"{_bound_pattern(each.bound)}"')
    yield Recording(signals.SLO_EVENTS, _relabelled(f"{events}\n  and {good}"), labels)
    yield Recording(signals.SLO_BAD, _relabelled(f"{events}\n  - {good}"), labels)


def _bound_pattern(bound: float) -> str:
    """Matches `le` as Prometheus 2 stores it, as scraped (`1` or `1.0`), and as Prometheus 3 stores it (`1.0`)."""
    text = escape(re.escape(number(bound)))
    return text if "." in text else rf"{text}|{text}\\.0"


def _scraped_series(spec: SloFile, name: str, more: str = "") -> str:
    """One sample per process, without the label `le`; matches `vllm:` and `vllm_`.

    Prometheus 2 receives `vllm_`: it requests OpenMetrics, in which Python's client library replaces the colon.
    """
    name_pattern = name.replace(":", "[:_]")
    matchers = ",".join(filter(None, (f'__name__=~"{name_pattern}"', _job(spec), more)))
    return f"max without (pid, le) ({{{matchers}}})"


def _job(spec: SloFile) -> str:
    return f'job="{escape(spec.engine.job)}"'


def _relabelled(expression: str) -> str:
    """Adds the sidecar's labels: vLLM's `engine` is a rank, and the scraped instance is the engine."""
    names = (Label.RANK, "engine"), (Label.ENGINE, "instance"), (Label.MODEL, "model_name")
    copies = "), ".join(f'"{own_name}", "$1", "{vllm_name}", "(.*)"' for own_name, vllm_name in names)
    return f"{'label_replace(' * len(names)}\n  {expression},\n  {copies})"


def _unmeasured(spec: SloFile, each: SupportedSlo, links: Links) -> Alert:
    return annotated_alert(
        AlertName.UNMEASURED,
        Severity.TICKET,
        f"{signals.ENGINE_UP.name} == 1\nunless on (instance) {select(signals.SLO_EVENTS, {Label.SLO: each.slo.name})}",
        links,
        f"{{{{ $labels.engine }}}} does not count what {each.slo.name} is judged by",
        f"{{{{ $labels.engine }}}} is up, but its page has no bucket of {each.histogram.name} at "
        f"{number(each.bound)}s, so that {each.slo.name} is judged without it or not at all. Look first at whether "
        f"it is vLLM {version(spec)}, as the rules were made for, then at `--custom-histogram-buckets`.",
        labels={Label.SLO: each.slo.name},
        pending_for=windows(spec).step,
    )
