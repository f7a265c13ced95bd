"""The CPU time for which large messages block the event loop of a relay: `make bench-parsers`."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from exporters.relay import request_body
from exporters.relay.http1_parser import ChunkedBody
from tests.support.event_streams import stream_meter
from tests.support.scripted_relay import content

REPEATS = 20
READ = 64 * 1024
MIB = 1024 * 1024
TEXT = "The quick brown fox jumps over the lazy dog, and so on. "
CODE = 'if (a[i] == "b") {\n\treturn "c";\n}\n'


def blocked(work: Callable[[], object]) -> float:
    """The shortest CPU time of this thread in milliseconds."""
    times = []
    for _ in range(REPEATS):
        began = time.thread_time()
        work()
        times.append(time.thread_time() - began)
    return min(times) * 1000


def read_event(size: int) -> None:
    event, meter = content("x" * size), stream_meter(strips_usage=True)
    for start in range(0, len(event), READ):
        meter.stream(event[start : start + READ], 1.0)


def read_chunks(chunks: bytes) -> None:
    ChunkedBody().feed(chunks)


def filled(text: str, size: int) -> str:
    return text * (size // len(text))


def messages(size: int) -> dict[str, dict[str, object]]:
    """Bodies of about `size` bytes."""
    return {
        "one message": {"messages": [{"content": filled(TEXT, size)}]},
        "100 messages": {"messages": [{"content": filled(TEXT, size // 100)}] * 100},
        "code with escapes": {"messages": [{"content": filled(CODE, size * 33 // 40)}]},
        "an image": {"messages": [{"content": [{"type": "image_url", "image_url": {"url": filled("QUJD", size)}}]}]},
        "token ids": {"prompt": [12345] * (size // 7)},
    }


def bodies(size: int) -> Iterator[tuple[str, bytes]]:
    for name, fields in messages(size).items():
        yield name, json.dumps({"model": "m", "stream": True, **fields}).encode()


def main() -> None:
    for size in (1, 2, 4):
        print(f"event of {size} MiB in reads of 64 KiB: {blocked(partial(read_event, size * MIB)):.2f} ms")
    for size in (128, 256):
        chunks = b"2\r\nab\r\n" * (size * 1024 // 7)
        print(f"{size} KiB of chunks of two bytes: {blocked(partial(read_chunks, chunks)):.2f} ms")
    with ThreadPoolExecutor(1) as hashing:

        def receive(body: bytes) -> None:
            request = request_body.parse(body, b"salt", hashing)
            assert request is not None
            request_body.with_usage(body, has_options=request.has_options)

        for size in (1, 8):
            for name, body in bodies(size * MIB):
                print(f"body of {size} MiB, {name}: {blocked(partial(receive, body)):.2f} ms")


if __name__ == "__main__":
    main()
