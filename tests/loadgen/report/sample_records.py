"""Random requests of a run, for its report."""

import random
from collections.abc import Sequence

from exporters.vocabulary.signals import Verdict
from loadgen.results.record import ClientOutcome, Record
from tests.loadgen.load_records import record

CLASSES = ("siso", "lilo")
OUTCOMES = [ClientOutcome.OK, ClientOutcome.OK, ClientOutcome.OK, ClientOutcome.TIMEOUT, ClientOutcome.UPSTREAM_ERROR]


def sample(count: int, classes: Sequence[str] = CLASSES, error: str = "error of the engine") -> list[Record]:
    """Requests with random lengths, times and outcomes."""
    numbers = random.Random(1)  # noqa: S311 - repeatable, not secret
    return [_random_record(numbers, number, classes, error) for number in range(count)]


def _random_record(numbers: random.Random, number: int, classes: Sequence[str], error: str) -> Record:
    outcome = numbers.choice(OUTCOMES)
    due = numbers.uniform(0, 30)
    first = numbers.lognormvariate(-1, 1)
    started = outcome is not ClientOutcome.TIMEOUT
    ok = outcome is ClientOutcome.OK
    max_tokens = int(numbers.lognormvariate(5, 1)) + 1
    return record(
        number=number,
        request_class=numbers.choice(classes),
        phase="calm" if due < 10 else "busy",
        outcome=outcome,
        due=due,
        dispatched=due + 0.001,
        sent=due + 0.002,
        first=due + first if started else None,
        last=due + first + 2 if started else None,
        closed=due + first + 2.5,
        send_lag=0.001,
        ttft=first if started else None,
        ttft_sent=first - 0.002 if started else None,
        e2e=first + 2.5,
        tpot=numbers.uniform(0.01, 0.1) if ok else None,
        queue=numbers.uniform(0, first / 2) if ok else None,
        asked_prompt_tokens=int(numbers.lognormvariate(6, 1)) + 1,
        max_tokens=max_tokens,
        completion_tokens=max_tokens if ok else numbers.randrange(100) if started else None,
        prompt_tokens=100 if ok else None,
        slo={"ttft": Verdict.GOOD if first < 0.5 else Verdict.BAD},
        good=first < 0.5 and ok,
        error=None if ok else error,
    )
