"""A small exact client: seeded mixed requests, with all that each response contains; some are aborted."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import aiohttp

from loadgen.schedule import prompts
from loadgen.schedule.prompts import Part

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request; the client aborts it after `abort_after` seconds."""

    request_id: str
    endpoint: str
    body: dict[str, Any]
    abort_after: float | None = None

    @property
    def stream(self) -> bool:
        return bool(self.body["stream"])

    @property
    def requests_usage(self) -> bool:
        return "stream_options" in self.body or not self.stream


@dataclass(slots=True, kw_only=True)
class ClientResponse:
    """What the client received for one request. It counts the token ids itself; `usage` is the engine's count."""

    request: ClientRequest
    aborted: bool = False
    status: int | None = None
    prompt_ids: int = 0
    output_ids: int = 0
    chunks: int = 0  # with text
    ttft: float | None = None  # seconds from before the request until the first text of a stream
    usage: dict[str, Any] | None = None
    metrics: dict[str, Any] | None = None
    done: bool = False

    def add(self, event: dict[str, Any]) -> None:
        """Add one event of a stream, or a unary body."""
        for choice in event["choices"]:
            self.output_ids += len(choice.get("token_ids") or ())
            self.prompt_ids += len(choice.get("prompt_token_ids") or ())
            text = choice.get("text") or (choice.get("delta") or choice.get("message") or {}).get("content")
            self.chunks += bool(text)
        self.prompt_ids += len(event.get("prompt_token_ids") or ())
        self.usage = event.get("usage") or self.usage
        self.metrics = event.get("metrics") or self.metrics


def mixed(seed: int, count: int, aborts: int, model: str) -> list[ClientRequest]:
    """Chat and completions, streams and not, of many lengths, with shared beginnings; `aborts` of them are aborted."""
    random = Random(seed)  # noqa: S311 - repeatable, not secret
    documents = [prompts.join([Part(f"{seed}/{size}", size)]) for size in (120, 300, 500)]
    aborted = set(random.sample(range(count), aborts))
    return [_one(random, f"mixed-{seed}-{n}", documents, model, aborts=n in aborted) for n in range(count)]


def _one(random: Random, request_id: str, documents: Sequence[str], model: str, *, aborts: bool) -> ClientRequest:
    text = prompts.join([Part(request_id, random.randint(5, 60))])
    if random.random() < 0.5:
        text = f"{random.choice(documents)}\n\n{text}"
    endpoint = CHAT if random.random() < 0.6 else COMPLETIONS
    stream = random.random() < 0.7
    body: dict[str, Any] = {
        "model": model,
        # so many that an aborted request cannot end before
        "max_tokens": 2500 if aborts else random.choice((1, 2, 8, 24, 48, 96, 160)),
        "temperature": random.choice((0, 1)),
        "seed": random.randrange(2**31),
        "ignore_eos": aborts or random.random() < 0.5,
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
    # not before the request can have reached the relay
    delay = random.uniform(0.05, 1.2) if aborts else None
    return ClientRequest(request_id=request_id, endpoint=endpoint, body=body, abort_after=delay)


async def send_all(base: str, requests: Sequence[ClientRequest], at_once: int) -> list[ClientResponse]:
    """Send all requests, `at_once` at a time."""
    gate = asyncio.Semaphore(at_once)
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(base, connector=connector) as session:

        async def send(each: ClientRequest) -> ClientResponse:
            async with gate:
                return await _send(session, each)

        return await asyncio.gather(*map(send, requests))


async def _send(session: aiohttp.ClientSession, request: ClientRequest) -> ClientResponse:
    response = ClientResponse(request=request)
    begun = time.monotonic()
    try:
        async with (
            asyncio.timeout(request.abort_after),
            session.post(
                request.endpoint,
                json=request.body,
                headers={"x-request-id": request.request_id},
                timeout=aiohttp.ClientTimeout(total=120),
            ) as http_response,
        ):
            response.status = http_response.status
            if request.stream and http_response.status == 200:
                async for line in http_response.content:
                    _add_line(response, line)
                    if response.ttft is None and response.chunks:
                        response.ttft = time.monotonic() - begun
            else:
                response.add(await http_response.json())
                response.done = True
    except TimeoutError:
        response.aborted = True
    return response


def _add_line(response: ClientResponse, line: bytes) -> None:
    text = line.decode().strip()
    if text == "data: [DONE]":
        response.done = True
    elif text:
        event = json.loads(text.removeprefix("data: "))
        response.add(event)
