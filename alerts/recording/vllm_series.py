"""Records the series of vLLM under the sidecar's names, so that the other rules work without a sidecar."""

import re
from collections.abc import Iterator

from alerts.engine_only import ALL_REQUESTS, SupportedSlo, version
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import aggregate, call, equal, on, regex, select
from alerts.promql.expression import Expression, Matcher
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert, Recording, RuleGroup
from alerts.scrape_jobs import targets_up
from exporters.engines.signal_table import START_TIME, VLLM
from exporters.engines.vllm_buckets import FINISHED, family
from exporters.text.units import number
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import OTHER, Kind, Label, Outcome

_OUTCOMES = {
    Outcome.OK: "stop|length|repetition",
    Outcome.UPSTREAM_ERROR: "error",
    Outcome.CLIENT_ABORT: "abort",
}
"""Values of `finished_reason` by outcome; vLLM's Python frontend counts no aborts, its Rust frontend does."""

_ALL_REQUESTS_LABELS: dict[str, str] = {Label.CLASS: ALL_REQUESTS, Label.TENANT: OTHER}


def vllm_groups(plan: Plan) -> tuple[RuleGroup, ...]:
    """The sidecar's series at the scrape interval, alerts on missing buckets, and the bounds of goodput."""
    by = (Label.MODEL, Label.CLASS, Label.WINDOW)
    all_bad, largest_bad = (aggregate(operator, signals.SLO_ERROR_RATIO, by=by) for operator in ("sum", "max"))
    return (
        RuleGroup(
            "vllm-slo-engine-series",
            plan.spec.scrape_interval,
            (
                *_engine_state(plan),
                *(rule for each in plan.supported for rule in _slo_counts(plan, each)),
                *(_unmeasured(plan, each) for each in plan.supported),
            ),
        ),
        RuleGroup(
            "vllm-slo-goodput-bounds",
            plan.direct_interval,
            (
                Recording(signals.GOODPUT_AT_LEAST, call("clamp_min", 1 - all_bad, 0)),
                Recording(signals.GOODPUT_AT_MOST, 1 - largest_bad),
            ),
        ),
    )


def _engine_state(plan: Plan) -> Iterator[Recording]:
    """The engine state and the outcomes of requests."""
    yield Recording(signals.ENGINE_UP, _relabelled(targets_up(plan)))
    yield Recording(signals.ENGINE_START_TIME, _relabelled(_scraped_series(plan, START_TIME)))
    for row in VLLM.rows:
        found = family(row, version(plan.spec))
        if found and row.signal.kind is not Kind.HISTOGRAM:
            only = [equal(*found.only)] if found.only else []
            yield Recording(row.signal, _relabelled(_scraped_series(plan, found.name, *only)))
    for outcome, reasons in _OUTCOMES.items():
        ended = _scraped_series(plan, FINISHED, regex("finished_reason", reasons))
        yield Recording(signals.REQUESTS, _relabelled(ended), {**_ALL_REQUESTS_LABELS, Label.OUTCOME: outcome})


def _slo_counts(plan: Plan, each: SupportedSlo) -> Iterator[Recording]:
    """Good events are those in the bucket. Without the bucket, events are absent too; otherwise all would be good."""
    labels: dict[str, str] = {**_ALL_REQUESTS_LABELS, Label.SLO: each.slo.name}
    events = _scraped_series(plan, f"{each.histogram.name}_count")
    good = _scraped_series(plan, f"{each.histogram.name}_bucket", regex("le", _bound_pattern(each.bound)))
    yield Recording(signals.SLO_EVENTS, _relabelled(events.and_(good)), labels)
    yield Recording(signals.SLO_BAD, _relabelled(events - good), labels)


def _bound_pattern(bound: float) -> str:
    """Matches `le` as Prometheus 2 stores it, as scraped (`1` or `1.0`), and as Prometheus 3 stores it (`1.0`)."""
    text = number(bound)
    return re.escape(text) if "." in text else rf"{text}|{text}\.0"


def _scraped_series(plan: Plan, name: str, *more: Matcher) -> Expression:
    """One sample per process, without the label `le`; matches `vllm:` and `vllm_`.

    Prometheus 2 receives `vllm_`: it requests OpenMetrics, in which Python's client library replaces the colon.
    """
    name_pattern = regex("__name__", name.replace(":", "[:_]"))
    series = select("", name_pattern, equal(Label.JOB, plan.spec.engine.job), *more)
    return aggregate("max", series, without=["pid", "le"])


def _relabelled(expression: Expression) -> Expression:
    """Adds the sidecar's labels: vLLM's `engine` is a rank, and the scraped instance is the engine."""
    for own_name, vllm_name in ((Label.RANK, "engine"), (Label.ENGINE, "instance"), (Label.MODEL, "model_name")):
        expression = call("label_replace", expression, own_name, "$1", vllm_name, "(.*)")
    return expression


def _unmeasured(plan: Plan, each: SupportedSlo) -> Alert:
    counted = select(signals.SLO_EVENTS, equal(Label.SLO, each.slo.name))
    return alert(
        plan,
        AlertName.UNMEASURED,
        (DashboardUid.ENGINE, PanelTitle.ENGINE),
        select(signals.ENGINE_UP).binary("==", 1).unless(counted, on(Label.INSTANCE)),
        f"{{{{ $labels.engine }}}} does not count what {each.slo.name} is judged by",
        f"{{{{ $labels.engine }}}} is up, but its page has no bucket of {each.histogram.name} at "
        f"{number(each.bound)}s, so that {each.slo.name} is judged without it or not at all. Look first at whether "
        f"it is vLLM {version(plan.spec)}, as the rules were made for, then at `--custom-histogram-buckets`.",
        slo=each.slo,
        pending_for=plan.step,
    )
