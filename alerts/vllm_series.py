"""Records the families of vLLM under the sidecar's names, so that the other rules work without a sidecar."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from alerts.alert_annotations import annotations
from alerts.alert_names import AlertName
from alerts.engine_only import ALL_REQUESTS, CAVEAT, SupportedSlo, supported_slos, version
from alerts.links import Links
from alerts.promql import escape, select
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

_ALL_REQUESTS_LABELS = {Label.CLASS.value: ALL_REQUESTS, Label.TENANT.value: OTHER}

# What only the sidecar knows, so that no rule of it could ever have a value.
_UNKNOWN_ALERTS = frozenset(
    {
        AlertName.CLIENT_ERRORS,
        AlertName.REJECTIONS,
        AlertName.BUSY_BUT_USELESS,
        AlertName.SIDECAR_DOWN,
        AlertName.DROPPING,
        AlertName.LOST,
        AlertName.CERTIFICATE,
    }
)
_UNKNOWN_SERIES = frozenset(
    {
        *(signals.GOODPUT_EVENTS_IN, signals.GOODPUT_REQUESTS_IN, signals.GOODPUT_RATIO, signals.GOODPUT_AT),
        *(signals.TOKENS_IN, signals.TOKENS_MEDIAN, signals.COST_GOOD_IN, signals.COST_PER_GOOD),
    }
)


def vllm_groups(spec: SloFile, links: Links) -> tuple[RuleGroup, ...]:
    """The sidecar's series at its scrape interval, alerts on missing buckets, and the bounds of goodput."""
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
    """The rules that can have a value; burn alerts describe how their SLO is counted."""
    notes = {
        each.slo.name: f"The SLO {each.slo.name} is judged by vLLM itself: {each.note}. "
        for each in supported_slos(spec)
    }
    for group in groups:
        rules = tuple(_with_note(rule, notes) for rule in group.rules if _is_supported(rule))
        if rules:
            yield replace(group, rules=rules)


def _is_supported(rule: Recording | Alert) -> bool:
    match rule:
        case Recording(series):
            return series not in _UNKNOWN_SERIES
        case Alert(name):
            return name not in _UNKNOWN_ALERTS


def _with_note(rule: Recording | Alert, notes: dict[str, str]) -> Recording | Alert:
    if isinstance(rule, Recording) or not (Label.SLO in rule.labels or rule.name == AlertName.LOW_TRAFFIC):
        return rule
    description = f"{rule.annotations['description']} {notes.get(rule.labels.get(Label.SLO, ''), '')}{CAVEAT}"
    return replace(rule, annotations={**rule.annotations, "description": description})


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
        yield Recording(
            signals.REQUESTS, _relabelled(ended), {**_ALL_REQUESTS_LABELS, Label.OUTCOME.value: outcome.value}
        )


def _slo_counts(spec: SloFile, each: SupportedSlo) -> Iterator[Recording]:
    """Good events are those in the bucket; without the bucket there are no events, or all would be good."""
    labels = {**_ALL_REQUESTS_LABELS, Label.SLO.value: each.slo.name}
    events = _scraped_series(spec, f"{each.histogram.name}_count")
    good = _scraped_series(spec, f"{each.histogram.name}_bucket", f'le=~"{_bound_pattern(each.bound)}"')
    yield Recording(signals.SLO_EVENTS, _relabelled(f"{events}\n  and {good}"), labels)
    yield Recording(signals.SLO_BAD, _relabelled(f"{events}\n  - {good}"), labels)


def _bound_pattern(bound: float) -> str:
    """Matches `le` as Prometheus 2 stores it, as scraped (`1` or `1.0`), and as Prometheus 3 stores it (`1.0`)."""
    text = escape(re.escape(number(bound)))
    return text if "." in text else rf"{text}|{text}\\.0"


def _scraped_series(spec: SloFile, name: str, more: str = "") -> str:
    """One sample per process, without the label `le`.

    Either spelling: Prometheus asks for OpenMetrics, in which Python's client library writes `vllm_` to a Prometheus 2.
    """
    name_pattern = name.replace(":", "[:_]")
    matchers = ",".join(filter(None, (f'__name__=~"{name_pattern}"', _job(spec), more)))
    return f"max without (pid, le) ({{{matchers}}})"


def _job(spec: SloFile) -> str:
    return f'job="{escape(spec.engine.job)}"'


def _relabelled(expression: str) -> str:
    """With the sidecar's labels: vLLM's `engine` is a rank, and the engine is the scraped instance."""
    names = (Label.RANK, "engine"), (Label.ENGINE, "instance"), (Label.MODEL, "model_name")
    copies = "), ".join(f'"{own_name}", "$1", "{vllm_name}", "(.*)"' for own_name, vllm_name in names)
    return f"{'label_replace(' * len(names)}\n  {expression},\n  {copies})"


def _unmeasured(spec: SloFile, each: SupportedSlo, links: Links) -> Alert:
    return Alert(
        AlertName.UNMEASURED,
        f"{signals.ENGINE_UP.name} == 1\nunless on (instance) {select(signals.SLO_EVENTS, {Label.SLO: each.slo.name})}",
        {Label.SEVERITY.value: Severity.TICKET.value, Label.SLO.value: each.slo.name},
        annotations(
            AlertName.UNMEASURED,
            links,
            f"{{{{ $labels.engine }}}} does not count what {each.slo.name} is judged by",
            f"{{{{ $labels.engine }}}} is up, but its page has no bucket of {each.histogram.name} at "
            f"{number(each.bound)}s, so that {each.slo.name} is judged without it or not at all. Look first at whether "
            f"it is vLLM {version(spec)}, as the rules were made for, then at `--custom-histogram-buckets`.",
        ),
        pending_for=windows(spec).step,
    )
