"""vLLM's HTTP surface over one life of the simulated engine."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from aiohttp import web

from compose.simulator import response_format
from compose.simulator.engine_flags import VERSION, Settings, SettingsError, change
from compose.simulator.engine_loop import Life
from compose.simulator.presets import Preset
from compose.simulator.request_parser import Ask, Endpoint, Refusal, read
from compose.simulator.response_writers import Reply, StreamReply, WholeReply

MARKS = {"Server": "vllm-slo-simulator", "X-Simulated": "true"}
MAX_BODY = 64 * 2**20
T = TypeVar("T")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Service:
    """The routes; `restart` is called with the settings of the next life once a flip has been answered."""

    def __init__(self, life: Life, preset: Preset, *, model: str, restart: Callable[[Settings], None]) -> None:
        self._life = life
        self._preset = preset
        self._model = model
        self._restart = restart
        self._created = int(time.time())
        self._fingerprint = f"vllm-{VERSION}-{life.settings.fingerprint()}"

    def app(self) -> web.Application:
        """The application that serves them."""
        app = web.Application(client_max_size=MAX_BODY)
        app.on_response_prepare.append(_mark)
        app.add_routes(
            [
                web.post("/v1/chat/completions", self.chat),
                web.post("/v1/completions", self.completions),
                web.get("/v1/models", self.models),
                web.get("/version", self.version),
                web.get("/health", self.health),
                web.get("/ping", self.health),
                web.post("/ping", self.health),
                web.get("/metrics", self.metrics),
                web.get("/simulator/config", self.config),
                web.post("/simulator/config", self.flip),
                web.route("*", "/{path:.*}", self.missing),
            ]
        )
        return app

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(Endpoint.CHAT, request)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(Endpoint.COMPLETIONS, request)

    async def models(self, _: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "created": self._created, "owned_by": "vllm-slo-simulator"}
        card |= {"root": self._model, "parent": None, "max_model_len": self._life.settings.max_model_len}
        return _json({"object": "list", "data": [card | {"permission": []}]})

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": VERSION})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._life.metrics.text(), headers={"Content-Type": _METRICS_TYPE})

    async def config(self, _: web.Request) -> web.Response:
        return _json(self._config(self._life.settings))

    async def flip(self, request: web.Request) -> web.StreamResponse:
        """Answers, then restarts the engine with the changed flags."""
        try:
            settings = change(self._life.settings, json.loads(await request.read()))
        except ValueError as error:
            return _refuse_flip([f"the body is not JSON: {error}"])
        except SettingsError as error:
            return _refuse_flip(error.mistakes)
        response = _json({"restarting": True} | self._config(settings))
        response.force_close()
        await response.prepare(request)
        await response.write_eof()
        self._restart(settings)
        return response

    async def missing(self, _: web.Request) -> web.Response:
        return _json({"detail": "Not Found"}, status=404)

    async def _generate(self, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
        try:
            ask = read(
                endpoint,
                _body(await request.read()),
                model=self._model,
                max_model_len=self._life.settings.max_model_len,
                rng=self._life.rng,
            )
        except Refusal as refusal:
            return _json(refusal.body, status=refusal.code)
        name = request.headers.get("X-Request-Id") or uuid.uuid4().hex[:16]
        naming = response_format.Naming(
            endpoint, f"{endpoint.value[0]}-{name}", int(time.time()), self._model, self._fingerprint
        )
        if ask.stream:
            return await self._stream(request, ask, naming)
        return await self._whole(ask, naming)

    async def _stream(self, request: web.Request, ask: Ask, naming: response_format.Naming) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)  # the headers go out at once, as vLLM's do, however long the queue
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client left before its stream began")
        reply = StreamReply(transport, naming, ask.answer, include_usage=ask.include_usage)
        await self._until_finished(ask, reply, reply.finished)
        await response.write_eof()
        return response

    async def _whole(self, ask: Ask, naming: response_format.Naming) -> web.Response:
        reply = WholeReply(naming, ask.answer)
        body = await self._until_finished(ask, reply, reply.finished)
        return web.Response(body=body, content_type="application/json")

    async def _until_finished(self, ask: Ask, reply: Reply, finished: asyncio.Future[T]) -> T:
        job = self._life.submit(ask, reply)
        try:
            return await finished
        finally:
            self._life.abort(job)  # a client that left cancels this handler

    def _config(self, settings: Settings) -> dict[str, Any]:
        return {
            "simulated": True,
            "preset": self._preset.name,
            "model": self._model,
            "version": VERSION,
            "config": asdict(settings),
        }


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError as error:
        raise Refusal(f"the request body is not JSON: {error}", param=None) from error


def _json(body: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=response_format.dump(body), status=status, content_type="application/json")


def _refuse_flip(mistakes: list[str]) -> web.Response:
    error = {"message": "; ".join(mistakes), "type": "BadRequestError", "param": None, "code": 400}
    return _json({"error": error, "mistakes": mistakes}, status=400)


async def _mark(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(MARKS)
