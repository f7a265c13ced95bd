"""Tickets for causes inside a running engine; their effect on users pages as an error budget burn."""

from alerts.burn.cold_start import failed_requests
from alerts.links import DashboardUid, PanelTitle
from alerts.plan import Plan
from alerts.promql.build import in_window, increase, max_by, on, over, rises, sum_by, with_model
from alerts.promql.expression import Expression
from alerts.recording.baselines import baseline
from alerts.rules.annotations import alert
from alerts.rules.groups import Alert
from alerts.rules.wording import percent
from exporters.text.units import spell_duration
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.signals import Label, Signal

_ENGINE = "{{ $labels.engine }} at {{ $labels.instance }}"
_ENGINE_LABELS = (Label.INSTANCE, Label.ENGINE, Label.MODEL)
_INSTANCE = on(Label.INSTANCE)

KV_CACHE_FULL = 0.9
_MIN_HIT_RATIO = 0.1
_RESTARTS = 3


def engine_alerts(plan: Plan) -> tuple[Alert, ...]:
    return _queue(plan), _kv_cache(plan), _prefix_cache(plan), _restarts(plan)


def _queue(plan: Plan) -> Alert:
    """A queue longer than the batch: a new request waits longer than a request takes (Little's law).

    Not for an engine that does not expose running requests (Dynamo): a queue alone does not measure the wait.
    """

    def mean(signal: Signal) -> Expression:
        return sum_by(over("avg_over_time", signal, plan.step), _ENGINE_LABELS)

    waiting, running = mean(signals.ENGINE_WAITING), mean(signals.ENGINE_RUNNING)
    return alert(
        plan,
        AlertName.QUEUE,
        (DashboardUid.ENGINE, PanelTitle.WAITING),
        (waiting >= 1).and_(waiting > (running > 0), on(*_ENGINE_LABELS)),
        "more requests wait for {{ $labels.engine }} of {{ $labels.model }} than run",
        f'{{{{ printf "%.0f" $value }}}} requests wait on average at {_ENGINE}, which is more than run, for '
        f"{spell_duration(3 * plan.step)}. New requests wait longer in the queue than a response takes. Look first at "
        "which class sends more than usual, then at whether the limit of the running batch is smaller.",
        pending_for=2 * plan.step,
    )


def _kv_cache(plan: Plan) -> Alert:
    """A full cache alone is good use of memory; preemptions waste and repeat work."""
    window, least, by = plan.lookback, plan.spec.alerting.min_bad, (*_ENGINE_LABELS, Label.RANK)
    usage = max_by(over("avg_over_time", signals.ENGINE_KV_USAGE, window), by)
    preemptions = sum_by(increase(signals.ENGINE_PREEMPTIONS, window), by)
    return alert(
        plan,
        AlertName.KV_CACHE,
        (DashboardUid.ENGINE, PanelTitle.KV_CACHE),
        (usage > KV_CACHE_FULL).and_(preemptions >= least, on(*by)),
        "the KV cache of {{ $labels.engine }} of {{ $labels.model }} is full, and running requests are preempted",
        f"Rank {{{{ $labels.rank }}}} of {_ENGINE} had {{{{ $value | humanizePercentage }}}} of "
        f"its KV cache in use over the last {spell_duration(window)}, and has preempted {least} or more running "
        "requests. Their streams pause, and their prefill is repeated. Look first at whether contexts have become "
        "longer, then at `max_num_seqs`.",
    )


def _prefix_cache(plan: Plan) -> Alert:
    """Divided by all prompt tokens, not by queried ones: a disabled cache is not queried."""
    least = plan.spec.alerting.min_events.ticket
    hits, prompt = (
        sum_by(increase(each, plan.hour), _ENGINE_LABELS)
        for each in (signals.ENGINE_CACHE_HITS, signals.ENGINE_PROMPT_TOKENS)
    )
    requests = sum_by(in_window(signals.ALL_REQUESTS_IN, plan.lookback), [Label.INSTANCE])
    usual = baseline(signals.CACHE_WEEKLY_RATIO, plan) >= _MIN_HIT_RATIO
    collapsed = (hits / prompt).binary("<", 0.5 * usual, on(Label.MODEL, left=()))
    return alert(
        plan,
        AlertName.PREFIX_CACHE,
        (DashboardUid.ENGINE, PanelTitle.PREFIX_CACHE),
        collapsed.and_(requests >= least, _INSTANCE),
        "the prefix cache of {{ $labels.engine }} finds {{ $value | humanizePercentage }} of the prompt tokens, "
        "not half of what it did",
        f"In the last {spell_duration(plan.hour)}, {_ENGINE} took {{{{ $value | humanizePercentage }}}} of the prompt "
        "tokens of {{ $labels.model }} from its prefix cache. All engines of the model together took more than "
        f"twice that over the last {spell_duration(plan.week)}. TTFT rises for the same prompts. The alert needs "
        f"{least} requests in {spell_duration(plan.lookback)} and a usual share of {percent(_MIN_HIT_RATIO)} or more. "
        "Look first at the config changes, then at whether requests with equal prefixes still go to the same engine.",
        pending_for=plan.step,
    )


def _restarts(plan: Plan) -> Alert:
    """Detected by the start time or by counter resets; a few starts without failed requests are a planned change."""
    long, engine = plan.quarter_day, (Label.INSTANCE, Label.ENGINE)
    starts = max_by(rises(signals.ENGINE_START_TIME, long, plan.direct_interval), engine)
    all_starts = starts.or_(max_by(over("resets", signals.ENGINE_GENERATION_TOKENS, long), engine))
    many, note = 2 * _RESTARTS, ""
    restarting: Expression = all_starts >= _RESTARTS
    if plan.has_sidecar:
        failed = sum_by(over("max_over_time", failed_requests(plan), long), [Label.INSTANCE])
        restarting = restarting.and_(failed >= plan.spec.alerting.min_bad, _INSTANCE).or_(all_starts >= many)
        note = f" if requests fail, else from {many}"
    return alert(
        plan,
        AlertName.ENGINE_RESTARTS,
        (DashboardUid.ENGINE, PanelTitle.RESTARTS),
        with_model(restarting),
        "the engine {{ $labels.engine }}{{ with $labels.model }} of {{ . }}{{ end }} keeps restarting",
        f'{_ENGINE} has started {{{{ printf "%.0f" $value }}}} times in the last {spell_duration(long)}. Each start '
        "loses the open requests and the prefix cache. A ticket from "
        f"{_RESTARTS}{note} on; while it is away for long, *LLMEngineDown* pages. Look first at the last lines of its "
        "log before each start.",
    )
