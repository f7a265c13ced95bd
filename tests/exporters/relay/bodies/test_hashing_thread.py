"""The thread that hashes long prompts: it delays neither the event loop nor a response, and its memory is bounded."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path

from exporters.configuration.sidecar import LogContent
from exporters.relay.bodies.hashing_thread import HashingThread
from exporters.relay.bodies.memory import BodyMemory
from exporters.relay.bodies.request_body import LONG_BODY
from tests.support.prompt_hashing import Hashing
from tests.support.scripted_relay import UNARY, Stage, ok, post, staged
from tests.support.waiting import until

LONG = UNARY.replace(b"twelve chars", b"x" * LONG_BODY)


@contextlib.asynccontextmanager
async def hashing_stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with staged(tmp_path, ok, log_content=LogContent.FULL, log_prefix_hashes=True) as stage:
        yield stage


async def test_the_record_of_a_request_that_ended_waits_for_its_hashes_and_other_records_do_not(tmp_path: Path) -> None:
    async with hashing_stage(tmp_path) as stage:
        hashing = stage.relay.hashing = Hashing()
        assert (await stage.ask(post(LONG))).endswith(b"ok")
        await stage.ask(post(UNARY))
        assert [record.prompt_estimate for record in stage.records] == [3]
        while hashing.tasks:
            stage.relay._queue_hashed()
            assert len(stage.records) == 1
            hashing.tasks.pop()()
        record = await stage.record(2)
        assert None not in (record.prompt_sha256, record.body_sha256, record.prefix_hashes)
        assert record.prompt is not None
        assert '"content":"xxx' in record.prompt


async def test_at_the_end_of_a_relay_all_records_have_their_hashes(tmp_path: Path) -> None:
    async with hashing_stage(tmp_path) as stage:
        await stage.ask(post(LONG))
        stage.relay.close()
        (record,) = stage.records
        assert None not in (record.prompt_sha256, record.body_sha256, record.prefix_hashes, record.prompt)


async def test_a_prompt_that_cannot_be_hashed_is_recorded_and_counted(tmp_path: Path) -> None:
    async with staged(tmp_path, ok) as stage:
        hashing = stage.relay.hashing = Hashing()
        await stage.ask(post(LONG))
        ((measurement, _),) = stage.relay._unhashed
        assert measurement._body is not None
        measurement._body._digests.set_exception(MemoryError())  # type: ignore[union-attr]  # a long body has a future
        record = await stage.record()
        assert (record.prompt_sha256, record.outcome.value) == (None, "ok")
        assert stage.relay.task_errors.count == 1
        hashing.tasks.clear()


async def test_a_body_counts_as_held_until_the_thread_has_read_it() -> None:
    memory, go_on = BodyMemory(10_000, lambda: None), threading.Event()
    with HashingThread(memory, asyncio.get_running_loop()) as hashing:
        waiting = hashing.submit(go_on.wait)
        future = hashing.submit(lambda body, number: len(body) + number, b"x" * 9000, 1)
        assert (memory.held, memory.uploads_wait) == (9000, True)
        go_on.set()
        await until(lambda: memory.held == 0)
        assert (waiting.result(), future.result(), memory.uploads_wait) == (True, 9001, False)
