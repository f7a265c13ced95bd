"""Watches the condition of one engine: builds the evidence each second, and reports the state."""

import logging
import time
from collections.abc import Iterable, Iterator

from exporters.engines.condition.evidence import Contact, Evidence, Requests, Scrape
from exporters.engines.condition.rule import LIMITS, Condition, Limits, Reason, State, observe
from exporters.engines.normalisation import EngineMetrics
from exporters.engines.state import EngineState
from exporters.exposition.accumulators import Labels
from exporters.records.messages import Waits
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal

_COUNTERS = (signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_GENERATION_TOKENS, signals.ENGINE_KV_USAGE)
_HISTOGRAMS = (signals.ENGINE_DURATION, signals.ENGINE_TTFT, signals.ENGINE_INTER_TOKEN)

TEXTS = {
    Reason.NOT_SEEN: "it has not been scraped yet",
    Reason.NOT_LISTENING: "it does not answer yet",
    Reason.EXITED: "it has stopped listening, and may be starting again",
    Reason.EXITED_AGAIN: "it has stopped listening for the second time",
    Reason.START_TOO_LONG: "it has not answered for longer than a start may take",
    Reason.FIRST_REQUESTS: "its first requests take long, as while it compiles",
    Reason.WORKS: "it works",
    Reason.IDLE: "no request waits for it",
    Reason.METRICS_UNREADABLE: "its metrics cannot be read",
    Reason.QUEUE: "requests wait for capacity",
    Reason.NO_PROGRESS: "requests wait for it, and nothing moves",
    Reason.NO_RESPONSE: "it accepts connections and does not answer",
    Reason.FAILS: "it fails all requests",
    Reason.ASLEEP: "it sleeps",
}

logger = logging.getLogger("vllm_slo.engines")


class ConditionWatch:
    """The condition of one engine; times are monotonic seconds."""

    def __init__(self, name: str, limits: Limits = LIMITS) -> None:
        self.name = name
        self.limits = limits
        self.condition = Condition()
        self._refused_at: float | None = None

    def observe(self, engine: EngineState, requests: Requests, now: float) -> None:
        """Take what is known at `now`; `requests` is empty if the relays do not know which engine serves them."""
        contact = self._contact(engine, requests, now)
        if contact is None:
            return
        before = self.condition
        after = self.condition = observe(before, Evidence(now, contact, _scrape(engine), requests), self.limits)
        if after.state is not before.state and before.reason is not Reason.NOT_SEEN:
            level = logging.WARNING if after.state in {State.WEDGED, State.DOWN} else logging.INFO
            logger.log(level, "engine %s is %s: %s", self.name, after.state, self.explanation(now))

    def explanation(self, now: float) -> str:
        """The reason of the state, with the evidence."""
        condition = self.condition
        text = TEXTS[condition.reason]
        last = condition.last
        if condition.reason is Reason.NO_PROGRESS and last is not None:
            scrape, counts = last.scrape, [f"{last.requests.awaited} at the relay"]
            if scrape is not None:
                counts.append(f"{scrape.running:.0f} running and {scrape.waiting + scrape.deferred:.0f} waiting in it")
            text = f"{text} for {condition.stalled_for(now):.0f} s ({', '.join(counts)})"
        return text

    def line(self, now: float) -> str:
        """The state for the response to a probe."""
        state, since = self.condition.state, now - self.condition.since
        return f"{self.name} is {state} for {since:.0f} s: {self.explanation(now)}\n"

    def failing_for(self, now: float) -> float:
        """Seconds for which the engine has been wedged or down."""
        return now - self.condition.since if self.condition.state in {State.WEDGED, State.DOWN} else 0.0

    def samples(self, now: float) -> Iterator[tuple[Signal, Labels, float]]:
        condition, offset = self.condition, time.time() - now
        for state in State:
            yield signals.ENGINE_STATE, (state,), float(state is condition.state)
        yield signals.ENGINE_STATE_REASON, (condition.reason,), 1.0
        yield signals.ENGINE_STATE_CHANGED, (), condition.since + offset
        if condition.worked_at is not None:
            yield signals.ENGINE_WORKED, (), condition.worked_at + offset

    def _contact(self, engine: EngineState, requests: Requests, now: float) -> Contact | None:
        """What the last scrape met; None before the first one."""
        if engine.failure != "connection":
            self._refused_at = None
        if engine.up:
            return Contact.ANSWERS if engine.metrics.engine_type is not None else Contact.UNREADABLE
        match engine.failure:
            case None:
                return None
            case "timeout":
                return Contact.SILENT
            case "connection":
                self._refused_at = now if self._refused_at is None else self._refused_at
                # Only the port of the metrics refuses connections.
                works = requests.output_at is not None and requests.output_at > self._refused_at
                return Contact.UNREADABLE if works else Contact.REFUSED
            case _:
                return Contact.UNREADABLE


def _scrape(engine: EngineState) -> Scrape | None:
    if engine.last_success_at is None or engine.metrics.engine_type is None:
        return None
    metrics = engine.metrics
    running, waiting, deferred = (
        _total(metrics, signal) for signal in (signals.ENGINE_RUNNING, signals.ENGINE_WAITING, signals.ENGINE_DEFERRED)
    )
    return Scrape(
        engine.last_success_at,
        metrics.start_time,
        _work(metrics),
        counts_live=engine.metrics.engine_type.counts_live,
        running=running,
        waiting=max(0.0, waiting - deferred),
        deferred=deferred,
        asleep=_is_asleep(metrics),
    )


def _total(metrics: EngineMetrics, signal: Signal) -> float:
    return sum(metrics.values.get(signal, {}).values())


def _work(metrics: EngineMetrics) -> tuple[float, ...]:
    counts = (
        each.buckets[-1][1] if each.buckets else 0.0
        for signal in _HISTOGRAMS
        for each in metrics.distributions.get(signal, {}).values()
    )
    return (*(_total(metrics, signal) for signal in _COUNTERS), sum(counts))


def _is_asleep(metrics: EngineMetrics) -> bool:
    states = metrics.values.get(signals.ENGINE_SLEEP_STATE, {})
    awake = [value for key, value in states.items() if key[-1] == "awake"]
    return bool(awake) and not any(awake)


def requests_of(waits: Iterable[Waits]) -> Requests:
    """The evidence of all relays of a sidecar in front of one engine."""
    rows = list(waits)
    outputs = [row.output_at for row in rows if row.output_at is not None]
    return Requests(
        sum(row.awaited for row in rows),
        frozenset(model for row in rows for model in row.models),
        max((row.longest_prompt for row in rows), default=0.0),
        max(outputs, default=None),
        frozenset(model for row in rows for model in row.output_models),
        sum(row.failed for row in rows),
    )
