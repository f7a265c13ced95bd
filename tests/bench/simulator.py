"""How fast the simulator is, in virtual and in real time: `make bench NAME=simulator`.

A day of 10 requests/s is replayed as `vllm-slo whatif` does it, on one core. Then a simulated engine (Llama 3.1 8B in
FP8 on an H200, with an FP8 KV cache) serves as many streams in real time as give about 20,000 tokens/s; the lag is the
time from the end of a step, by the step model, until all its tokens are written. Client and engine share the machine.
Exits with 1 if a limit is exceeded.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
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
from tests.exporters.analysis.roofline.model_configs import LLAMA_8B
from tests.support.ports import free_port
from tests.support.waiting import wait_until

PRESET = "h200-llama-70b-fp8"
RATE, PROMPT, OUTPUT, DAY = 10, 300, 100, 86_400
MOST_SECONDS = 60.0
STREAMS, TOKENS, SECONDS = 120, 1500, 3.0
"""The streams take about 9 s; between 3 and 6 s, each step has a token of each."""
ENGINE = "--gpu H200 --dtype fp8 --kv-cache-dtype fp8"
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


def lag(streams: int, folder: Path) -> tuple[float, Mapping[float, float]]:
    """Tokens per second while all streams are open, and the number of steps by the upper bound of their lag."""
    port = free_port()
    model_config = folder / "config.json"
    model_config.write_text(json.dumps(LLAMA_8B))
    flags = ["--model-config", str(model_config), "--max-num-seqs", str(streams), *ENGINE.split()]
    command = [str(Path(sys.executable).parent / "vllm-slo"), "simulate", *flags]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL) as engine:
        try:
            wait_until(lambda: _get(port, "/health") is not None)
            model = json.loads(_get(port, "/v1/models") or b"")["data"][0]["id"]

            async def run() -> list[tuple[float, Mapping[float, float]]]:
                every = [asyncio.ensure_future(_stream(port, model)) for _ in range(streams)]
                found = []
                for _ in range(2):
                    await asyncio.sleep(SECONDS)
                    found.append(await asyncio.to_thread(_read, port))
                await asyncio.gather(*every)
                return found

            (early, before), (late, after) = asyncio.run(run())
            return (late - early) / SECONDS, {bound: count - before[bound] for bound, count in after.items()}
        finally:
            engine.terminate()


def _read(port: int) -> tuple[float, Mapping[float, float]]:
    """The tokens so far, and the steps by the upper bound of their lag."""
    families = text_string_to_metric_families((_get(port, "/metrics") or b"").decode())
    samples = [sample for family in families for sample in family.samples]
    (tokens,) = (sample.value for sample in samples if sample.name == "vllm:generation_tokens_total")
    return tokens, {float(sample.labels["le"]): sample.value for sample in samples if sample.name == f"{LAG}_bucket"}


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
    with tempfile.TemporaryDirectory() as folder:
        rate, steps = lag(words.streams, Path(folder))
    total = steps[float("inf")]
    shares = ", ".join(f"{count / total:.1%} by {1000 * bound:g} ms" for bound, count in steps.items() if count < total)
    print(f"{rate:,.0f} tokens/s in real time, {total:.0f} steps: {shares}")
    return int(costs["false"] > MOST_SECONDS or steps[LIMIT] < 0.99 * total)


if __name__ == "__main__":
    sys.exit(main())
