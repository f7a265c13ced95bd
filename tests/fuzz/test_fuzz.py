"""A few seconds of `make fuzz` with fixed cases, and tests that it finds injected bugs."""

from typing import Any

import pytest

from exporters.relay.connections import exchange, message_heads
from exporters.relay.connections.exchange_state import ResponseState
from exporters.relay.metering import meter
from tests.fuzz.run import TARGETS, FaultFoundError, Target, check_case

CASES = 60
EACH = pytest.mark.parametrize("target", [pytest.param(target, id=name) for name, target in TARGETS.items()])


@EACH
@pytest.mark.slow
async def test_mutated_input_finds_no_bug_and_much_of_it_passes_the_parsers(target: Target) -> None:
    deep = [await check_case(target, 1, number) for number in range(1, CASES + 1)]
    assert sum(deep) > CASES / 5


async def _first_fault(target: str) -> str:
    """The message of the first case that finds a bug."""
    for number in range(1, 2000):
        try:
            await check_case(TARGETS[target], 1, number)
        except FaultFoundError as fault:
            return str(fault)
    return "none"


async def test_a_relay_that_sends_a_request_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    head = message_heads.request_head
    monkeypatch.setattr(message_heads, "request_head", lambda *args, **options: head(*args, **options) * 2)
    message = await _first_fault("requests")
    assert "AssertionError" in message or "RemoteProtocolError" in message
    assert "again: python -m tests.fuzz.run requests --seed 1 --case " in message


async def test_a_relay_that_fabricates_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = exchange.Exchange.on_lost

    def on_lost(self: exchange.Exchange, at: float) -> None:
        if self._state.response is ResponseState.STARTED:
            self.on_read(None, [], at, ended=True)
        else:
            lost(self, at)

    monkeypatch.setattr(exchange.Exchange, "on_lost", on_lost)
    assert "a fabricated end" in await _first_fault("answers")


async def test_a_meter_that_loses_a_byte_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = meter.Meter.stream

    def stream(self: meter.Meter, data: bytes, at: float) -> Any:
        return whole(self, data, at).replace(b"\r\n\n", b"\n\n")

    monkeypatch.setattr(meter.Meter, "stream", stream)
    assert "AssertionError: bytes" in await _first_fault("streams")
