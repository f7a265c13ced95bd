"""Tickets for causes inside a running engine; their effect on users pages as an error budget burn."""

from alerts.alert_annotations import annotated_alert, percent
from alerts.alert_names import AlertName
from alerts.baselines import baseline
from alerts.cold_start import failed_requests
from alerts.links import Links
from alerts.promql_text import in_window, increase, max_by, sum_by, with_model
from alerts.recording_windows import windows
from alerts.rule_groups import Alert
from alerts.tiers import Severity, tiers
from alerts.traffic_alerts import lookback
from exporters import signals
from exporters.quantities import spell_duration
from exporters.signals import Label, Signal
from exporters.slos import SloFile, Source

_ENGINE = "{{ $labels.engine }} at {{ $labels.instance }}"
_ENGINE_LABELS = [Label.INSTANCE, Label.ENGINE, Label.MODEL]

KV_CACHE_FULL = 0.9
_MIN_HIT_RATIO = 0.1
_RESTARTS = 3


def engine_alerts(spec: SloFile, links: Links) -> tuple[Alert, ...]:
    return _queue(spec, links), _kv_cache(spec, links), _prefix_cache(spec, links), _restarts(spec, links)


def _queue(spec: SloFile, links: Links) -> Alert:
    """A queue longer than the batch: a new request waits longer than a request takes (Little's law).

    Not for an engine that does not expose running requests (Dynamo): a queue alone does not measure the wait.
    """
    step = windows(spec).step

    def mean(signal: Signal) -> str:
        return sum_by(f"avg_over_time({signal.name}[{spell_duration(step)}])", _ENGINE_LABELS)

    waiting, running = mean(signals.ENGINE_WAITING), mean(signals.ENGINE_RUNNING)
    return annotated_alert(
        AlertName.QUEUE,
        Severity.TICKET,
        f"{waiting} >= 1\nand on (instance, engine, model) {waiting} > ({running} > 0)",
        links,
        "more requests wait for {{ $labels.engine }} of {{ $labels.model }} than run",
        f'{{{{ printf "%.0f" $value }}}} requests wait on average at {_ENGINE}, which is more than run, for '
        f"{spell_duration(3 * step)}. New requests wait longer in the queue than a response takes. Look first at which "
        "class sends more than usual, then at whether the limit of the running batch is smaller.",
        pending_for=2 * step,
    )


def _kv_cache(spec: SloFile, links: Links) -> Alert:
    """A full cache alone is good use of memory; preemptions waste and repeat work."""
    by = [*_ENGINE_LABELS, Label.RANK]
    usage = max_by(f"avg_over_time({signals.ENGINE_KV_USAGE.name}[{lookback(spec)}])", by)
    preemptions = sum_by(increase(signals.ENGINE_PREEMPTIONS.name, lookback(spec)), by)
    least = spec.alerting.min_bad
    return annotated_alert(
        AlertName.KV_CACHE,
        Severity.TICKET,
        f"{usage} > {KV_CACHE_FULL}\nand on (instance, engine, model, rank) {preemptions} >= {least}",
        links,
        "the KV cache of {{ $labels.engine }} of {{ $labels.model }} is full, and running requests are preempted",
        f"Rank {{{{ $labels.rank }}}} of {_ENGINE} had {{{{ $value | humanizePercentage }}}} of "
        f"its KV cache in use over the last {lookback(spec)}, and has preempted {least} or more running requests. "
        "Their streams pause, and their prefill is repeated. Look first at whether contexts have become longer, "
        "then at `max_num_seqs`.",
    )


def _prefix_cache(spec: SloFile, links: Links) -> Alert:
    """Divided by all prompt tokens, not by queried ones: a disabled cache is not queried."""
    hour = spell_duration(tiers(spec.period)[0].long)
    by, least = _ENGINE_LABELS, spec.alerting.min_events.ticket
    hits, prompt = (
        sum_by(increase(each.name, hour), by) for each in (signals.ENGINE_CACHE_HITS, signals.ENGINE_PROMPT_TOKENS)
    )
    requests = sum_by(in_window(signals.ALL_REQUESTS_IN, lookback(spec)), [Label.INSTANCE])
    week = baseline(signals.CACHE_WEEKLY_RATIO, spec)
    return annotated_alert(
        AlertName.PREFIX_CACHE,
        Severity.TICKET,
        f"{hits} / {prompt}\n"
        f"< on (model) group_left () 0.5 * ({week} >= {_MIN_HIT_RATIO})\n"
        f"and on (instance) {requests} >= {least}",
        links,
        "the prefix cache of {{ $labels.engine }} finds {{ $value | humanizePercentage }} of the prompt tokens, "
        "not half of what it did",
        f"In the last {hour}, {_ENGINE} took {{{{ $value | humanizePercentage }}}} of the prompt "
        "tokens of {{ $labels.model }} from its prefix cache. All engines of the model together took more than "
        f"twice that over the last {spell_duration(windows(spec).week)}. TTFT rises for the same prompts. "
        f"The alert needs {least} requests in {lookback(spec)} and a usual share of {percent(_MIN_HIT_RATIO)} or more. "
        "Look first at the config changes, then at whether requests with equal prefixes still go to the same engine.",
        pending_for=windows(spec).step,
    )


def _restarts(spec: SloFile, links: Links) -> Alert:
    """Detected by the start time or by counter resets; a few starts without failed requests are a planned change."""
    _, slow_page, *_ = tiers(spec.period)
    long = spell_duration(slow_page.long)
    engine = [Label.INSTANCE, Label.ENGINE]
    starts = max_by(f"changes({signals.ENGINE_START_TIME.name}[{long}])", engine)
    resets = max_by(f"resets({signals.ENGINE_GENERATION_TOKENS.name}[{long}])", engine)
    all_starts, many, note = f"({starts}\nor {resets})", 2 * _RESTARTS, ""
    restarting = f"{all_starts} >= {_RESTARTS}"
    if spec.source is Source.SIDECAR:
        failed = sum_by(f"max_over_time({failed_requests(spec)}[{long}])", [Label.INSTANCE])
        restarting += f"\nand on (instance) {failed} >= {spec.alerting.min_bad}\nor {all_starts} >= {many}"
        note = f" if requests fail, else from {many}"
    return annotated_alert(
        AlertName.ENGINE_RESTARTS,
        Severity.TICKET,
        with_model(restarting),
        links,
        "the engine {{ $labels.engine }}{{ with $labels.model }} of {{ . }}{{ end }} keeps restarting",
        f'{_ENGINE} has started {{{{ printf "%.0f" $value }}}} times in the last {long}. Each start '
        "loses the open requests and the prefix cache. A ticket from "
        f"{_RESTARTS}{note} on; while it is away for long, *LLMEngineDown* pages. Look first at the last lines of its "
        "log before each start.",
    )
