"""What each option of the sidecar adds to a request, in CPU time of relay and exporter: `make bench NAME=options`.

Both run in this process, with connections in memory. A request has a prompt of 1,900 bytes and asks for JSON; a stream
has 100 chunks, each in one read. Spans are made, but not sent.
"""

import argparse
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import uvloop

from exporters.configuration.otlp_endpoints import Collector, Semconv
from exporters.configuration.sidecar import LogContent, SidecarConfig
from exporters.processes.child import collect_garbage_rarely
from exporters.records.messages import Batch, Finished
from exporters.requestlog.writer import RequestLog
from exporters.sidecar.ingest.receiver import RecordReceiver
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.sidecar.tracing.request_spans import SpanMaker, resource
from tests.fuzz.wire import CONFIG, SLO_FILE, Bench, feed, settle
from tests.support.scripted_relay import DONE, END, ROLE, STREAM_HEAD, USAGE, chunk, content

REQUESTS = 100
CHUNKS = 100
PROMPT = "Summarise the following text in a few words. " * 42
ANSWER = b'{"id":"chatcmpl-1","model":"m","choices":[{"message":{"content":"{}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":475,"completion_tokens":4}}'  # noqa: E501

OPTIONS: dict[str, SidecarConfig] = {
    "none": CONFIG,
    "--log-content off": replace(CONFIG, log_content=LogContent.OFF),
    "--log-prefix-hashes": replace(CONFIG, log_prefix_hashes=True),
    "--log-content full": replace(CONFIG, log_content=LogContent.FULL),
    "--check-structured-output": replace(CONFIG, check_structured_output=True),
    "--otlp": replace(CONFIG, otlp=Collector(url="http://collector:4318/v1/traces")),
}


def request(*, stream: bool) -> bytes:
    body = msgspec.json.encode(
        {
            "model": "m",
            "max_tokens": CHUNKS,
            "stream": stream,
            "response_format": {"type": "json_object"},
            "messages": [{"role": "user", "content": PROMPT}],
        }
    )
    return b"POST /v1/chat/completions HTTP/1.1\r\nhost: engine\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def response(*, stream: bool) -> list[bytes]:
    """The reads of the response."""
    if not stream:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(ANSWER)
        return [head + ANSWER]
    tokens = [chunk(content(f"{number},")) for number in range(CHUNKS - 1)]
    return [STREAM_HEAD + chunk(ROLE), *tokens, chunk(content("1]", "stop")), chunk(USAGE) + chunk(DONE) + END]


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A relay and the exporter's part for its records."""

    relay: Bench
    receiver: RecordReceiver

    async def microseconds(self, *, stream: bool) -> float:
        """CPU time of a request."""
        sent, reads = request(stream=stream), response(stream=stream)
        client, outbox = self.relay.client, self.relay.relay._sender.outbox
        began = time.process_time()
        for _ in range(REQUESTS):
            feed(client, sent)
            await settle()
            engine = self.relay.pool.wires[-1]
            for read in reads:
                feed(engine, read)
            await settle()
            client.sent.clear()
            engine.sent.clear()
        for batch in outbox.batches():
            wire = msgspec.msgpack.encode(batch)
            outbox.acknowledged(self.receiver.receive("run", msgspec.msgpack.decode(wire, type=Batch)))
        return (time.process_time() - began) / REQUESTS * 1e6


def sidecar(config: SidecarConfig, log: Path) -> Sidecar:
    metrics = RequestMetrics(SLO_FILE)
    metrics.add_model("m")
    maker = SpanMaker(Semconv.V1_44, resource("1"), "1", ("engine", 1))

    def make_spans(record: Finished, revision: str | None) -> bool:
        return bool(maker.spans(record, revision))

    export_span = None if config.otlp is None else make_spans
    return Sidecar(Bench(config), RecordReceiver(metrics, RequestLog(log), lambda: None, export_span))


async def measure(rounds: int, folder: Path) -> None:
    collect_garbage_rarely()
    sidecars = {name: sidecar(config, folder / f"{n}.jsonl") for n, (name, config) in enumerate(OPTIONS.items())}
    for stream in (False, True):
        times: dict[str, list[float]] = {name: [] for name in OPTIONS}
        for _ in range(rounds + 1):
            for name, each in sidecars.items():
                times[name].append(await each.microseconds(stream=stream))
        print(f"{f'stream of {CHUNKS} chunks' if stream else 'unary'}: {statistics.median(times['none'][1:]):.0f} us")
        for name in list(OPTIONS)[1:]:
            added = sorted(with_ - without for with_, without in zip(times[name], times["none"], strict=True))[1:]
            quarter = len(added) // 4
            middle = f"{added[quarter]:.0f} to {added[-1 - quarter]:.0f}"
            print(f"  {name:26} {statistics.median(added):+6.0f} us, middle half {middle}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.options", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=25, help="number of rounds (default 25)")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        uvloop.run(measure(words.rounds, Path(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
