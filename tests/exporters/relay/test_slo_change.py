"""A request is judged by the SLO file that it arrived under, and its record needs no SLO file."""

import asyncio
from pathlib import Path

from exporters.configuration.otlp_endpoints import Receiver
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.slo_file import Measure
from tests.support.scripted_relay import (
    CHAT,
    DONE,
    END,
    SLOS,
    STREAM_HEAD,
    Received,
    chunk,
    content,
    post,
    staged,
    whole_stream,
)

QUEUE = "  - {name: queue, classes: [short], signal: queue, threshold: 1s, objective: 95%}\n"
OTHER = """
version: 1
period: 12h
scrape_interval: 1s
tenants: {allow: [team-a]}
classes: [{name: all}]
slos: [{name: e2e, classes: [all], signal: e2e, threshold: 1h, objective: 95%}]
"""


async def test_a_record_has_the_thresholds_of_the_times_in_the_engines_span(tmp_path: Path) -> None:
    spans = (Receiver(True, "127.0.0.1", 1),)
    async with staged(tmp_path, whole_stream, slo_file=SLOS + QUEUE, engine_spans=spans) as stage:
        await stage.ask(post(CHAT))
        assert (await stage.record()).engine_slos == {"queue": (Measure.QUEUE, 1.0)}


async def test_an_open_request_keeps_its_slo_file_and_the_next_one_gets_the_new_file(tmp_path: Path) -> None:
    may_finish = asyncio.Event()

    async def script(received: Received) -> None:
        await received.send(STREAM_HEAD, chunk(content("a")))
        await may_finish.wait()
        await received.send(chunk(content("b")), chunk(DONE), END)

    async with staged(tmp_path, script) as stage:
        client = await stage.client(post(CHAT, headers="x-tenant: team-a\r\n"))
        await client.until(b'"a"')
        stage.relay.use(slo_file.loads(OTHER))
        last = await stage.client(post(CHAT, headers="x-tenant: team-a\r\n"))
        await last.until(b'"a"')
        may_finish.set()
        await asyncio.gather(client.rest(), last.rest())
        records = {record.request_class: record for record in (await stage.record(1), await stage.record(2))}
    assert records["short"].slo == {"ttft": Verdict.GOOD, "availability": Verdict.GOOD}
    assert records["all"].slo == {"e2e": Verdict.GOOD}
    assert (records["short"].tenant, records["all"].tenant) == ("other", "team-a")
