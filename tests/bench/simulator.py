"""How fast the simulator is, in virtual and in real time: `make bench NAME=simulator`.

A day of 10 requests/s is replayed as `vllm-slo whatif` does it, on one core. Then a simulated engine serves as many
streams in real time as give 20,000 tokens/s; the lag is the time from the end of a step, by the step model, until all
its tokens are written. Client and engine share the machine. Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from compose.simulator.presets.preset import PRESETS
from compose.whatif.combinations import Base, combinations
from compose.whatif.recorded_traffic import RecordedRequest, RecordedTraffic
from compose.whatif.replay import replay
from exporters.vocabulary.verdicts import EndedRequest
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PRESET = "h200-llama-70b-fp8"
RATE, PROMPT, OUTPUT, DAY = 10, 300, 100, 86_400
MOST_SECONDS = 60.0
STREAMS, TOKENS = 256, 400
LAG = "vllm_slo_simulator_lag_seconds"
LIMIT = 0.005
"""Seconds of lag that 99 % of the steps must keep to."""


def day(caching: str, seconds: int) -> float:
    """CPU seconds of a day of requests, from a part of it."""
    rng, at = random.Random(0), 0.0  # noqa: S311 - repeatable, not secret
    requests: list[RecordedRequest] = []
    while at < seconds:
        requests.append(RecordedRequest(len(requests), at, PROMPT, OUTPUT, "chat"))
        at += rng.expovariate(RATE)
    (combination,) = combinations(Base(PRESETS[PRESET]), {"enable_prefix_caching": [caching]}, {})
    ended: list[int] = []

    def end(request: RecordedRequest, _: EndedRequest) -> None:
        ended.append(request.number)

    began = time.process_time()
    replay(combination, RecordedTraffic(requests, {}, {}, 0, 4.0, 60.0, 1), 60.0, end)
    assert len(ended) == len(requests)
    return (time.process_time() - began) * DAY / seconds


async def _stream(port: int, model: str) -> None:
    fields = {"model": model, "prompt": "a", "max_tokens": TOKENS, "ignore_eos": True, "stream": True}
    body = json.dumps(fields).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    end = b""
    while b"[DONE]" not in end:
        end = end[-8:] + await reader.read(65_536)
    writer.close()


def lag(streams: int) -> tuple[float, Mapping[float, float]]:
    """Tokens per second, and the number of steps by the upper bound of their lag."""
    port = free_port()
    flags = f"--max-num-seqs {streams} --max-num-batched-tokens 8192 --num-gpu-blocks 40000".split()
    command = [str(Path(sys.executable).parent / "vllm-slo"), "simulate", "--preset", "h200-qwen2.5-14b", *flags]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as engine:
        try:
            wait_until(lambda: _get(port, "/health") is not None)
            model = json.loads(_get(port, "/v1/models") or b"")["data"][0]["id"]
            began = time.monotonic()

            async def run() -> None:
                await asyncio.gather(*(_stream(port, model) for _ in range(streams)))

            asyncio.run(run())
            rate = streams * TOKENS / (time.monotonic() - began)
            families = text_string_to_metric_families((_get(port, "/metrics") or b"").decode())
            return rate, {
                float(sample.labels["le"]): sample.value
                for family in families
                for sample in family.samples
                if sample.name == f"{LAG}_bucket"
            }
        finally:
            engine.terminate()


def _get(port: int, path: str) -> bytes | None:
    try:
        with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
            content: bytes = response.read()
            return content
    except OSError:
        return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=DAY, help="length of the replayed part (default: the day)")
    parser.add_argument("--streams", type=int, default=STREAMS, help="open streams in real time (default: %(default)s)")
    words = parser.parse_args()
    costs = {caching: day(caching, words.seconds) for caching in ("false", "true")}
    for caching, cost in costs.items():
        print(f"a day of {RATE} requests/s, {PRESET}, enable_prefix_caching={caching}: {cost:.0f} s of one core")
    rate, steps = lag(words.streams)
    total = steps[float("inf")]
    shares = ", ".join(f"{count / total:.1%} by {1000 * bound:g} ms" for bound, count in steps.items() if count < total)
    print(f"{rate:,.0f} tokens/s in real time, {total:.0f} steps: {shares}")
    return int(costs["false"] > MOST_SECONDS or steps[LIMIT] < 0.99 * total)


if __name__ == "__main__":
    sys.exit(main())
