"""`vllm-slo alerts explain`: causes of bad events, detection times and the effect of an outage, as text and as JSON."""

import json
import math
from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from alerts.check.detection_time import Detection, detections, fastest
from alerts.check.outage import OutageEffect, outage_effects
from alerts.engine_only import CAVEAT
from alerts.labels import severity_value
from alerts.plan import Plan
from alerts.recording.pools import is_pooled
from alerts.rules.wording import describe, percent
from exporters.text.units import number, spell_duration
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import Latency, Measure, Rejected, Slo, SloFile, Source
from exporters.vocabulary.verdicts import applicable_slos


def burned_by(spec: SloFile, slo: Slo) -> tuple[str, ...]:
    """Every kind of request that is a bad event of the SLO."""
    limit = spell_duration(slo.sli.threshold) if isinstance(slo.sli, Latency) else ""
    stream = "a stream" if spec.source is Source.SIDECAR else "a request"
    latency_cause = {
        Measure.TTFT: f"{stream} whose first token takes longer than {limit}",
        Measure.TTFT_ANSWER: f"{stream} whose first answer token takes longer than {limit}",
        Measure.TPOT: f"{stream} that takes longer than {limit} per token after the first",
        Measure.ITL_P95: f"a stream with more than 5 % of its gaps between chunks over {limit}",
        Measure.E2E: f"a request that takes longer than {limit}",
        Measure.QUEUE: f"a request that waits longer than {limit} in the engine",
        Measure.PREFILL: f"a request whose prefill takes the engine longer than {limit}",
        Measure.DECODE: f"a request whose decode takes the engine longer than {limit}",
        Measure.AVAILABILITY: None,
        Measure.VALID_OUTPUT: "an answer that has to be JSON and is not valid",
    }[slo.measure]
    if spec.source is Source.ENGINE:
        return (latency_cause or "",)
    unary = {each.measure for each in applicable_slos([slo], stream=False, several=True).slos.values()}
    timeout = spec.first_token_timeout
    no_first_token = applicable_slos([slo], stream=True, several=True).awaiting_first_token
    causes = (
        latency_cause,
        f"a unary request that takes longer than {limit}" if unary == {Measure.E2E} != {slo.measure} else None,
        f"no first token within {spell_duration(timeout)}" if no_first_token and timeout < math.inf else None,
        "an engine error, timeout or broken stream"
        + (" before it" if slo.measure in {Measure.TTFT, Measure.TTFT_ANSWER} else ""),
        "a 429 or 503" if slo.rejected is Rejected.BAD else None,
    )
    return tuple(cause for cause in causes if cause)


def table(plan: Plan, rate: float, console: Console) -> None:
    """Print the tables; they fit into 80 columns."""
    console.print(Text(f"At a steady {number(rate)} events/s per class. Times count from the first bad event."))
    for slo in plan.spec.slos:
        of_tiers = detections(plan, slo, rate)
        console.print()
        console.print(Text.assemble((slo.name, "bold"), f": {describe(slo)} of {', '.join(slo.classes)}"))
        console.print(Text(f"bad events: {'; '.join(burned_by(plan.spec, slo))}"))
        console.print(_table(slo, of_tiers))
        if any(each.rescaled for each in of_tiers):
            console.print(Text("* rescaled: even an outage could not reach the published burn rate"))
        console.print(Text(f"smallest detected incident: {_smallest(of_tiers)}"))
    for note in _notes(plan):
        console.print()
        console.print(Text(note))


def as_json(plan: Plan, rate: float) -> str:
    """Shares from 0 to 1, times in seconds; null means never."""
    return json.dumps(
        {
            "period_seconds": plan.spec.period,
            "events_per_second": rate,
            "slos": [_slo(plan, slo, detections(plan, slo, rate)) for slo in plan.spec.slos],
            "notes": list(_notes(plan)),
        },
        indent=2,
    )


def outage_table(plan: Plan, rate: float, outage: float, window: float, console: Console) -> None:
    """Print the effect of an outage; it fits into 80 columns."""
    effects = outage_effects(plan, rate, outage, window)
    console.print(
        Text(
            f"A full outage of {spell_duration(outage)} at a steady {number(rate)} events/s per class. Times count "
            f"from its start. Peaks are those of a rolling window of {spell_duration(window)}."
        )
    )
    console.print()
    share = f"share of {spell_duration(plan.spec.period)}"
    columns = _columns(["slo"], ["peak bad", "peak burn rate", "page comes", "page clears", share])
    for each in effects:
        columns.add_row(
            each.slo.name,
            percent(each.error_ratio),
            number(round(each.burn_rate, 2)),
            "never" if each.page_at is None else spell_duration(math.ceil(each.page_at)),
            "-" if each.clears_at is None else spell_duration(math.ceil(each.clears_at)),
            percent(each.budget_share),
        )
    console.print(columns)
    for note in _outage_notes(plan, effects):
        console.print()
        console.print(Text(note))


def outage_as_json(plan: Plan, rate: float, outage: float, window: float) -> str:
    """Shares from 0 to 1, times in seconds; null means no page."""
    effects = outage_effects(plan, rate, outage, window)
    return json.dumps(
        {
            "period_seconds": plan.spec.period,
            "events_per_second": rate,
            "outage_seconds": outage,
            "window_seconds": window,
            "slos": [
                {
                    "slo": each.slo.name,
                    "peak_bad_ratio": round(each.error_ratio, 9),
                    "peak_burn_rate": round(each.burn_rate, 9),
                    "page_at_seconds": each.page_at,
                    "clears_at_seconds": each.clears_at,
                    "budget_share": round(each.budget_share, 9),
                    "delay_seconds": each.delay,
                }
                for each in effects
            ],
            "notes": list(_outage_notes(plan, effects)),
        },
        indent=2,
    )


