"""An engine on a real socket: metrics, models, version and short responses, which tests can change."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.support.waiting import until

DATA = Path(__file__).parent / "data"
CACHING_ON = (DATA / "vllm-prefix-caching-on.txt").read_text()
CACHING_OFF = (DATA / "vllm-prefix-caching-off.txt").read_text()
_START_TIME = "1.79522669652e+09"


def with_start_time(page: str, start: float) -> str:
    """The recorded exposition of a process with another start time."""
    assert _START_TIME in page
    return page.replace(_START_TIME, repr(start))


@dataclass
class Engine:
    """The content of the engine's responses; tests change the fields while it runs."""

    metrics: str | bytes = CACHING_ON
    metrics_status: int = 200
    models: tuple[str, ...] = ("tiny",)
    models_body: str | None = None
    version: str | None = "0.32.0"
    server_info: str | None = None
    is_paused: bool | None = None
    fingerprint: str | None = None
    on_models_request: Callable[[], None] = lambda: None
    """Called before the response to /v1/models."""
    engine_times: dict[str, float] | None = None
    """`metrics` in the usage event of streams."""
    heads: list[dict[str, str]] = field(default_factory=list)
    """The headers of the completion requests, with lower-case names."""
    may_finish: asyncio.Event = field(default_factory=asyncio.Event)
    """A stream sends one chunk, waits for this and for `decode_seconds`, and ends."""
    decode_seconds: float = 0.0
    port: int = 0
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def metrics_page(self, _: web.Request) -> web.Response:
        body = self.metrics.encode() if isinstance(self.metrics, str) else self.metrics
        return web.Response(
            status=self.metrics_status, body=body, headers={"content-type": "text/plain; charset=utf-8"}
        )

    async def models_page(self, _: web.Request) -> web.Response:
        self.on_models_request()
        body = json.dumps({"data": [{"id": model} for model in self.models]})
        return web.Response(text=self.models_body or body, content_type="application/json")

    async def version_page(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.version is None else web.json_response({"version": self.version})

    async def server_info_page(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.server_info is None else web.Response(text=self.server_info)

    async def is_paused_page(self, _: web.Request) -> web.Response:
        return web.Response(status=404) if self.is_paused is None else web.json_response({"is_paused": self.is_paused})

    async def chat(self, request: web.Request) -> web.StreamResponse:
        self.heads.append({name.lower(): value for name, value in request.headers.items()})
        request_body = await request.json()
        usage = {"prompt_tokens": 3, "completion_tokens": 2}
        if not request_body.get("stream"):
            return web.json_response(
                {
                    "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
                    "usage": usage,
                    "system_fingerprint": self.fingerprint,
                }
            )
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
        await self.may_finish.wait()
        await asyncio.sleep(self.decode_seconds)
        await response.write(b'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n')
        last: dict[str, object] = {"choices": [], "usage": usage, "metrics": self.engine_times}
        await response.write(b"data: " + json.dumps(last).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def streaming_engine(*, with_times: bool = True) -> Engine:
    """An engine whose streams take 0.1 s to finish, with or without its times."""
    times = {"queue_time_ms": 12.5, "time_to_first_token_ms": 30.0, "generation_time_ms": 60.0}
    engine = Engine(engine_times=times if with_times else None, decode_seconds=0.1)
    engine.may_finish.set()
    return engine


class Listener(socket.socket):
    """A listening socket that keeps the sockets it has accepted."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.accepted: list[socket.socket] = []
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind(("127.0.0.1", port))
        self.listen()

    def accept(self) -> tuple[socket.socket, Any]:
        connection, address = super().accept()
        self.accepted.append(connection)
        return connection, address


@contextlib.asynccontextmanager
async def serving(engine: Engine) -> AsyncIterator[Engine]:
    """Serve on `engine.port`; 0 means a free port, which is stored there."""
    app = web.Application()
    app.add_routes(
        [
            web.get("/metrics", engine.metrics_page),
            web.get("/v1/models", engine.models_page),
            web.get("/version", engine.version_page),
            web.get("/server_info", engine.server_info_page),
            web.get("/is_paused", engine.is_paused_page),
            web.post("/v1/chat/completions", engine.chat),
            web.post("/v1/completions", engine.chat),
        ]
    )
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    listener = Listener(engine.port)
    await web.SockSite(runner, listener, ssl_context=engine.tls).start()
    engine.port = listener.getsockname()[1]
    try:
        yield engine
    finally:
        await runner.cleanup()
        # The server does not wait for connections whose TLS handshake has failed or not ended.
        await until(lambda: all(connection.fileno() == -1 for connection in listener.accepted))
