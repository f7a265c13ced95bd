"""Names of a megabyte: records, log lines, spans, error bodies and log messages have their first 256 bytes."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.resources import Resource

from exporters.configuration.otlp_endpoints import Collector, Semconv
from exporters.http.parser import MAX_PATH
from exporters.processes.child import TaskErrors
from exporters.records.messages import Snapshot
from exporters.requestlog.writer import encode_line
from exporters.sidecar.tracing.request_spans import SpanMaker
from exporters.text.names import MAX_BYTES, cut
from tests.support.scripted_relay import CHAT, DONE, END, SLOS, STREAM_HEAD, Received, chunk, error_in, post, staged
from tests.support.waiting import until

MEGABYTE = 1_000_000
ROOM = 8 * MEGABYTE
WITH_TENANTS = f"{SLOS}tenants: {{header: x-tenant, allow: [team-a]}}\n"
NAMES = {name: f"{name}-{'é' * (MEGABYTE // 2)}" for name in ("model", "id", "reason", "fingerprint", "path", "agent")}


def strings(value: Any) -> list[str]:
    """All strings of a record or of parsed JSON, keys included."""
    match msgspec.to_builtins(value):
        case str(text):
            return [text]
        case dict(fields):
            return [text for pair in fields.items() for each in pair for text in strings(each)]
        case list(items) | tuple(items):
            return [text for item in items for text in strings(item)]
        case _:
            return []


def assert_cut(value: Any) -> None:
    assert max(len(text.encode()) for text in strings(value)) <= MAX_BYTES


async def stream_with_long_names(received: Received) -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": NAMES["reason"]}
    event = {"choices": [choice], "system_fingerprint": NAMES["fingerprint"]}
    await received.send(STREAM_HEAD, chunk(b"data: %s\n\n" % json.dumps(event).encode()), chunk(DONE), END)


HEADERS = "".join(
    f"{name}: {value.encode().decode('latin-1')}\r\n"
    for name, value in {
        "x-request-id": NAMES["id"],
        "x-tenant": f"team-a{NAMES['id']}",
        "x-request-class": f"long{NAMES['id']}",
        "user-agent": NAMES["agent"],
    }.items()
)


async def test_a_record_its_line_and_its_span_have_cut_names_and_classes_match_by_the_whole_name(
    tmp_path: Path,
) -> None:
    body = msgspec.json.encode({**json.loads(CHAT), "model": NAMES["model"]})
    request = post(body).replace(b"\r\n\r\n", b"\r\n" + HEADERS.encode("latin-1") + b"\r\n", 1)
    async with staged(
        tmp_path,
        stream_with_long_names,
        slo_file=WITH_TENANTS,
        head_limit=ROOM,
        max_head=ROOM,
        otlp=Collector(url="http://c"),
    ) as stage:
        response = await stage.ask(request)
        record = await stage.record()
        assert NAMES["id"].encode() in stage.requests[0].head
        assert stage.requests[0].body.count(NAMES["model"].encode()) == 1
    assert b"finish_reason" in response
    assert len(response) > 2 * MEGABYTE
    assert_cut(record)
    assert (record.model, record.finish_reason) == (cut(NAMES["model"]), cut(NAMES["reason"]))
    assert record.request_id == "relay-1"  # the client's is too long
    assert record.system_fingerprint is not None
    assert NAMES["fingerprint"].startswith(record.system_fingerprint)
    assert (record.request_class, record.tenant) == ("short", "other")
    line = encode_line(record, "relay-0-1:1", "revision")
    assert_cut(msgspec.json.decode(line))
    spans = SpanMaker(Semconv.V1_44, Resource({}), "1", ("engine", 1)).spans(record)
    assert len(spans[0].name.encode()) <= len("chat ") + MAX_BYTES
    assert_cut([dict(span.attributes or {}) for span in spans])


async def test_early_verdicts_and_snapshots_have_cut_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshots: list[Snapshot] = []
    body = msgspec.json.encode({**json.loads(CHAT), "model": NAMES["model"]})
    async with staged(tmp_path, Received.gone) as stage:
        monkeypatch.setattr(stage.sender, "snapshot", snapshots.append)
        client = await stage.client(post(body))
        await stage.reached()
        await until(lambda: any(snapshot.open for snapshot in snapshots))
        (exchange,) = stage.relay._open
        exchange.measurement.check_deadline(exchange.measurement.zero + 1000)
        await until(lambda: stage.judged)
        client.leave()
        await stage.record()
    (row,) = next(snapshot.open for snapshot in snapshots if snapshot.open)
    assert row.model == stage.judged[0].model == cut(NAMES["model"])


async def test_the_error_body_and_the_record_of_a_long_path_are_cut(tmp_path: Path) -> None:
    async with staged(tmp_path, None, max_head=ROOM) as stage:
        method = "M" * MEGABYTE
        path = f"/{'%C3%A9' * (MAX_PATH // 6 - 1)}"
        response = await stage.ask(f"{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
        record = await stage.record()
    assert_cut(record)
    shown = "/" + "é" * 127
    assert record.route == shown
    message = f"vllm-slo: {shown} is not an inference path; the operator can allow it with --allow-path"
    assert error_in(response)["message"] == message


async def test_log_messages_about_errors_have_no_text_of_a_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with staged(tmp_path, None) as stage:
        try:
            float(NAMES["model"])
        except ValueError as error:
            stage.relay.metering_failed(error)
            TaskErrors().add("a task", error)
    messages = [message.rpartition(":")[0] for message in caplog.messages]
    assert messages == [
        f"metering failed; the request is forwarded unmetered: ValueError at {__file__}",
        f"a task failed and continues: ValueError at {__file__}",
    ]
