"""The counts are final when all relays have exited and no request waits for its span."""

import asyncio

import msgspec

from exporters.configuration.otlp_endpoints import receiver
from exporters.records.messages import Batch, Hello
from exporters.sidecar.exporter import Exporter, _count_last_requests
from tests.support.child_configs import exporter_config
from tests.support.openmetrics import whole
from tests.support.sample_records import finished


def requests(exporter: Exporter) -> float:
    (family,) = [each for each in whole(exporter.collect()) if each.name == "llm_requests"]
    return sum(sample.value for sample in family.samples)


async def test_a_request_that_waits_for_its_span_is_counted_before_the_counts_are_final() -> None:
    config = exporter_config(engine_spans=(receiver("http://127.0.0.1:4318"),))
    exporter = Exporter(msgspec.structs.replace(config, drain_began_at=1.0, relays_exited_at=8.5))
    exporter.record_receiver.hello(Hello("relay-0", "a"))
    record = finished(request_class="siso", tenant="other", span_id="0123456789abcdef")
    exporter.record_receiver.receive("a", Batch(1, [record]))
    task = asyncio.create_task(_count_last_requests(exporter))
    await asyncio.sleep(0)
    assert (exporter.drain.counts_are_final, requests(exporter)) == (False, 0)  # the last relay is still connected
    exporter.record_receiver.disconnected("relay-0")
    await task
    assert (exporter.drain.counts_are_final, requests(exporter)) == (True, 1)
    assert await exporter.drain.request() == 7.5
    assert exporter.otlp_receiver is not None
    await exporter.otlp_receiver.close()
