"""The state of an engine, as a function of the evidence so far: `observe` takes one step.

Work is what only a working engine shows: a change of its counters of tokens or finished requests or of the use of its
KV cache, and output that arrives at a relay. docs/engine-state.md has the table of states and transitions.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self

from exporters.engines.condition.evidence import Contact, Evidence


class State(StrEnum):
    """The states of an engine."""

    STARTING = "starting"
    SERVING = "serving"
    SATURATED = "saturated"
    WEDGED = "wedged"
    PAUSED = "paused"
    DOWN = "down"


class Reason(StrEnum):
    """Why an engine is in its state, with a clause that says so."""

    text: str

    def __new__(cls, name: str, text: str = "") -> Self:
        member = str.__new__(cls, name)
        member._value_, member.text = name, text
        return member

    NOT_SEEN = "not_seen", "it has not been scraped yet"
    NOT_LISTENING = "not_listening", "it does not answer yet"
    EXITED = "exited", "it has stopped listening, and may be starting again"
    EXITED_AGAIN = "exited_again", "it has stopped listening again"
    START_TOO_LONG = "start_too_long", "it has not answered for longer than a start may take"
    FIRST_REQUESTS = "first_requests", "its first requests take long, as while it compiles"
    WORKS = "works", "it works"
    IDLE = "idle", "no request waits for it"
    METRICS_UNREADABLE = "metrics_unreadable", "its metrics cannot be read"
    QUEUE = "queue", "requests wait for capacity"
    NO_PROGRESS = "no_progress", "requests wait for it, and nothing moves"
    NO_RESPONSE = "no_response", "it accepts connections and does not answer"
    RANK_STALLED = "rank_stalled", "requests wait for one of its ranks, and nothing moves there"
    FAILS = "fails", "it fails all requests"
    PAUSED = "paused", "it sleeps, or has paused generation"


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds, unless stated otherwise."""

    start: float = 1800.0
    """How long a start may take: `alerting.cold_start`."""
    first_requests: float = 300.0
    """How long nothing may move after a start although requests wait: the engine compiles and captures graphs."""
    stall: float = 28.0
    """How long nothing may move later, although requests wait."""
    prompt_rate: float = 5000.0
    """Tokens per second: as much longer for the longest prompt, because an engine may show nothing until it is read."""
    new_model: float = 120.0
    """How long nothing may move if only requests of models without any output wait: they may load an adapter."""
    deferred: float = 300.0
    """How long nothing may move if all requests wait for an adapter, a transfer or the compilation of a grammar."""
    queue: float = 15.0
    """How long requests must wait for capacity, or none must, until the state changes."""
    failures: int = 5
    """Failed requests after which an engine that has not worked since the first of them, `stall` ago, is down, and
    after which a second exit is a crash and not a planned restart."""
    exits: float = 4.0
    """The time for which an exit is remembered, as a multiple of `start`."""


LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Condition:
    """The state, and what the rule remembers of the evidence; times in monotonic seconds."""

    state: State = State.STARTING
    reason: Reason = Reason.NOT_SEEN
    since: float = 0.0
    process_since: float = 0.0
    """When the current process was first expected: when the engine was first looked for, or the last one exited."""
    exits: tuple[tuple[float, int], ...] = ()
    """When processes exited, and the failed requests until then."""
    answered_at: float | None = None
    """When the current process last answered a scrape or sent output."""
    worked_at: float | None = None
    """When the current process last worked."""
    waited_since: float | None = None
    """Time since which requests have waited for the engine without a break."""
    queue_changed_at: float | None = None
    """Time since which requests wait for capacity if the state is not `saturated`; if it is, since which none does."""
    failed: int = 0
    """Failed requests when the engine last worked."""
    failing_since: float | None = None
    """When the first request failed after that."""
    last: Evidence | None = None

    def stalled_for(self, at: float) -> float:
        """Seconds for which requests have waited and the engine has not worked."""
        if self.waited_since is None:
            return 0.0
        return at - max(self.waited_since, self.worked_at or self.waited_since)


def observe(before: Condition, seen: Evidence, limits: Limits = LIMITS) -> Condition:
    """The condition after one more piece of evidence."""
    if before.last is None:
        before = replace(before, since=seen.at, process_since=seen.scrape.at if seen.scrape else seen.at)
    facts = _of_process(before, seen, limits)
    of_another = seen.scrape is not None and seen.scrape.at < facts.process_since
    if of_another or seen.contact is Contact.UNREADABLE:  # its counts say nothing about now
        seen = replace(seen, scrape=None)
    facts = _of_work(facts, seen)
    facts = replace(facts, waited_since=_waited_since(facts, seen), queue_changed_at=_queue_changed_at(facts, seen))
    state, reason = _judge(facts, seen, limits)
    if state is before.state:
        return replace(facts, reason=reason, last=seen)
    return replace(facts, state=state, reason=reason, since=seen.at, queue_changed_at=None, last=seen)


def _of_process(before: Condition, seen: Evidence, limits: Limits) -> Condition:
    """Forget the work of a process that has exited."""
    started = None if seen.scrape is None else seen.scrape.started_at
    then = None if before.last is None or before.last.scrape is None else before.last.scrape.started_at
    replaced = started is not None and then is not None and started > then
    if before.answered_at is None or not (seen.contact is Contact.REFUSED or replaced):
        return before
    since = seen.scrape.at if replaced and seen.scrape is not None else seen.at
    remembered = (each for each in before.exits if since - each[0] < limits.exits * limits.start)
    exits = (*remembered, (since, seen.requests.failed))
    return replace(before, process_since=since, exits=exits, answered_at=None, worked_at=None)


