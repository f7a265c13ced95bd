"""An open-loop client on aiohttp, for comparison: it reads each event, parses its JSON and notes its time.

`peer_client.py aiohttp|vllm PROMPT PORT RATE SECONDS TOKENS` prints "begin" at the first request, and after the last
response the tokens that arrived and the send lag; then it waits. With `vllm`, the function of `vllm bench serve` sends
the requests, imported from the Python that runs this program.
"""

import asyncio
import json
import signal
import sys
import time
from collections.abc import Callable, Coroutine

import aiohttp

Send = Callable[[aiohttp.ClientSession, str, str, int], Coroutine[None, None, int]]
"""Sends one request with a prompt to a URL, and returns the tokens that arrived."""


async def plain(session: aiohttp.ClientSession, url: str, prompt: str, tokens: int) -> int:
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    times, buffer = [], b""
    async with session.post(url, json=body) as response:
        async for data in response.content.iter_any():
            at = time.perf_counter()
            *events, buffer = (buffer + data).split(b"\n\n")
            for event in events:
                text = event.removeprefix(b"data: ")
                if text == b"[DONE]":
                    continue
                choices = json.loads(text)["choices"]
                if choices and choices[0]["delta"].get("content"):
                    times.append(at)
    return len(times)


def of_vllm() -> Send:
    from vllm.benchmarks.lib.endpoint_request_func import (  # type: ignore[import-not-found]  # noqa: PLC0415 - not in this environment
        ASYNC_REQUEST_FUNCS,
        RequestFuncInput,
    )

    request = ASYNC_REQUEST_FUNCS["openai-chat"]

    async def send(session: aiohttp.ClientSession, url: str, prompt: str, tokens: int) -> int:
        what = RequestFuncInput(
            prompt=prompt, api_url=url, prompt_len=30, output_len=tokens, model="m", ignore_eos=True
        )
        return int((await request(request_func_input=what, session=session)).output_tokens)

    return send


async def offer(send: Send, prompt: str, port: int, rate: float, seconds: float, tokens: int) -> dict[str, float]:
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    connector = aiohttp.TCPConnector(limit=0, limit_per_host=0)
    lags: list[float] = []
    open_: list[asyncio.Task[int]] = []
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
        print("begin", flush=True)
        start = time.monotonic()
        for number in range(round(rate * seconds)):
            due = start + number / rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            lags.append(time.monotonic() - due)
            open_.append(asyncio.create_task(send(session, url, prompt, tokens)))
        arrived = sum(await asyncio.gather(*open_))
    return {"tokens": arrived, "send_lag": sorted(lags)[int(len(lags) * 0.99)]}


def main() -> None:
    kind, pace, port, rate, seconds, tokens = sys.argv[1:]
    send, prompt = (of_vllm() if kind == "vllm" else plain), pace + " and" * 30
    counts = asyncio.run(offer(send, prompt, int(port), float(rate), float(seconds), int(tokens)))
    print(json.dumps(counts), flush=True)
    signal.pause()  # for the reader of its CPU time


if __name__ == "__main__":
    main()
