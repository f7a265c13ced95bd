"""Streams whose chunks match take the fast path as the protocol of the engine's connection, plain and over TLS."""

import asyncio
import contextlib
from collections import Counter
from pathlib import Path

import pytest

from exporters.relay.connections.upstream import UpstreamConnection
from exporters.relay.metering.fast_path import FastPath
from exporters.vocabulary.signals import Outcome
from tests.exporters.configuration.certificates import needs_openssl
from tests.exporters.relay.engines import behind
from tests.support.scripted_relay import (
    CHAT_WITH_USAGE,
    DONE,
    END,
    ROLE,
    STREAM_HEAD,
    USAGE,
    Stage,
    body_of,
    chunk,
    content,
    post,
)

TOKENS = [content(f"token {number}") for number in range(1999)]
LAST = [content("end", "length"), USAGE, DONE]
EVENTS = [ROLE, *TOKENS, *LAST]


class Engine:
    """Sends a token, and all others at once when they `may_follow`, so that reads end inside chunks."""

    def __init__(self) -> None:
        self.may_follow = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await reader.readuntil(CHAT_WITH_USAGE)
            writer.write(STREAM_HEAD + chunk(ROLE) + chunk(TOKENS[0]))
            await self.may_follow.wait()
            writer.write(b"".join(map(chunk, [*TOKENS[1:], *LAST])) + END)
            await writer.drain()
        writer.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts the reads on the fast path and in the parsers."""
    counts: Counter[str] = Counter()
    for kind, owner, name in (("fast", FastPath, "data_received"), ("slow", UpstreamConnection, "_parse")):
        original = getattr(owner, name)

        def counted(*arguments: object, _kind: str = kind, _original: object = original) -> None:
            counts[_kind] += 1
            _original(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(owner, name, counted)
    return counts


async def response_of(stage: Stage, engine: Engine) -> bytes:
    client = await stage.client(post(CHAT_WITH_USAGE))
    begun = await client.until(b"token 0")
    engine.may_follow.set()
    return begun + await client.rest()


@pytest.mark.parametrize("tls", [pytest.param(True, id="TLS", marks=needs_openssl), pytest.param(False, id="plain")])
async def test_a_backlog_takes_the_fast_path_and_arrives_unchanged(
    tls: bool, tmp_path: Path, reads: Counter[str]
) -> None:
    engine = Engine()
    async with behind(tmp_path, engine.serve, tls=tls) as stage:
        response = await response_of(stage, engine)
        record = await stage.record()
    assert body_of(response) == b"".join(EVENTS)
    assert (record.outcome, record.completion_tokens, sum(record.gap_counts.values())) == (Outcome.OK, 3, len(TOKENS))
    # The head, and the end of the stream, which may arrive in two reads.
    assert reads["slow"] <= 4
    assert reads["fast"] >= 2


async def test_an_error_while_counting_leaves_the_fast_path_and_the_stream_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError

    engine = Engine()
    async with behind(tmp_path, engine.serve, tls=False) as stage:
        monkeypatch.setattr("exporters.relay.metering.meter.Meter.count_chunk", fail)
        response = await response_of(stage, engine)
        record = await stage.record()
    assert body_of(response) == b"".join(EVENTS)
    assert (record.unmetered, record.outcome) == ("RuntimeError", Outcome.OK)
