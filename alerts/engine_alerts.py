"""Alerts on causes inside a running engine; they are tickets, as their effect on users pages as a burn."""

from alerts.alert_annotations import annotations, percent
from alerts.alert_names import AlertName
from alerts.baselines import baseline
from alerts.links import Links
from alerts.promql import increase, select, sum_by
from alerts.recording_windows import windows
from alerts.rule_groups import Alert
from alerts.tiers import Severity, tiers
from alerts.traffic_alerts import lookback
from exporters.quantities import spell_duration
from exporters.signals import (
    CACHE_WEEKLY_RATIO,
    ENGINE_CACHE_HITS,
    ENGINE_GENERATION_TOKENS,
    ENGINE_KV_USAGE,
    ENGINE_PREEMPTIONS,
    ENGINE_PROMPT_TOKENS,
    ENGINE_RUNNING,
    ENGINE_START_TIME,
    ENGINE_WAITING,
    REQUESTS_IN,
    Label,
    Signal,
)
from exporters.slos import SloFile

_ENGINE_LABELS = [Label.INSTANCE, Label.ENGINE]
_TICKET_LABELS = {Label.SEVERITY.value: Severity.TICKET.value}

KV_CACHE_FULL = 0.9
_MIN_HIT_RATIO = 0.1
_RESTARTS = 3


def engine_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    return (
        _queue(spec, links),
        _kv_cache(spec, links),
        _prefix_cache(spec, links),
        _restarts(spec, links),
    )


def _queue(spec: SloFile, links: Links) -> Alert:
    """A queue longer than the batch: a new request waits longer than a request takes (Little's law).

    Not for an engine that does not expose running requests (Dynamo): a queue alone does not measure the wait.
    """
    step = windows(spec).step

    def mean(signal: Signal) -> str:
        return sum_by(f"avg_over_time({signal.name}[{spell_duration(step)}])", _ENGINE_LABELS)

    return Alert(
        AlertName.QUEUE,
        f"{mean(ENGINE_WAITING)} >= 1\nand on (instance, engine) {mean(ENGINE_WAITING)} > ({mean(ENGINE_RUNNING)} > 0)",
        _TICKET_LABELS,
        annotations(
            AlertName.QUEUE,
            links,
            "more requests wait for {{ $labels.engine }} than it works on",
            f'{{{{ printf "%.0f" $value }}}} requests wait on average, which is more than run, and has been for '
            f"{spell_duration(3 * step)}. Who comes now waits longer in the queue than the answer itself takes. Look "
            "first at which class sends more than usual, then at the running batch: has its bound become smaller?",
        ),
        pending_for=2 * step,
    )


def _kv_cache(spec: SloFile, links: Links) -> Alert:
    """A full cache alone is good use of memory; with preemptions, work is lost and repeated."""
    by = [*_ENGINE_LABELS, Label.RANK]
    usage = f"max by ({', '.join(by)}) (avg_over_time({ENGINE_KV_USAGE.name}[{lookback(spec)}]))"
    least = spec.alerting.min_bad
    return Alert(
        AlertName.KV_CACHE,
        f"{usage} > {KV_CACHE_FULL}\n"
        f"and on (instance, engine, rank) {sum_by(increase(ENGINE_PREEMPTIONS.name, lookback(spec)), by)} >= {least}",
        _TICKET_LABELS,
        annotations(
            AlertName.KV_CACHE,
            links,
            "the KV cache of {{ $labels.engine }} is full, and running requests are put back",
            f"Rank {{{{ $labels.rank }}}} of {{{{ $labels.engine }}}} had {{{{ $value | humanizePercentage }}}} of "
            f"its KV cache in use over the last {lookback(spec)}, and has put back {least} or more running requests. "
            "Their streams pause, and their prefill is done again. Look first at whether contexts have become longer, "
            "then at `max_num_seqs`.",
        ),
    )


def _prefix_cache(spec: SloFile, links: Links) -> Alert:
    """Divided by all prompt tokens, not by queried ones: a disabled cache is not queried."""
    hour = spell_duration(tiers(spec.period)[0].long)
    by, least = [*_ENGINE_LABELS, Label.MODEL], spec.alerting.min_events.ticket
    hits, prompt = (sum_by(increase(each.name, hour), by) for each in (ENGINE_CACHE_HITS, ENGINE_PROMPT_TOKENS))
    requests = sum_by(select(REQUESTS_IN, {Label.WINDOW: lookback(spec)}), [Label.INSTANCE])
    week = baseline(CACHE_WEEKLY_RATIO, spec)
    return Alert(
        AlertName.PREFIX_CACHE,
        f"{hits} / {prompt}\n"
        f"< on (model) group_left () 0.5 * ({week} >= {_MIN_HIT_RATIO})\n"
        f"and on (instance) {requests} >= {least}",
        _TICKET_LABELS,
        annotations(
            AlertName.PREFIX_CACHE,
            links,
            "the prefix cache of {{ $labels.engine }} finds {{ $value | humanizePercentage }} of the prompt tokens, "
            "not half of what it did",
            f"In the last {hour}, {{{{ $labels.engine }}}} took {{{{ $value | humanizePercentage }}}} of the prompt "
            "tokens of {{ $labels.model }} from its prefix cache. All engines of the model together took more than "
            f"twice that over the last {spell_duration(windows(spec).week)}. First words come later for the same "
            f"prompts. Asked from {least} requests in {lookback(spec)} on, where at least {percent(_MIN_HIT_RATIO)} "
            "was found. Look first at the config changes, then at whether requests with equal prefixes still go to the "
            "same engine.",
        ),
        pending_for=windows(spec).step,
    )


def _restarts(spec: SloFile, links: Links) -> Alert:
    """Detected by the start time, or by counter resets; a single restart is a config change or an update."""
    long = spell_duration(next(tier for tier in tiers(spec.period) if tier.name == "slow-page").long)
    by = f"max by ({', '.join(_ENGINE_LABELS)})"
    return Alert(
        AlertName.ENGINE_RESTARTS,
        f"({by} (changes({ENGINE_START_TIME.name}[{long}]))\n"
        f"or {by} (resets({ENGINE_GENERATION_TOKENS.name}[{long}]))) >= {_RESTARTS}",
        _TICKET_LABELS,
        annotations(
            AlertName.ENGINE_RESTARTS,
            links,
            "the engine {{ $labels.engine }} keeps restarting",
            f'{{{{ $labels.engine }}}} has started {{{{ printf "%.0f" $value }}}} times in the last {long}. Each start '
            "loses the open requests and the prefix cache. A ticket from "
            f"{_RESTARTS} on; while it is away for long, *LLMEngineDown* pages. Look first at the last lines of its "
            "log before each start.",
        ),
    )
