"""Request bodies, as the relay understands them."""

from pathlib import Path

import pytest

from exporters.records import frame
from exporters.signals import Outcome
from tests.support.scripted_relay import Received, post, staged


async def empty_object(received: Received) -> None:
    await received.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"m","max_tokens":9223372036854775808}', id="max_tokens"),
        pytest.param(b'{"model":"m","max_completion_tokens":1000000000000000000000000}', id="max_completion_tokens"),
        pytest.param(b'{"model":"m","prompt":[1000000000000000000000000]}', id="a prompt token"),
    ],
)
async def test_a_number_beyond_all_bounds_is_forwarded_and_its_record_can_be_told(body: bytes, tmp_path: Path) -> None:
    async with staged(tmp_path, empty_object) as stage:
        assert (await stage.ask(post(body))).startswith(b"HTTP/1.1 200 OK\r\n")
        assert stage.requests[0].body == body
        record = await stage.record()
        assert (record.outcome, record.unparsed) == (Outcome.OK, "not_understood")
        assert all(frame(batch) for batch in stage.sender.outbox.batches())