def _of_work(facts: Condition, seen: Evidence) -> Condition:
    answered, worked, scrape = facts.answered_at, facts.worked_at, seen.scrape
    then = None if facts.last is None else facts.last.scrape
    if scrape is not None and scrape.at >= facts.process_since and (then is None or scrape.at > then.at):
        answered = scrape.at
        same_process = then is not None and then.at >= facts.process_since
        if then is not None and same_process and scrape.work != then.work:
            worked = scrape.at
    output = seen.requests.output_at
    if output is not None and output >= facts.process_since:
        answered, worked = max(answered or output, output), max(worked or output, output)
    failed, failing = seen.requests.failed, facts.failing_since
    if worked != facts.worked_at or failed <= facts.failed or seen.contact is Contact.REFUSED:
        failing = None
    else:
        failed, failing = facts.failed, seen.at if failing is None else failing
    return replace(facts, answered_at=answered, worked_at=worked, failed=failed, failing_since=failing)


def _waits(seen: Evidence) -> bool:
    """Whether a request waits for the engine, at a relay or in the engine itself."""
    scrape = seen.scrape
    if seen.requests.awaited or seen.requests.probing:
        return True
    # Counts that are updated when a request ends say nothing about those of other clients, which may be long.
    return scrape is not None and scrape.counts_live and scrape.running + scrape.waiting + scrape.deferred > 0


def _waited_since(facts: Condition, seen: Evidence) -> float | None:
    if not _waits(seen):
        return None
    return seen.at if facts.waited_since is None else facts.waited_since


def _queue_changed_at(facts: Condition, seen: Evidence) -> float | None:
    queued = seen.scrape is not None and seen.scrape.waiting > 0
    if queued is (facts.state is State.SATURATED):
        return None
    return seen.at if facts.queue_changed_at is None else facts.queue_changed_at


def _judge(facts: Condition, seen: Evidence, limits: Limits) -> tuple[State, Reason]:
    if seen.contact is Contact.REFUSED:
        return _without_process(facts, seen, limits)
    if seen.contact is Contact.ANSWERS and seen.scrape is not None and seen.scrape.paused:
        return State.PAUSED, Reason.PAUSED
    if facts.answered_at is None and seen.contact is not Contact.UNREADABLE:
        return _starting(facts, seen, limits, Reason.NOT_LISTENING)
    fails_for = 0.0 if facts.failing_since is None else seen.at - facts.failing_since
    if fails_for > limits.stall and seen.requests.failed - facts.failed >= limits.failures:
        return State.DOWN, Reason.FAILS
    if seen.contact is Contact.SILENT and seen.at - (facts.answered_at or facts.process_since) > limits.stall:
        return State.WEDGED, Reason.NO_RESPONSE
    stalled, patience = facts.stalled_for(seen.at), _patience(seen, limits)
    first = facts.worked_at is None
    if stalled > (max(patience, limits.first_requests) if first else patience):
        return State.WEDGED, Reason.NO_PROGRESS
    if facts.state is State.WEDGED and not _has_recovered(facts, seen):
        return State.WEDGED, facts.reason
    if first and stalled > patience:
        return State.STARTING, Reason.FIRST_REQUESTS
    return _serving(facts, seen, limits)


def _without_process(facts: Condition, seen: Evidence, limits: Limits) -> tuple[State, Reason]:
    exits, failed = facts.exits, seen.requests.failed
    # A planned restart fails no requests.
    second = len(exits) > 1 and failed - exits[-2][1] >= limits.failures
    third = len(exits) > 2 and exits[-1][0] - exits[-3][0] < limits.start
    if second or third:
        return State.DOWN, Reason.EXITED_AGAIN
    return _starting(facts, seen, limits, Reason.EXITED if facts.exits else Reason.NOT_LISTENING)


def _starting(facts: Condition, seen: Evidence, limits: Limits, reason: Reason) -> tuple[State, Reason]:
    if seen.at - facts.process_since > limits.start:
        return State.DOWN, Reason.START_TOO_LONG
    return State.STARTING, reason


def _patience(seen: Evidence, limits: Limits) -> float:
    """Seconds for which nothing may move while requests wait, if the engine has worked before."""
    scrape, requests = seen.scrape, seen.requests
    longest = limits.stall + requests.longest_prompt / limits.prompt_rate
    in_engine = 0.0 if scrape is None else scrape.running + scrape.waiting
    if in_engine:
        return longest
    if scrape is not None and scrape.deferred:
        return max(longest, limits.deferred)
    if not requests.models & requests.output_models:
        return max(longest, limits.new_model)
    return longest


def _has_recovered(facts: Condition, seen: Evidence) -> bool:
    """Whether the engine has worked since it was wedged, or has noticed that its clients have gone."""
    if facts.worked_at is not None and facts.worked_at > facts.since:
        return True
    then = None if facts.last is None else facts.last.scrape
    now = seen.scrape
    if facts.reason is Reason.NO_RESPONSE:
        return seen.contact is Contact.ANSWERS and not _waits(seen)
    return (
        then is not None
        and now is not None
        and then.running + then.waiting > 0
        and now.running + now.waiting + now.deferred == 0
        and not seen.requests.awaited
    )


def _serving(facts: Condition, seen: Evidence, limits: Limits) -> tuple[State, Reason]:
    changed = facts.queue_changed_at is not None and seen.at - facts.queue_changed_at >= limits.queue
    if (facts.state is State.SATURATED) is not changed:
        return State.SATURATED, Reason.QUEUE
    if seen.contact is not Contact.ANSWERS:
        return State.SERVING, Reason.METRICS_UNREADABLE
    return State.SERVING, Reason.IDLE if facts.waited_since is None else Reason.WORKS
