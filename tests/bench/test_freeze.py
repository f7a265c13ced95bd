"""The three figures of a frozen server, on virtual time and through the same summary."""

import heapq
from collections.abc import Iterator

import pytest

from loadgen.results.record import Record
from tests.bench.freeze import CONNECTIONS, RATE, figures
from tests.loadgen.load_records import record

SECONDS = 30.0
BEGIN, END = 15.0, 19.0
SERVICE = 0.02


def first_token(sent: float) -> float:
    """A server that takes 20 ms, and is frozen for 4 s."""
    done = sent + SERVICE
    return done if done < BEGIN or sent >= END else END + (done - max(sent, BEGIN))


def made(due: float, sent: float) -> Record:
    first = first_token(sent)
    return record(
        due=due, dispatched=due, sent=sent, first=first, closed=first, ttft=first - due, ttft_sent=first - sent
    )


def open_loop(connections: int) -> Iterator[Record]:
    free = [0.0] * connections
    for number in range(int(SECONDS * RATE)):
        due = number / RATE
        request = made(due, max(due, heapq.heappop(free)))
        heapq.heappush(free, request.closed)
        yield request


def closed_loop(users: int, think_time: float) -> Iterator[Record]:
    for user in range(users):
        at = user * think_time / users
        while at < SECONDS:
            request = made(at, at)
            yield request
            at = request.closed + think_time


def test_only_the_intended_time_shows_how_long_a_server_was_frozen() -> None:
    found = figures(list(open_loop(CONNECTIONS)), list(closed_loop(CONNECTIONS, CONNECTIONS / RATE)))
    assert found.intended == pytest.approx(END - BEGIN, rel=0.1)
    assert found.sent == pytest.approx(SERVICE)
    assert found.closed_loop == pytest.approx(SERVICE)
