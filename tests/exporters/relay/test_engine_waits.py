"""What a relay tells the exporter of the engine's work: requests that wait for it, output, and failures."""

import time

from exporters.records.messages import Waits
from tests.fuzz.wire import Bench, feed, settle

BODY = b'{"model":"m","prompt":"%s","stream":true}' % (b"x" * 400)
REQUEST = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices":[{"text":"a"}]}\n\n'
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)
FAILURE = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\n\r\n"


def seen(bench: Bench) -> Waits:
    return bench.relay.waits(time.monotonic())


async def test_a_request_is_awaited_from_its_last_byte_until_its_response_ends() -> None:
    bench = Bench()
    feed(bench.client, REQUEST[:-1])
    await settle()
    assert seen(bench).awaited == 0

    feed(bench.client, REQUEST[-1:])
    await settle()
    waiting = seen(bench)
    assert (waiting.awaited, waiting.models, waiting.output_at) == (1, ("m",), None)
    assert waiting.longest_prompt > 50

    feed(bench.pool.wires[-1], HEAD + CHUNK)
    await settle()
    streaming = seen(bench)
    assert (streaming.awaited, streaming.longest_prompt, streaming.output_models) == (1, 0.0, ("m",))
    assert streaming.output_at is not None

    feed(bench.pool.wires[-1], b"0\r\n\r\n")
    await settle()
    assert seen(bench).awaited == 0


async def test_a_client_that_does_not_read_waits_for_nothing() -> None:
    bench = Bench()
    feed(bench.client, REQUEST)
    await settle()
    feed(bench.pool.wires[-1], HEAD + CHUNK)
    await settle()

    bench.client.protocol.pause_writing()

    assert seen(bench).awaited == 0


async def test_failures_of_the_engine_are_counted() -> None:
    bench = Bench()
    feed(bench.client, REQUEST)
    await settle()
    feed(bench.pool.wires[-1], FAILURE)
    await settle()
    after = seen(bench)
    assert (after.failed, after.output_at) == (1, None)