def _outage_notes(plan: Plan, effects: Iterable[OutageEffect]) -> Iterator[str]:
    yield (
        f"Scraping and rule evaluation shift these times by up to {spell_duration(max(e.delay for e in effects))}. A "
        "request that waits becomes bad only at its threshold or timeout."
    )
    yield (
        "If the engine restarts, burn pages wait as long as all bad events are on a starting engine, and "
        f"{AlertName.ENGINE_DOWN} pages on its own."
    )
    yield from _pool_note(plan)


def _slo(plan: Plan, slo: Slo, of_tiers: tuple[Detection, ...]) -> dict[str, object]:
    return {
        "slo": slo.name,
        "promise": describe(slo),
        "classes": slo.classes,
        "burned_by": burned_by(plan.spec, slo),
        "tiers": [_tier(plan, slo, each) for each in of_tiers],
        "smallest_incident": _incident(fastest(of_tiers)),
    }


def _tier(plan: Plan, slo: Slo, detection: Detection) -> dict[str, object]:
    return {
        "tier": detection.tier.name,
        "severity": severity_value(plan.spec.alerting.severities, detection.tier.severity),
        "long_seconds": detection.tier.long,
        "short_seconds": detection.tier.short,
        "burn_rate": detection.tier.factor,
        "bad_ratio": round(detection.tier.bad_ratio(slo), 9),
        "rescaled": detection.rescaled,
        "enough_events": detection.enough_events,
        "seconds_at_all_bad": detection.at_all_bad,
        "seconds_at_twice_budget": detection.at_twice_budget,
        "least_bad_events": detection.bad_events,
        "delay_seconds": detection.delay,
    }


def _incident(detection: Detection) -> dict[str, object] | None:
    if detection.at_all_bad is None:
        return None
    return {"tier": detection.tier.name, "bad_events": detection.bad_events, "seconds": detection.at_all_bad}


def _table(slo: Slo, of_tiers: tuple[Detection, ...]) -> Table:
    table = _columns(["tier", "long / short"], ["burn rate", "bad above", "at 100 % bad", "at 2 x budget", "min bad"])
    for each in of_tiers:
        tier = each.tier
        table.add_row(
            tier.name,
            f"{spell_duration(tier.long)} / {spell_duration(tier.short)}",
            number(round(tier.factor, 2)) + ("*" if each.rescaled else ""),
            percent(tier.bad_ratio(slo)),
            _time(each, each.at_all_bad),
            _time(each, each.at_twice_budget),
            str(each.bad_events) if each.at_all_bad is not None else "-",
        )
    return table


def _columns(left: Iterable[str], right: Iterable[str]) -> Table:
    """A table with columns of text and columns of numbers."""
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold", pad_edge=False)
    for title in left:
        table.add_column(title)
    for title in right:
        table.add_column(title, justify="right")
    return table


def _time(detection: Detection, seconds: float | None) -> str:
    if not detection.enough_events:
        return "too few"
    return "never" if seconds is None else spell_duration(math.ceil(seconds))


def _smallest(of_tiers: tuple[Detection, ...]) -> str:
    least = fastest(of_tiers)
    if least.at_all_bad is None:
        return f"none; see {AlertName.LOW_TRAFFIC} below"
    return (
        f"{least.bad_events} bad events, an outage of {spell_duration(math.ceil(least.at_all_bad))} ({least.tier.name})"
    )


def _pool_note(plan: Plan) -> Iterator[str]:
    pooled = ", ".join(slo.name for slo in plan.spec.slos if is_pooled(slo))
    if pooled:
        yield (
            f"Classes with fewer than {plan.spec.alerting.min_events.page} events in "
            f"{spell_duration(plan.quarter_day)} "
            f"page together: for {pooled}, the tiers of pages also judge their sum, as of one class."
        )


def _notes(plan: Plan) -> Iterator[str]:
    shortest, *_, longest = detections(plan, plan.spec.slos[0], 1.0)
    guards, few = plan.spec.alerting, plan.spec.alerting.min_events.ticket
    yield (
        f"Scraping and rule evaluation add up to {spell_duration(shortest.delay)} on the shortest tier and "
        f"{spell_duration(longest.delay)} on the longest."
    )
    yield (
        f"A tier needs {guards.min_events.page} events (page) or {few} events (ticket) in its long window, and "
        f"{guards.min_bad} bad events. With fewer than {few} events in {spell_duration(longest.tier.long)}, "
        f"{AlertName.LOW_TRAFFIC} raises a ticket for {guards.min_bad} bad events that miss the objective."
    )
    if plan.has_sidecar:
        yield from _pool_note(plan)
        yield "Aborted requests are bad events only of thresholds already missed. A 4xx other than 429 is not an event."
    else:
        yield CAVEAT
    yield (
        f"{AlertName.ENGINE_DOWN} pages when a start takes longer than {spell_duration(plan.cold_start)}, or than "
        f"{spell_duration(plan.warm_up)} if no other serves its model. Burn pages wait while all bad events are on "
        "a starting engine; the error budget is still charged."
    )
