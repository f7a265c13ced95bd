"""Input that is made to keep the event loop busy causes little work in each of its callbacks, and is forwarded."""

import asyncio
import sys
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from exporters.configuration.sidecar import LogContent
from tests.fuzz.wire import CONFIG
from tests.support.callback_costs import costs_of
from tests.support.hostile_inputs import (
    Input,
    chunked_bodies,
    forms,
    heads,
    json_bodies,
    responses,
    streams,
    websockets,
)

pytestmark = pytest.mark.slow

HEAD, LINES, JSON = 64 * 1024, 24 * 1024, 384 * 1024
"""Bytes of an input: of a head, of many short lines, and of JSON, whose prompt would be decoded below 64 KiB."""

# With these flags, JSON is read more often.
FULL = replace(CONFIG, check_structured_output=True, log_content=LogContent.FULL, log_prefix_hashes=True)
MAX_CALLS = 30_000
"""Calls of functions in one callback, of Python or of C: at most a few for each of the lines that it may parse."""
MAX_CALLS_IN_THREAD = 250_000
"""As above; other threads run between calls of Python."""
MAX_COPIES = 6
MAX_OBJECTS = 2 * 1024 * 1024
"""Bytes that a callback may allocate: copies of the input, and objects, but not one for each value of JSON."""


@pytest.fixture(scope="module", autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def work(callback: Callable[[], object]) -> tuple[int, int]:
    """The calls of functions, and the peak of the allocated bytes."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    sys.setprofile(count)
    try:
        callback()
    finally:
        sys.setprofile(None)
    return calls, tracemalloc.get_traced_memory()[1] - before


def alike(inputs: Iterable[Input], size: int, *, forwarded: bool = False) -> list[Any]:
    """All inputs. Of those with the same name for several APIs, one is not `long`: that of each API in turn."""
    named: dict[str, list[Input]] = {}
    for one in inputs:
        named.setdefault(one.name.rpartition(": ")[2], []).append(one)
    return [
        pytest.param(one, size, forwarded, id=one.name, marks=() if place == number % len(same) else pytest.mark.long)
        for number, same in enumerate(named.values())
        for place, one in enumerate(same)
    ]


INPUTS = [
    *alike(heads(), HEAD),
    *alike(chunked_bodies(), LINES),
    *alike(streams(), LINES),
    *alike(websockets(), LINES),
    *alike(json_bodies(), JSON, forwarded=True),
    *alike(forms(), JSON, forwarded=True),
    *alike(responses(), JSON),
]


@pytest.mark.parametrize("sent, size, forwarded", INPUTS)
def test_a_hostile_input_causes_little_work(sent: Input, size: int, forwarded: bool) -> None:
    if sent.read < 100:  # each read costs the same
        sent = replace(sent, most=min(sent.most, 500 * sent.read))
    costs = asyncio.run(costs_of(sent, size, work, FULL if size == JSON else CONFIG))
    for found, limit in ((costs.loop, MAX_CALLS), (costs.thread, MAX_CALLS_IN_THREAD)):
        for calls, allocated in found:
            assert calls <= limit
            assert allocated <= MAX_COPIES * size + MAX_OBJECTS
    if forwarded:
        (exchange,) = costs.bench.relay.offered
        assert exchange._state.request.sent
