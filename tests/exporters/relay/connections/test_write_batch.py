"""The write batch: order, one batch per iteration of the event loop, and a write that fails."""

import asyncio
from collections.abc import Callable

import pytest

from exporters.relay.connections.write_batch import WriteBatch


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
async def batch(events: list[str]) -> WriteBatch:
    return WriteBatch(asyncio.get_running_loop(), lambda error: events.append(repr(error)))


def noting(events: list[str], event: str, then: Callable[[], None] = lambda: None) -> Callable[[], None]:
    def note() -> None:
        events.append(event)
        then()

    return note


async def test_writes_wait_for_the_other_ready_callbacks_and_keep_their_order(
    batch: WriteBatch, events: list[str]
) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(noting(events, "read a", lambda: batch.add(noting(events, "write a"))))
    loop.call_soon(noting(events, "read b", lambda: batch.add(noting(events, "write b"))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert events == ["read a", "read b", "write a", "write b"]


async def test_a_write_that_fails_is_reported_and_stops_no_other_write(batch: WriteBatch, events: list[str]) -> None:
    def fail() -> None:
        raise ValueError("closed")

    batch.add(fail)
    batch.add(noting(events, "written"))
    await asyncio.sleep(0)
    assert events == ["ValueError('closed')", "written"]


async def test_a_write_that_is_added_by_another_is_part_of_the_next_batch(batch: WriteBatch, events: list[str]) -> None:
    batch.add(noting(events, "first", lambda: batch.add(noting(events, "second"))))
    await asyncio.sleep(0)
    assert events == ["first"]
    await asyncio.sleep(0)
    assert events == ["first", "second"]
