"""The CPU time for which large and hostile messages block the event loop of a relay: `make bench NAME=parsers`."""

import asyncio
import hashlib
import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import uvloop

from exporters.configuration.sidecar import LogContent, SidecarConfig
from exporters.http.parser import ChunkedBody
from exporters.processes.child import collect_garbage_rarely
from exporters.relay.connections.exchange import PARSED_LIMIT, Exchange
from tests.fuzz.wire import CONFIG
from tests.support.callback_costs import costs_of
from tests.support.event_streams import stream_meter
from tests.support.hostile_inputs import INPUTS, Input
from tests.support.scripted_relay import content, ok, post, staged

CHAT, COMPLETIONS, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
EMBEDDINGS, RERANK = "/v1/embeddings", "/v1/rerank"
REPEATS = 20
READ = 64 * 1024
MIB = 1024 * 1024
LIMITS = {MIB: 5.0, PARSED_LIMIT - MIB // 8: 30.0}
"""Milliseconds that one callback of the event loop may take, by the size of the input in bytes."""
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


def list_of(item: object, size: int) -> list[object]:
    return [item] * (size // (len(compact(item)) + 1))


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def requests(size: int) -> dict[str, tuple[str, dict[str, object]]]:
    """Paths and bodies of about `size` bytes."""
    text, message = {"type": "text", "text": "a"}, {"role": "user", "content": "a"}
    image = {"type": "image_url", "image_url": {"url": filled("QUJD", size)}}
    return {
        "text": (CHAT, {"messages": [{"content": filled(TEXT, size)}]}),
        "100 messages": (CHAT, {"messages": [{"content": filled(TEXT, size // 100)}] * 100}),
        "code with escapes": (CHAT, {"messages": [{"content": filled(CODE, size * 32 // 40)}]}),
        "an image": (CHAT, {"messages": [{"content": [image]}]}),
        "short messages": (CHAT, {"messages": list_of(message, size)}),
        "short parts": (CHAT, {"messages": [{"content": list_of(text, size)}]}),
        "empty objects": (CHAT, {"messages": list_of({}, size)}),
        "short prompts": (COMPLETIONS, {"prompt": list_of("abc", size)}),
        "empty prompts": (COMPLETIONS, {"prompt": list_of("", size)}),
        "token ids": (COMPLETIONS, {"prompt": list_of(12345, size)}),
        "prompts of two token ids": (COMPLETIONS, {"prompt": list_of([1, 2], size)}),
        "short items": (RESPONSES, {"input": list_of(message, size)}),
        "short texts of a message": (RESPONSES, {"input": [{"content": list_of("a", size)}]}),
        "short messages of Anthropic's API": (MESSAGES, {"messages": list_of(message, size)}),
        "short blocks": (MESSAGES, {"messages": [{"content": list_of(text, size)}]}),
        "texts of 100 characters": (EMBEDDINGS, {"input": list_of("a" * 100, size)}),
        "short texts": (EMBEDDINGS, {"input": list_of("abc", size)}),
        "short documents": (RERANK, {"documents": list_of({"content": "a"}, size)}),
    }


async def set_up(size: int) -> None:
    """Print the CPU time from the end of a request's body until it is sent to the engine, in a relay."""
    times: list[float] = []
    body_complete = Exchange.body_complete

    def timed(exchange: Exchange, at: float) -> None:
        began = time.thread_time()
        body_complete(exchange, at)
        times.append(time.thread_time() - began)

    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Exchange, "body_complete", timed)
        async with staged(Path(directory), ok) as stage:
            for name, (path, fields) in requests(size).items():
                body = compact({"model": "m", "stream": True, **fields})
                times.clear()
                for _ in range(REPEATS):
                    await stage.ask(post(body, path=path))
                print(f"body of {size / MIB:g} MiB, {path}, {name}: {min(times) * 1000:.2f} ms")


class _NoHash:
    """Replaces SHA-256, whose time does not block the event loop: other threads run meanwhile."""

    def __init__(self, *_: bytes) -> None: ...
    def update(self, _: bytes) -> None: ...

    def digest(self) -> bytes:
        return bytes(32)

    def hexdigest(self) -> str:
        return ""


def cpu_time(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return (time.thread_time() - began) * 1000


def longest(sent: Input, size: int, limit: float, config: SidecarConfig) -> tuple[float, float]:
    """The longest callback of the event loop, and the longest call in the thread; the least of several attempts.

    More attempts are made above the limit, because other processes share the caches of the CPU.
    """
    loop = thread = float("inf")
    for attempt in range(25):
        costs = asyncio.run(costs_of(sent, size, cpu_time, config))
        loop, thread = min(loop, max(costs.loop)), min(thread, max(costs.thread, default=0))
        if max(loop, thread) < (limit / 2 if attempt < 4 else limit):
            break
    return loop, thread


def hostile(size: int, limit: float, config: SidecarConfig) -> None:
    """Print the inputs of `size` bytes that block the event loop for more than half of the limit."""
    # A single read costs as much in a larger input.
    inputs = [sent for sent in INPUTS if size <= MIB or sent.most > MIB]
    results = [(*longest(sent, size, limit, config), sent.name) for sent in inputs]
    for loop, thread, name in sorted(results, reverse=True):
        if max(loop, thread) > limit / 2:
            print(f"  {name}: {loop:.2f} ms, in the thread {thread:.2f} ms")
    print(f"  the longest of {len(inputs)} inputs: {max(max(loop, thread) for loop, thread, _ in results):.2f} ms")


def main() -> None:
    collect_garbage_rarely()
    everything = replace(CONFIG, check_structured_output=True, log_content=LogContent.FULL, log_prefix_hashes=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashlib, "sha256", _NoHash)
        for size, limit in LIMITS.items():
            for name, config in (("", CONFIG), (" and all flags that parse more", everything)):
                print(f"hostile inputs of {size / MIB:g} MiB{name}; the limit is {limit:g} ms", flush=True)
                hostile(size, limit, config)
    for size in (1, 2, 4):
        print(f"event of {size} MiB in reads of 64 KiB: {blocked(partial(read_event, size * MIB)):.2f} ms")
    for size in (128, 256):
        chunks = b"2\r\nab\r\n" * (size * 1024 // 7)
        print(f"{size} KiB of chunks of two bytes: {blocked(partial(read_chunks, chunks)):.2f} ms")
    for size in (MIB, PARSED_LIMIT - MIB // 8):
        uvloop.run(set_up(size))


if __name__ == "__main__":
    main()
