"""Watches the condition of one engine: builds the evidence each second, and reports the state."""

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

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

logger = logging.getLogger("vllm_slo.engines")


class Warmth:
    """Whether the process of an engine is warm: as `vllm-slo load warm-up --ready` reports, until the process ends.

    An engine that has worked before the first scrape is warm too, so that a restarted sidecar fails no replica.
    """

    def __init__(self) -> None:
        self.warm = False
        self._scraped = False
        self._stopped = False
        """Whether it has refused connections since the last scrape."""
        self._started_at: float | None = None

    def report(self) -> None:
        """The engine is warm now."""
        self.warm = True

    def observe(self, contact: Contact, scrape: Scrape | None) -> None:
        """Take what the last attempt to scrape met, and the last successful scrape."""
        if contact is Contact.REFUSED:
            self._stopped = True
        if contact is not Contact.ANSWERS or scrape is None:
            return
        if not self._scraped:
            self.warm = self.warm or (any(scrape.work) and not self._stopped)
        elif scrape.started_at != self._started_at or (self._stopped and scrape.started_at is None):
            self.warm = False
        self._scraped, self._stopped, self._started_at = True, False, scrape.started_at


class ConditionWatch:
    """The condition of one engine; times are monotonic seconds."""

    def __init__(self, name: str, limits: Limits = LIMITS) -> None:
        self.name = name
        self.limits = limits
        self.condition = Condition()
        self.warmth = Warmth()
        self._whole = Condition()
        """The condition of the whole engine, without its ranks."""
        self._ranks: dict[str, Condition] = {}
        self._refused_at: float | None = None

    def observe(self, engine: EngineState, requests: Requests, now: float) -> None:
        """Take what is known at `now`; `requests` is empty if the relays do not know which engine serves them."""
        contact = self._contact(engine, requests, now)
        if contact is None:
            return
        before = self.condition
        seen = Evidence(now, contact, _scrape(engine, None), requests)
        self.warmth.observe(contact, seen.scrape)
        self._whole = observe(self._whole, seen, self.limits)
        after = self.condition = self._with_ranks(engine, seen)
        if after.state is not before.state and before.reason is not Reason.NOT_SEEN:
            level = logging.WARNING if self.failing else logging.INFO
            logger.log(level, "engine %s is %s: %s", self.name, after.state, self.explanation(now))

    def _with_ranks(self, engine: EngineState, seen: Evidence) -> Condition:
        """The condition of the engine; a working one is wedged if one of several ranks is."""
        ranks = sorted({key[0] for key in engine.metrics.values.get(signals.ENGINE_RUNNING, {})})
        if len(ranks) < 2 or self._whole.state not in {State.SERVING, State.SATURATED}:
            self._ranks = {}
            return self._whole
        # The relays do not know which rank serves a request.
        requests = replace(seen.requests, awaited=0, probing=False, output_at=None)
        self._ranks = {
            rank: observe(
                self._ranks.get(rank, Condition()),
                replace(seen, scrape=_scrape(engine, rank), requests=requests),
                self.limits,
            )
            for rank in ranks
        }
        stalled = [each for each in self._ranks.values() if each.state is State.WEDGED]
        if not stalled:
            return self._whole
        since = min(each.since for each in stalled)
        return replace(self._whole, state=State.WEDGED, reason=Reason.RANK_STALLED, since=since)

    def explanation(self, now: float) -> str:
        """The reason of the state, with the evidence."""
        condition = self.condition
        text = condition.reason.text
        last = condition.last
        if condition.reason is Reason.NO_PROGRESS and last is not None:
            scrape, counts = last.scrape, [f"{last.requests.awaited} at the relay"]
            if last.requests.probing:
                counts.append("a probe")
            if scrape is not None:
                counts.append(f"{scrape.running:.0f} running and {scrape.waiting + scrape.deferred:.0f} waiting in it")
            text = f"{text} for {condition.stalled_for(now):.0f} s ({', '.join(counts)})"
        if condition.reason is Reason.RANK_STALLED:
            text += f" (rank {', '.join(rank for rank, each in self._ranks.items() if each.state is State.WEDGED)})"
        return text

    def line(self, now: float) -> str:
        """The state for the response to a probe."""
        seen = f" for {now - self.condition.since:.0f} s" if self.condition.reason is not Reason.NOT_SEEN else ""
        return f"{self.name} is {self.condition.state}{seen}: {self.explanation(now)}\n"

    @property
    def failing(self) -> bool:
        """Whether the engine is wedged or down."""
        return self.condition.state in {State.WEDGED, State.DOWN}

    def failing_for(self, now: float) -> float:
        """Seconds for which the engine has been wedged or down."""
        return now - self.condition.since if self.failing else 0.0

    def samples(self, now: float) -> Iterator[tuple[Signal, Labels, float]]:
        condition, offset = self.condition, time.time() - now
        for state in State:
            yield signals.ENGINE_STATE, (state,), float(state is condition.state)
        yield signals.ENGINE_STATE_REASON, (condition.reason,), 1.0
        if condition.reason is not Reason.NOT_SEEN:
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


def _scrape(engine: EngineState, rank: str | None) -> Scrape | None:
    """The evidence of the last scrape, of one rank or of all."""
    if engine.last_success_at is None or engine.metrics.engine_type is None:
        return None
    metrics = engine.metrics
    running, waiting, deferred = (
        _total(metrics, signal, rank)
        for signal in (signals.ENGINE_RUNNING, signals.ENGINE_WAITING, signals.ENGINE_DEFERRED)
    )
    return Scrape(
        engine.last_success_at,
        metrics.start_time,
        _work(metrics, rank),
        counts_live=engine.metrics.engine_type.counts_live,
        running=running,
        waiting=max(0.0, waiting - deferred),
        deferred=deferred,
        paused=engine.generation_paused or _is_asleep(metrics),
    )


def _total(metrics: EngineMetrics, signal: Signal, rank: str | None) -> float:
    return sum(value for key, value in metrics.values.get(signal, {}).items() if rank in {None, key[0]})


def _work(metrics: EngineMetrics, rank: str | None) -> tuple[float, ...]:
    counts = (
        each.buckets[-1][1] if each.buckets else 0.0
        for signal in _HISTOGRAMS
        for key, each in metrics.distributions.get(signal, {}).items()
        if rank in {None, key[0]}
    )
    return (*(_total(metrics, signal, rank) for signal in _COUNTERS), sum(counts))


def _is_asleep(metrics: EngineMetrics) -> bool:
    states = metrics.values.get(signals.ENGINE_SLEEP_STATE, {})
    awake = [value for key, value in states.items() if key[-1] == "awake"]
    return bool(awake) and not any(awake)


def requests_of(waits: Iterable[Waits]) -> Requests:
    """The evidence of all relays of a sidecar in front of one engine."""
    rows = list(waits)
    outputs = [row.output_at for row in rows if row.output_at is not None]
    return Requests(
        awaited=sum(row.awaited for row in rows),
        models=frozenset(model for row in rows for model in row.models),
        longest_prompt=max((row.longest_prompt for row in rows), default=0.0),
        output_at=max(outputs, default=None),
        output_models=frozenset(model for row in rows for model in row.output_models),
        failed=sum(row.failed for row in rows),
    )
