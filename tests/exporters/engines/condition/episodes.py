"""Simulated episodes of an engine, in virtual time: what the sidecar sees of it each second, and when it was wedged.

The scheduler is that of the simulator, with slow steps. Each kind of episode is a function that plans the traffic and
the fault with random numbers of its seed. `python -m tests.exporters.engines.condition.episodes` prints the matrix.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from math import inf
from random import Random

from compose.simulator.engine.flags import EngineFlags
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.scheduler import Scheduler, Step
from compose.simulator.presets.preset import Preset
from exporters.engines.condition.evidence import Contact, Evidence, Requests, Scrape
from exporters.engines.condition.rule import Condition, State, observe

SLOW = Preset(
    name="slow",
    model="m",
    gpu="slow",
    compute_capability=(9, 0),
    weight_bytes=2e9,
    kv_bytes_per_token=1e3,
    flop_per_token=1e9,
    memory_bytes_per_second=1e10,
    flop_per_second=1e13,
    efficiency=0.5,
    overhead_seconds=0.0,
    eager_seconds=0.0,
    memory_bytes=1e11,
    num_gpu_blocks=0,
)
"""A step takes 0.2 s or more; it reads 5,000 prompt tokens a second."""

MOST_LOAD = 6.0
"""Requests per second."""
Span = tuple[float, float]


@dataclass(slots=True)
class Plan:
    """An episode; spans are in seconds, from their begin up to their end."""

    rng: Random
    seconds: float = 420.0
    scrape_interval: float = 15.0
    load: Callable[[float], float] = lambda _: 0.0
    """Arrivals per second at a time."""
    prompt: Span = (20, 400)
    output: Span = (5, 60)
    patience: float = 90.0
    """Seconds after which a client gives up."""
    model: Callable[[float], str] = lambda _: "m"
    single: list[tuple[float, int, int, str]] = field(default_factory=list)
    """Further requests: arrival, prompt and output in tokens, model."""
    through_relay: bool = True
    """Whether the requests come through the relay."""
    max_num_seqs: int = 16
    max_batched: int = 2048
    kv_tokens: int = 400_000
    counts_live: bool = True

    frozen: Span | None = None
    """The engine core stands still."""
    admits_nobody: Span | None = None
    refused: list[Span] = field(default_factory=list)
    """No process listens; a new one has started when the span ends."""
    silent: list[Span] = field(default_factory=list)
    """The API server accepts connections and answers nothing."""
    slow_scrapes: list[Span] = field(default_factory=list)
    """Only its metrics answer too late."""
    unreadable: bool = False
    fails: Span | None = None
    """Each request gets status 500 at once."""
    asleep: Span | None = None
    compiles: float = 0.0
    """Seconds for which the first step after a start takes longer."""
    loads_adapter: Callable[[str], float] = lambda _: 0.0
    """Seconds for which the first request of a model stays in the API server."""
    compiles_grammar: Callable[[str], float] = lambda _: 0.0
    """Seconds for which a request of a model waits in the core, deferred."""
    slow_client: Callable[[int], bool] = lambda _: False
    """Whether the client of the n-th request stops reading after a second."""

    wedged_from: float = inf
    """When requests begin to wait in vain."""
    down_from: float = inf


@dataclass(slots=True, eq=False)
class _Open:
    job: Job
    arrived: float
    model: str
    first_at: float | None = None
    reads: bool = True
    ended: bool = False


class World:
    """The engine, its API server, the relay and the clients of an episode."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = 0.0
        self.relay: list[_Open] = []
        self.output_at: float | None = None
        self.output_models: set[str] = set()
        self.failed = 0
        self._held: list[tuple[float, _Open]] = []
        """Requests that are not in the scheduler yet, and when they will be."""
        self._known: set[str] = set()
        self._number = 0
        self._scrape = Scrape(0.0)
        self._start(0.0)

    def _start(self, at: float) -> None:
        plan = self.plan
        flags = EngineFlags(
            max_num_seqs=plan.max_num_seqs,
            max_num_batched_tokens=plan.max_batched,
            num_gpu_blocks=plan.kv_tokens // 16 + 1,
            block_size=16,
            max_model_len=400_000,
            enable_prefix_caching=False,
            enable_chunked_prefill=True,
            seed=1,
        )
        self.scheduler = Scheduler(flags, SLOW)
        self.started_at = at
        self.step: Step | None = None
        self.step_ends = inf
        self.steps = 0
        self.prompt_tokens = self.generated = self.finished = 0
        self.gauges = (0, 0, 0, 0.0)

    def arrive(self, prompt: int, output: int, model: str) -> None:
        self._number += 1
        job = Job(
            tokens=[self._number] * prompt,
            prompt_length=prompt,
            output_length=output,
            finish=FinishReason.LENGTH,
            generate=lambda _: 1,
        )
        request = _Open(job, self.now, model)
        plan = self.plan
        if _in(plan.refused, self.now):
            self.failed += 1
            return  # status 502, without waiting
        if _in([plan.fails], self.now):
            self.failed += 1
            return
        self.relay.append(request)
        delay = 0.0 if model in self._known else plan.loads_adapter(model)
        self._known.add(model)
        self._held.append((self.now + delay + plan.compiles_grammar(model), request))

    def advance(self, to: float) -> None:
        """Run the engine until `to`."""
        plan = self.plan
        for span in plan.refused:
            if self.now < span[1] and to > span[0]:
                self.relay.clear()
                self._held.clear()
                if to >= span[1]:
                    self._start(span[1])
        for request in [each for each in self.relay if to - each.arrived > plan.patience]:
            self._leave(request)
        while True:
            at = min(self.step_ends, to)
            if _in([plan.frozen], at) or _in(plan.silent, at) or _in(plan.refused, at):
                if self.step is not None:  # it ends after the standstill
                    ends = max(span[1] for span in [plan.frozen or (0, 0), *plan.silent])
                    self.step_ends = max(self.step_ends, ends)
                break
            self._submit(at)
            if self.step is None:
                self._begin(at)
                if self.step is None:
                    break
            if self.step_ends > to:
                break
            self._finish(self.step, self.step_ends)
            self._begin(self.step_ends)
        self.now = to

    def _submit(self, at: float) -> None:
        if _in([self.plan.admits_nobody], at):
            return
        due = [each for each in self._held if each[0] <= at]
        for entry in due:
            self._held.remove(entry)
            if not entry[1].ended:
                self.scheduler.submit(entry[1].job, at)

    def _begin(self, at: float) -> None:
        self.step = self.scheduler.step(at)
        if self.step is None:
            self.step_ends = inf
            self._update_gauges()
            return
        slower = self.plan.compiles if self.steps == 0 else 0.0
        self.step_ends = self.step.ends_at + slower
        self.steps += 1

    def _finish(self, step: Step, at: float) -> None:
        by_job = {each.job: each for each in self.relay}
        for token in self.scheduler.tokens(step):
            self.generated += token.count
            if token.gap is None:
                self.prompt_tokens += token.job.prompt_length
            if token.finish is not None:
                self.finished += 1
            request = by_job.get(token.job)
            if request is None:
                continue
            request.first_at = request.first_at or at
            if self.plan.slow_client(request.job.tokens[0]) and at - request.first_at > 1:
                request.reads = False
            if request.reads:
                self.output_at = at
                self.output_models.add(request.model)
                if token.finish is not None:
                    self.relay.remove(request)
        self._update_gauges()

    def _update_gauges(self) -> None:
        plan = self.plan
        arrived = [each for at, each in self._held if not each.ended]
        in_core = [each for each in arrived if self.now - each.arrived >= plan.loads_adapter(each.model)]
        deferred = sum(plan.compiles_grammar(each.model) > 0 for each in in_core)
        waiting = len(self.scheduler.waiting) + len(in_core)
        used = 1 - self.scheduler.pool.free / max(1, plan.kv_tokens // 16)
        self.gauges = len(self.scheduler.running), waiting - deferred, deferred, used

    def _leave(self, request: _Open) -> None:
        self.relay.remove(request)
        request.ended = True
        if not (_in([self.plan.frozen], self.now) or _in(self.plan.silent, self.now)):
            self.scheduler.abort(request.job)

    def evidence(self) -> Evidence:
        plan, now = self.plan, self.now
        if _in(plan.refused, now):
            contact = Contact.REFUSED
        elif _in(plan.silent, now) or _in(plan.slow_scrapes, now):
            contact = Contact.SILENT
        else:
            contact = Contact.UNREADABLE if plan.unreadable else Contact.ANSWERS
        if contact is Contact.ANSWERS and now % plan.scrape_interval < 1:
            if self.step is None and not _in([plan.frozen], now):
                self._update_gauges()
            running, waiting, deferred, used = self.gauges
            counts = self.finished if plan.counts_live else 0
            generated = self.generated if plan.counts_live else self.finished
            self._scrape = Scrape(
                now,
                self.started_at,
                (float(self.prompt_tokens), float(generated), float(counts), used),
                plan.counts_live,
                running,
                waiting,
                deferred,
                paused=_in([plan.asleep], now),
            )
        scrape = self._scrape if self._scrape.at else None
        return Evidence(now, contact, scrape, self._requests() if plan.through_relay else Requests())

    def _requests(self) -> Requests:
        awaited = [each for each in self.relay if each.reads]
        without = [each.job.prompt_length for each in awaited if each.first_at is None]
        return Requests(
            awaited=len(awaited),
            models=frozenset(each.model for each in awaited),
            longest_prompt=float(max(without, default=0)),
            output_at=self.output_at,
            output_models=frozenset(self.output_models),
            failed=self.failed,
        )


def _in(spans: "list[Span] | list[Span | None]", at: float) -> bool:
    return any(span is not None and span[0] <= at < span[1] for span in spans)


def play(plan: Plan) -> Iterator[tuple[float, Evidence]]:
    """The evidence of each second."""
    world, rng = World(plan), plan.rng
    arrivals = []
    at = 0.0
    while (at := at + rng.expovariate(MOST_LOAD)) < plan.seconds:
        if rng.random() * MOST_LOAD < plan.load(at):
            arrivals.append(
                (at, rng.randint(*map(int, plan.prompt)), rng.randint(*map(int, plan.output)), plan.model(at))
            )
    arrivals += plan.single
    arrivals.sort()
    second = 0.0
    while second < plan.seconds:
        second += 1
        while arrivals and arrivals[0][0] <= second:
            when, prompt, output, model = arrivals.pop(0)
            world.advance(max(when, world.now))
            world.arrive(prompt, output, model)
        world.advance(second)
        yield second, world.evidence()


# The kinds. Half of them were used to set the limits of the rule, the others judge it.


def _steady(rate: float) -> Callable[[float], float]:
    return lambda _: rate


def light_load(rng: Random) -> Plan:
    return Plan(rng, load=_steady(rng.uniform(0.02, 0.5)))


def queue_of_minutes(rng: Random) -> Plan:
    return Plan(rng, load=_steady(rng.uniform(3, 6)), patience=600, seconds=900)


def long_prefill_in_chunks(rng: Random) -> Plan:
    at = rng.uniform(60, 120)
    prompt = rng.randint(150_000, 300_000)
    return Plan(
        rng, load=_steady(rng.choice((0.0, 0.2))), single=[(0.5, 50, 5, "m"), (at, prompt, 20, "m")], patience=600
    )


def long_prefill_in_one_step(rng: Random) -> Plan:
    at = rng.uniform(60, 120)
    single = [(0.5, 50, 5, "m"), (at, rng.randint(100_000, 250_000), 20, "m")]
    return Plan(rng, load=_steady(rng.choice((0.0, 0.2))), single=single, max_batched=400_000, patience=600)


def load_of_twenty_minutes(rng: Random) -> Plan:
    return Plan(rng, load=_steady(0.3), refused=[(0.0, rng.uniform(600, 1500))], seconds=1700)


def compilation_at_the_first_request(rng: Random) -> Plan:
    ready = rng.uniform(5, 60)
    return Plan(rng, load=_steady(0.3), refused=[(0.0, ready)], compiles=rng.uniform(60, 240), patience=400)


def restart(rng: Random) -> Plan:
    at = rng.uniform(60, 150)
    return Plan(rng, load=_steady(rng.uniform(0.1, 1)), refused=[(at, at + rng.uniform(20, 180))], compiles=10)


def full_cache_with_preemptions(rng: Random) -> Plan:
    return Plan(
        rng, load=_steady(rng.uniform(0.5, 1.5)), kv_tokens=rng.randint(2000, 4000), output=(200, 600), patience=900
    )


def compilation_of_a_grammar(rng: Random) -> Plan:
    seconds, at = rng.uniform(30, 200), rng.uniform(60, 120)
    single = [(0.5, 50, 5, "m"), (at, 100, 20, "grammar")]
    slow = {"grammar": seconds}
    return Plan(
        rng,
        load=_steady(rng.choice((0.0, 0.1))),
        single=single,
        compiles_grammar=lambda m: slow.get(m, 0.0),
        patience=600,
    )


def slow_clients(rng: Random) -> Plan:
    return Plan(
        rng, load=_steady(rng.uniform(0.05, 0.5)), output=(50, 300), slow_client=lambda n: n % 2 == 0, patience=600
    )


def adapter_is_loaded(rng: Random) -> Plan:
    seconds, at = rng.uniform(20, 100), rng.uniform(60, 120)
    slow = {"adapter": seconds}
    single = [(0.5, 50, 5, "m"), (at, 100, 20, "adapter")]
    return Plan(rng, single=single, loads_adapter=lambda m: slow.get(m, 0.0), patience=600)


def idle_night(rng: Random) -> Plan:
    return Plan(rng, single=[(rng.uniform(1, 5), 100, 10, "m")], seconds=1800)


def bursts(rng: Random) -> Plan:
    period = rng.uniform(40, 90)
    return Plan(rng, load=lambda at: 3.0 if at % period < 10 else 0.0)


def asleep(rng: Random) -> Plan:
    at = rng.uniform(60, 120)
    return Plan(rng, load=lambda t: 0.3 if t < at - 60 else 0.0, asleep=(at, at + 250))


def counts_at_the_end(rng: Random) -> Plan:
    return Plan(rng, load=_steady(rng.uniform(0.02, 0.2)), counts_live=False, output=(300, 900), patience=900)


def counts_at_the_end_of_other_clients(rng: Random) -> Plan:
    return Plan(rng, load=_steady(0.05), counts_live=False, output=(300, 900), patience=900, through_relay=False)


def unreadable_metrics(rng: Random) -> Plan:
    return Plan(rng, load=_steady(rng.uniform(0.1, 1)), unreadable=True)


def late_scrapes(rng: Random) -> Plan:
    begins = sorted(rng.uniform(60, 360) for _ in range(6))
    return Plan(
        rng,
        load=_steady(rng.uniform(1, 3)),
        patience=300,
        slow_scrapes=[(at, at + rng.uniform(5, 80)) for at in begins],
    )


def other_clients(rng: Random) -> Plan:
    return Plan(rng, load=_steady(rng.uniform(0.1, 1)), through_relay=False)


def frozen_core_under_load(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(
        rng, load=_steady(rng.uniform(0.5, 3)), frozen=(at, inf), wedged_from=at, patience=rng.choice((30, 90, 600))
    )


def frozen_core_while_idle(rng: Random) -> Plan:
    at, back = rng.uniform(60, 100), rng.uniform(150, 200)
    first = rng.uniform(1, 30)
    load = lambda t: 0.5 if t < first or t >= back else 0.0  # noqa: E731
    return Plan(
        rng,
        load=load,
        single=[(1, 50, 5, "m"), (back, 50, 5, "m")],
        frozen=(at, inf),
        wedged_from=back,
        patience=rng.choice((30, 90, 600)),
    )


def frozen_core_of_other_clients(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(rng, load=_steady(2.0), patience=600, frozen=(at, inf), wedged_from=at, through_relay=False)


def scheduler_admits_nobody(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    # The requests that run may still end.
    return Plan(rng, load=_steady(rng.uniform(0.5, 2)), admits_nobody=(at, inf), wedged_from=at + 15, patience=600)


def silent_server_under_load(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(
        rng, load=_steady(rng.uniform(0.3, 2)), silent=[(at, inf)], wedged_from=at, patience=rng.choice((30, 90, 600))
    )


def silent_server_while_idle(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(rng, single=[(1, 50, 5, "m")], silent=[(at, inf)], wedged_from=at)


def frozen_core_that_counts_at_the_end(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(
        rng, load=_steady(rng.uniform(0.5, 2)), counts_live=False, patience=600, frozen=(at, inf), wedged_from=at
    )


def hang_that_ends(rng: Random) -> Plan:
    at = rng.uniform(60, 150)
    return Plan(
        rng, load=_steady(rng.uniform(0.5, 2)), patience=600, frozen=(at, at + rng.uniform(60, 150)), wedged_from=at
    )


def exits_again_and_again(rng: Random) -> Plan:
    at = rng.uniform(60, 100)
    return Plan(rng, load=_steady(0.5), refused=[(at, at + 20), (at + 60, inf)], down_from=at + 60)


def fails_all_requests(rng: Random) -> Plan:
    at = rng.uniform(60, 200)
    return Plan(rng, load=_steady(rng.uniform(0.5, 2)), fails=(at, inf), down_from=at)


Kind = Callable[[Random], Plan]
KINDS: tuple[Kind, ...] = tuple(
    each for each in [*globals().values()] if getattr(each, "__annotations__", None) == {"rng": Random, "return": Plan}
)
"""The functions above that plan an episode."""


FOUND_WITHIN = 45.0
"""Seconds after which a wedge must be found."""


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds in each state, those after which a wedge was found, and the false ones."""

    states: Counter[State]
    false: int
    found_after: float | None
    last: State
    """The state at the end."""
    plan: Plan

    @property
    def is_right(self) -> bool:
        """Whether a wedge was found in time, and the engine was not called wedged before."""
        found = self.found_after is not None and self.found_after <= FOUND_WITHIN
        return not self.false and (found if self.plan.wedged_from < inf else self.found_after is None)


@cache
def run(kind: Kind, seed: int) -> Result:
    plan = kind(Random(f"{kind.__name__} {seed}"))  # noqa: S311 - repeatable, not secret
    condition, states, false, found = Condition(), Counter[State](), 0, None
    for at, seen in play(plan):
        condition = observe(condition, seen)
        states[condition.state] += 1
        if condition.state is State.WEDGED:
            false += at < plan.wedged_from
            if found is None:
                found = max(0.0, at - plan.wedged_from)
    return Result(states, false, found, condition.state, plan)


def main(seeds: int) -> int:
    """Print the matrix of the kinds that set the limits, and of those that judge them."""
    wrong = 0
    for judges in (False, True):
        print("kinds that judge the limits" if judges else "kinds that set the limits")
        print(f"{'':40} wedged: false  found  latest   states")
        for kind in KINDS[judges::2]:
            results = [run(kind, 2 * seed + judges) for seed in range(seeds)]
            wrong += sum(not result.is_right for result in results)
            total = sum((result.states for result in results), Counter[State]())
            false = sum(result.false > 0 for result in results)
            found = [result.found_after for result in results if result.found_after is not None]
            latest = f"{max(found):.0f} s" if found else ""
            states = ", ".join(f"{state} {100 * count / total.total():.0f} %" for state, count in total.most_common())
            print(f"{kind.__name__.replace('_', ' '):40} {false:13} {len(found):6}  {latest:>6}   {states}")
    print(f"{len(KINDS)} kinds, {seeds * len(KINDS)} episodes, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 15))
