"""The memory for request bodies is bounded; an upload that stalls while others wait for memory gives way."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay.bodies.memory import BodyMemory
from exporters.relay.relay import STALLED_UPLOAD_SECONDS
from exporters.vocabulary.signals import Outcome
from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import OK, UNARY, RawClient, Stage, error_in, ok, post, staged
from tests.support.waiting import until

LIMIT = 8_000_000
READ = 256 * 1024
"""The most that the event loop reads at once."""
UPLOAD = post(b'{"prompt":"%s"}' % (b"x" * 3_000_000), path="/v1/completions")


async def upload_part(stage: Stage, size: int) -> RawClient:
    """A client that sends only the first `size` bytes of its request."""
    client = await stage.connect()
    client.writer.write(UPLOAD[:size])
    return client


def reject_stalled(stage: Stage, seconds: float) -> None:
    stage.relay.reject_stalled_uploads(asyncio.get_running_loop().time() + seconds)


@contextlib.asynccontextmanager
async def full_stage(tmp_path: Path) -> AsyncIterator[tuple[Stage, list[RawClient]]]:
    """A relay whose memory is full of three uploads that have stalled."""
    async with staged(tmp_path, ok, max_buffered=LIMIT) as stage:
        clients = [await upload_part(stage, 2_900_000) for _ in range(3)]
        await until(lambda: stage.relay.bodies.uploads_wait)
        reject_stalled(stage, 0)
        yield stage, clients


@settings(max_examples=50)
@given(st.lists(st.integers(1, 40) | st.none(), max_size=60))
def test_uploads_wait_from_seven_eighths_and_requests_from_the_limit_until_a_quarter_is_free(
    sizes: list[int | None],
) -> None:
    changes: list[tuple[bool, bool]] = []
    memory = BodyMemory(100, lambda: changes.append((memory.uploads_wait, memory.requests_wait)))
    held: list[int] = []
    for size in sizes:
        if size is not None:
            memory.hold(size)
            held.append(size)
        elif held:
            memory.release(held.pop())
        assert memory.held == sum(held)
        if memory.held >= 100:
            assert memory.requests_wait
        if memory.held >= 87:
            assert memory.uploads_wait
        if memory.held < 75:
            assert not memory.uploads_wait
        assert memory.uploads_wait or not memory.requests_wait
    assert all(change != following for change, following in itertools.pairwise(changes))


async def test_sixty_stalled_uploads_hold_no_more_than_the_limit(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_buffered=LIMIT) as stage:
        for _ in range(60):
            await upload_part(stage, 2_900_000)
        await until(lambda: len(stage.relay.connections) == 60 and stage.relay.bodies.uploads_wait)
        await until(lambda: not any(connection._reading for connection in stage.relay.connections))
        assert LIMIT * 7 // 8 <= stage.relay.bodies.held <= LIMIT + READ
        assert stage.requests == []


async def test_while_uploads_wait_a_request_that_arrives_at_once_is_served(tmp_path: Path) -> None:
    async with full_stage(tmp_path) as (stage, _):
        assert (await stage.ask(post(UNARY))).endswith(b"ok")


async def test_at_the_limit_new_requests_wait_until_memory_is_free(tmp_path: Path) -> None:
    async with full_stage(tmp_path) as (stage, _):
        stage.relay.bodies.hold(LIMIT)
        assert stage.relay.bodies.requests_wait
        client = await stage.client(post(UNARY))
        await asyncio.sleep(0.05)  # it is not read
        assert stage.requests == []
        reject_stalled(stage, STALLED_UPLOAD_SECONDS + 1)
        assert stage.requests == []
        stage.relay.bodies.release(LIMIT)
        assert (await client.rest()).endswith(b"ok")


async def test_the_upload_that_has_stalled_the_longest_gives_way_with_a_counted_503(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_buffered=LIMIT) as stage:
        oldest = await upload_part(stage, 2_500_000)
        await until(lambda: stage.relay.bodies.held >= 2_400_000)
        reject_stalled(stage, 0)
        await upload_part(stage, 2_500_000)
        await upload_part(stage, 2_500_000)
        await until(lambda: stage.relay.bodies.uploads_wait)
        reject_stalled(stage, STALLED_UPLOAD_SECONDS - 1)
        assert stage.records == []
        reject_stalled(stage, STALLED_UPLOAD_SECONDS + 1)
        assert not stage.relay.bodies.uploads_wait
        response = await oldest.rest()
        assert response.startswith(b"HTTP/1.1 503 ")
        assert error_in(response)["code"] == "upload_stalled"
        record = await stage.record()
        assert (record.outcome, record.status, record.refused) == (Outcome.REJECTED, 503, "upload_stalled")


async def test_an_upload_that_waits_for_memory_goes_on_when_it_is_free(tmp_path: Path) -> None:
    async with full_stage(tmp_path) as (stage, _):
        response = asyncio.ensure_future(stage.ask(UPLOAD))
        await until(lambda: len(stage.relay.connections) == 4)
        while not response.done():
            reject_stalled(stage, STALLED_UPLOAD_SECONDS + 1)
            await asyncio.sleep(0.01)  # the relay runs on the same loop
        assert response.result().endswith(b"ok")
        assert 1 <= sum(record.status == 503 for record in stage.records) <= 3


async def test_no_upload_gives_way_while_memory_is_free(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_buffered=LIMIT) as stage:
        client = await upload_part(stage, 1_000_000)
        await until(lambda: stage.relay.bodies.held > 900_000)
        reject_stalled(stage, 0)
        reject_stalled(stage, 10 * STALLED_UPLOAD_SECONDS)
        await client.send(UPLOAD[1_000_000:])
        assert (await client.rest()).endswith(b"ok")


async def test_a_body_is_held_until_the_engine_has_read_it_and_gives_way_if_it_does_not(tmp_path: Path) -> None:
    async def reads_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        writers.append(writer)

    writers: list[asyncio.StreamWriter] = []
    large = post(b'{"prompt":"%s"}' % (b"x" * 6_000_000), path="/v1/completions")
    async with behind(tmp_path, reads_nothing, max_buffered=LIMIT) as stage:
        client = await stage.client(large)
        await until(lambda: stage.relay.bodies.held > 6_000_000)
        await until(lambda: bool(stage.relay._open))
        (exchange,) = stage.relay._open
        await until(lambda: exchange._upstream is not None)
        reject_stalled(stage, 0)
        reject_stalled(stage, STALLED_UPLOAD_SECONDS + 1)
        assert error_in(await client.rest())["code"] == "upload_stalled"
        await until(lambda: stage.relay.bodies.held == 0)  # the prompt may still be hashed
        for writer in writers:
            writer.transport.abort()


async def test_a_body_of_single_bytes_takes_the_memory_of_its_bytes(tmp_path: Path) -> None:
    async with staged(tmp_path, ok, max_buffered=LIMIT) as stage:
        await stage.client(UPLOAD[:200])
        await until(lambda: stage.relay.bodies.held > 0)
        held = stage.relay.bodies.held
        (connection,) = stage.relay.connections
        for _ in range(100):
            connection.data_received(b"x")
        assert stage.relay.bodies.held - held == 100
        assert connection._exchange is not None
        assert len(connection._exchange._body) == 2


async def test_after_all_requests_no_body_is_held(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        client = await stage.connect()
        for body in (UNARY, UNARY + b" " * 100_000, b"x" * 9_000_000, b""):
            await client.send(post(body, close=False))
            assert (await client.until(b"ok")).endswith(b"ok"), OK
        await client.send(post(UNARY, path="/sleep"))
        assert b" 403 " in await client.rest()
        await until(lambda: stage.relay.bodies.held == 0)  # the long prompt may still be hashed
