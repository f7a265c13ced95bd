"""A small exact client: mixed requests from a seed, each told what it saw, some leaving at a random moment."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp

from loadgen import prompt_text

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One request; `leaves` is after how many seconds its client gives up."""

    request_id: str
    endpoint: str
    body: dict[str, Any]
    leaves: float | None = None

    @property
    def stream(self) -> bool:
        return bool(self.body["stream"])

    @property
    def asks_usage(self) -> bool:
        return "stream_options" in self.body or not self.stream


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the client saw of one request. Its own counts come from the token ids; `usage` is what it was told."""

    planned: Planned
    left: bool = False
    status: int | None = None
    prompt_ids: int = 0
    output_ids: int = 0
    chunks: int = 0  # with text
    usage: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    done: bool = False

    def take(self, event: dict[str, Any]) -> None:
        """One event of a stream, or a whole body."""
        for choice in event["choices"]:
            self.output_ids += len(choice.get("token_ids") or ())
            self.prompt_ids += len(choice.get("prompt_token_ids") or ())
            text = choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content")
            self.chunks += bool(text)
        self.prompt_ids += len(event.get("prompt_token_ids") or ())
        self.usage = event.get("usage") or self.usage
        self.metrics = event.get("metrics") or self.metrics


def mixed(seed: int, count: int, leaving: int, model: str) -> list[Planned]:
    """Chat and completions, streams and not, of many lengths, with shared beginnings; `leaving` of them give up."""
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    documents = prompt_text.documents(seed, (120, 300, 500))
    leavers = set(random.sample(range(count), leaving))
    return [_one(random, f"mixed-{seed}-{n}", documents, model, leaves=n in leavers) for n in range(count)]


def _one(random: Random, request_id: str, documents: Sequence[str], model: str, *, leaves: bool) -> Planned:
    text = prompt_text.text(random, random.randint(5, 60))
    if random.random() < 0.5:
        text = f"{random.choice(documents)}\n\n{text}"
    endpoint = CHAT if random.random() < 0.6 else COMPLETIONS
    stream = random.random() < 0.7
    body: dict[str, Any] = {
        "model": model,
        # one that leaves asks for so much that it cannot be over before
        "max_tokens": 2500 if leaves else random.choice((1, 2, 8, 24, 48, 96, 160)),
        "temperature": random.choice((0, 1)),
        "seed": random.randrange(2**31),
        "ignore_eos": leaves or random.random() < 0.5,
        "stream": stream,
        "return_token_ids": True,
    }
    if endpoint == CHAT:
        body["messages"] = [{"role": "user", "content": text}]
    else:
        body["prompt"] = text
    if stream and random.random() < 0.5:
        body["stream_options"] = {"include_usage": True}
        if random.random() < 0.5:
            body["stream_options"]["continuous_usage_stats"] = True
    # not sooner than the request can be at the relay, or it was never made
    moment = random.uniform(0.05, 1.2) if leaves else None
    return Planned(request_id=request_id, endpoint=endpoint, body=body, leaves=moment)


async def offer(base: str, planned: Sequence[Planned], at_once: int) -> list[Seen]:
    """Send all of them, so many at a time."""
    gate = asyncio.Semaphore(at_once)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(base, connector=connector) as session:

        async def send(each: Planned) -> Seen:
            async with gate:
                return await _send(session, each)

        return await asyncio.gather(*map(send, planned))


async def _send(session: aiohttp.ClientSession, planned: Planned) -> Seen:
    seen = Seen(planned=planned)
    try:
        async with (
            asyncio.timeout(planned.leaves),
            session.post(
                planned.endpoint,
                json=planned.body,
                headers={"x-request-id": planned.request_id},
                timeout=aiohttp.ClientTimeout(total=120),
            ) as answer,
        ):
            seen.status = answer.status
            if planned.stream and answer.status == 200:
                async for line in answer.content:
                    _line(seen, line)
            else:
                seen.take(await answer.json())
                seen.done = True
    except TimeoutError:
        seen.left = True
    return seen


def _line(seen: Seen, line: bytes) -> None:
    text = line.decode().strip()
    if text == "data: [DONE]":
        seen.done = True
    elif text:
        event = json.loads(text.removeprefix("data: "))
        seen.take(event)
