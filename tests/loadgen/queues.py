"""Requests of simulated servers with a queue, for tests."""

import heapq
from random import Random

from loadgen.results.steady_state import Timed


def seeded(seed: int) -> Random:
    return Random(seed)  # noqa: S311 - repeatable, not secret


def queue(load: float, count: int, random: Random, *, slots: int = 1, rate: float = 1.0) -> list[Timed]:
    """`count` Poisson arrivals at a first-come-first-served server with exponential service times, offered `load`.

    With one slot, the first token comes at the end of the service; with more, the service is the decoding after it.
    """
    at, free, requests = 0.0, [0.0] * slots, []
    for _ in range(count):
        at += random.expovariate(rate)
        begin = max(at, heapq.heappop(free))
        end = begin + random.expovariate(rate / slots / load)
        heapq.heappush(free, end)
        requests.append(Timed(at, (end if slots == 1 else begin) - at, end))
    return requests
