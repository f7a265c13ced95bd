"""A few seconds of `make fuzz`, the same ones each time, and proof that it would find what it looks for."""

from collections.abc import Callable
from typing import Any

import pytest

from exporters.relay import exchange, message_heads, meter
from tests.fuzz.run import TARGETS, FaultFoundError, Target, checked, made

EACH = pytest.mark.parametrize("target", [pytest.param(target, id=name) for name, target in TARGETS.items()])


@EACH
async def test_spoiled_input_finds_no_fault_and_much_of_it_goes_deep(target: Target) -> None:
    deep = [await checked(target, 1, number) for number in range(1, 501)]
    assert sum(deep) > 100


@EACH
def test_a_seed_and_a_number_give_the_same_case_again(target: Target) -> None:
    assert made(target, 1, 7) == made(target, 1, 7)
    assert len({repr(made(target, 1, number)) for number in range(50)}) > 40


async def _found(target: str) -> str:
    """What the first case says that finds a fault."""
    for number in range(1, 2000):
        try:
            await checked(TARGETS[target], 1, number)
        except FaultFoundError as found:
            return str(found)
    return "none"


def _doubled(wrapped: Callable[..., bytes]) -> Callable[..., bytes]:
    return lambda *given, **named: wrapped(*given, **named) * 2


async def test_a_relay_that_sends_a_request_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_heads, "request_head", _doubled(message_heads.request_head))
    said = await _found("requests")
    assert "AssertionError" in said or "RemoteProtocolError" in said
    assert "again: python -m tests.fuzz.run requests --seed 1 --case " in said


async def test_a_relay_that_makes_up_an_end_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = exchange.Exchange.on_lost

    def on_lost(self: exchange.Exchange, at: float) -> None:
        if self._answer_begun:
            self.on_read(None, [], at, ended=True)
        else:
            lost(self, at)

    monkeypatch.setattr(exchange.Exchange, "on_lost", on_lost)
    assert "a made-up end" in await _found("answers")


async def test_a_meter_that_loses_a_byte_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = meter.Meter.stream

    def stream(self: meter.Meter, data: bytes, at: float) -> Any:
        return whole(self, data, at).replace(b"\r\n\n", b"\n\n")

    monkeypatch.setattr(meter.Meter, "stream", stream)
    assert "AssertionError: bytes" in await _found("streams")
