"""Clients that send another name with each request: nothing in the relay or the exporter grows."""

import asyncio
import gc
import time
from collections import deque
from collections.abc import Callable, Sized
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import cast

import pytest

from exporters.configuration.sidecar import SidecarConfig
from exporters.http import parser
from exporters.records.messages import Hello, Snapshot
from exporters.relay.bodies import request_body
from exporters.relay.connections.exchange import Exchange
from exporters.relay.dialects import chat
from exporters.relay.metering.measurement import Measurement
from exporters.relay.record_sender import Sender
from exporters.relay.relay import Relay
from exporters.sidecar.ingest import prompt_repeats
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import Outcome
from tests.support.exporter_listener import no_exporter
from tests.support.openmetrics import whole
from tests.support.sample_records import SLOS

SIMULTANEOUS = 500


def size(*roots: object) -> int:
    """The sum of the lengths of all containers and texts that are reachable from these objects."""
    seen: set[int] = set()
    total, stack = 0, list(roots)
    while stack:
        value = stack.pop()
        if id(value) in seen or isinstance(value, ModuleType | type | FunctionType | asyncio.AbstractEventLoop):
            continue
        seen.add(id(value))
        if isinstance(value, dict | set | list | tuple | deque | str | bytes | bytearray):
            total += len(cast("Sized", value))
        stack += gc.get_referents(value)
    return total


@dataclass(eq=False)
class OpenRequest:
    """The part of an exchange that the relay's timer reads."""

    measurement: Measurement
    awaits_engine: bool = True


class Traffic:
    """A relay without sockets and an exporter that counts its records."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        config = SidecarConfig(upstream="http://127.0.0.1:1", slos="", listen="", metrics="")
        self.sender = Sender(no_exporter, Hello("relay-0", "run"), loop)
        self.snapshots: list[Snapshot] = []
        self.relay = Relay(config, SLOS, self.sender, loop, salt=b"salt", new_request_id=lambda: "id")
        self.metrics = RequestMetrics(SLOS)
        self.receiver = RecordReceiver(self.metrics, None, lambda: None)
        self.receiver.hello(Hello("relay-0", "run"))

    def requests(self, names: list[str]) -> None:
        """Simultaneous requests, each with one of these names as model, tenant, class, request id and path."""
        exchanges = [self._begin(name) for name in names]
        for exchange in exchanges[:10]:
            exchange.measurement.check_deadline(exchange.measurement.zero + 1e6)  # early verdicts
        self.relay._send_records()
        self.relay._send_snapshot()
        for exchange in exchanges:
            record = exchange.measurement.close(Outcome.OK, 200, exchange.measurement.zero + 1, event_stream=True)
            self.relay.ended(exchange, record)
        for batch in self.sender.outbox.batches():
            self.sender.outbox.acknowledged(self.receiver.receive("run", batch))
        self.receiver.snapshot("relay-0", self.snapshots.pop())

    def _begin(self, name: str) -> Exchange:
        head = parser.parse_request(
            f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nx-tenant: {name}\r\nx-request-class: {name}\r\n"
            f"x-request-id: {name}\r\nuser-agent: {name}\r\n\r\n".encode()
        )
        measurement = Measurement(self.relay.measuring, head, f"/{name}", chat, time.monotonic())
        body = request_body.parse(
            b'{"model": "%s", "stream": true, "max_tokens": 5}' % name.encode(), b"salt", self.relay.hashing
        )
        measurement.start(body, 0, measurement.zero)
        exchange = cast("Exchange", OpenRequest(measurement))
        self.relay.opened(exchange)
        return exchange

    def size(self) -> int:
        list(whole(self.metrics.collect(0.0)))
        return size(self.relay, self.sender, self.receiver, self.metrics)


@pytest.mark.parametrize(
    "names", [pytest.param(10_000, marks=pytest.mark.slow), pytest.param(100_000, marks=pytest.mark.long)]
)
async def test_many_names_grow_nothing(monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    monkeypatch.setattr(prompt_repeats, "MAX_PROMPTS", SIMULTANEOUS)  # a salted hash of model and prompt
    traffic = Traffic()
    add: Callable[[Snapshot], None] = traffic.snapshots.append
    monkeypatch.setattr(traffic.sender, "snapshot", add)
    sizes = []
    for first in range(0, names, SIMULTANEOUS):
        traffic.requests([f"name-{number:06}" for number in range(first, first + SIMULTANEOUS)])
        if first in {SIMULTANEOUS, names - SIMULTANEOUS}:
            sizes.append(traffic.size())
    assert (
        len(traffic.metrics.snapshots()["relay-0"].open) == SIMULTANEOUS
    )  # of the requests that are open now, which the next snapshot replaces
    assert sizes[0] == sizes[1]
