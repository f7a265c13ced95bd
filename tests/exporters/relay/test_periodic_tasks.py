"""Exceptions in the timer of a relay."""

from pathlib import Path

import pytest

from exporters.records.messages import Snapshot
from exporters.relay import relay
from exporters.relay.connections.client import ClientConnection
from exporters.relay.connections.exchange import Exchange
from exporters.relay.connections.upstream import UpstreamPool
from exporters.relay.metering.measurement import Measurement
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.vocabulary.signals import Outcome, Verdict
from tests.support.scripted_relay import CHAT, UNARY, Received, Stage, ok, post, staged
from tests.support.waiting import until


@pytest.fixture(autouse=True)
def quick_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer of a relay at fifty times its speed."""
    for name in ("FLUSH_SECONDS", "SNAPSHOT_SECONDS", "TIMEOUT_CHECK_SECONDS"):
        monkeypatch.setattr(relay, name, getattr(relay, name) / 50)


def fail(*_: object) -> None:
    raise LookupError("a fault")


@pytest.mark.parametrize(
    "owner, name",
    [
        (Relay, "_check_deadlines"),
        (Relay, "_queue_verdicts"),
        (Relay, "_cut_timed_out"),
        (Relay, "_collect_folds"),
        (ClientConnection, "check_timeouts"),
        (UpstreamPool, "close_idle"),
        (Sender, "flush"),
    ],
)
async def test_an_exception_in_a_part_of_the_timer_is_counted_and_the_timer_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, owner: type, name: str
) -> None:
    snapshots: list[Snapshot] = []

    def faulty(*_: object) -> None:
        fail()

    faulty.__name__ = name
    monkeypatch.setattr(owner, name, faulty)
    monkeypatch.setattr(Sender, "snapshot", lambda _sender, snapshot: snapshots.append(snapshot))
    async with staged(tmp_path, ok) as stage:
        await stage.connect()
        await until(lambda: snapshots and snapshots[-1].task_errors > 1)
        assert (await stage.ask(post(UNARY))).endswith(b"ok")
        assert stage.records[0].outcome is Outcome.OK
    (message,) = {message for message in caplog.messages if "failed" in message}
    assert message.startswith(f"{name.lstrip('_')} failed and continues: LookupError at {__file__}:")
    assert len(caplog.messages) == 1


async def test_a_request_whose_timeouts_cannot_be_checked_does_not_prevent_those_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, checked = Exchange.cut, Measurement.check_deadline
    faulty: list[Exchange] = []

    def cut_others(exchange: Exchange, outcome: Outcome, message: str, at: float) -> None:
        if exchange in faulty:
            fail()
        cut(exchange, outcome, message, at)

    def check_others(measurement: Measurement, now: float) -> None:
        if any(exchange.measurement is measurement for exchange in faulty):
            fail()
        checked(measurement, now)

    monkeypatch.setattr(Exchange, "cut", cut_others)
    monkeypatch.setattr(Measurement, "check_deadline", check_others)
    async with staged(tmp_path, Received.gone, cut_first_token=0.3) as stage:
        clients = [await stage.connect() for _ in range(4)]
        for number, client in enumerate(clients, 1):
            await client.send(post(CHAT))
            await stage.reached(number)
            if number == 1:
                faulty.extend(stage.relay._open)
        for client in clients[1:]:
            assert (await client.rest()).startswith(b"HTTP/1.1 504 ")
        assert stage.relay.task_errors.count > 0
        faulty.clear()
        assert (await clients[0].rest()).startswith(b"HTTP/1.1 504 ")


def stop_timer(stage: Stage) -> None:
    """So that only the test runs the tasks of the timer."""
    assert stage.relay._timer is not None
    stage.relay._timer.cancel()


async def test_verdicts_that_cannot_be_read_do_not_delay_those_of_other_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with staged(tmp_path, Received.gone) as stage:
        for number in (1, 2):
            await (await stage.connect()).send(post(CHAT))
            await stage.reached(number)
        stop_timer(stage)
        faulty, other = (exchange.measurement for exchange in stage.relay._open)
        early = Measurement.early_verdicts
        monkeypatch.setattr(Measurement, "early_verdicts", lambda each: fail() if each is faulty else early(each))
        for each in (faulty, other):
            each._on_verdicts([("ttft", Verdict.BAD)], 0.0)
        for _ in range(2):
            stage.relay._tick()
            stop_timer(stage)
        assert [judged.slo for judged in stage.judged] == [{"ttft": Verdict.BAD}]
