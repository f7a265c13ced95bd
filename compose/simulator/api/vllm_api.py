"""vLLM's HTTP API for one run of the simulated engine."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.typedefs import Handler

from compose.simulator.api import messages_format
from compose.simulator.api.chat_format import Format, ResponseFormat, dump
from compose.simulator.api.chat_request import Endpoint, parse_request
from compose.simulator.api.engine_loop import EngineLoop
from compose.simulator.api.messages_request import count_tokens, parse_messages
from compose.simulator.api.one_answer import detokenize, embeddings_body, parse_embeddings, tokenize
from compose.simulator.api.response_cache import ResponseCache
from compose.simulator.api.response_replay import open_stream, replaying, writer_of
from compose.simulator.api.responses_format import ResponsesFormat
from compose.simulator.api.responses_request import parse_responses, response_not_found
from compose.simulator.api.tool_call_formats import ChatToolFormat, MessagesToolFormat, ResponsesToolFormat
from compose.simulator.api.writers import PoolingWriter, ResponseWriter, StreamWriter, UnaryWriter
from compose.simulator.engine.flags import VERSION, EngineFlags, apply_changes
from compose.simulator.engine.request import EngineRequest, FieldError, RequestError, ServedModel
from compose.simulator.errors import EngineFlagsError
from compose.simulator.presets.preset import Preset

SIMULATED_HEADERS = {"Server": "vllm-slo-simulator", "X-Simulated": "true"}
MAX_BODY = 64 * 2**20
T = TypeVar("T")
_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class VllmApi:
    """The request handlers; calls `restart` with the new flags after the response to a config change."""

    def __init__(
        self,
        engine_loop: EngineLoop,
        preset: Preset,
        *,
        model: str,
        restart: Callable[[EngineFlags], None],
        invalid_output: float = 0.0,
    ) -> None:
        self._engine_loop = engine_loop
        self._preset = preset
        self._model = model
        self._restart = restart
        self._created = int(time.time())
        self._served = ServedModel(model, engine_loop.flags.max_model_len, engine_loop.rng, invalid_output)
        self._fingerprint = f"vllm-{VERSION}-{engine_loop.flags.fingerprint()}"

    def app(self) -> web.Application:
        caching = self._engine_loop.flags.response_cache
        cache = [replaying(ResponseCache())] if caching else []
        app = web.Application(client_max_size=MAX_BODY, middlewares=[*cache, _rejecting])
        app.on_response_prepare.append(_add_headers)
        app.add_routes(
            [
                web.post("/v1/chat/completions", partial(self.completions, Endpoint.CHAT)),
                web.post("/v1/completions", partial(self.completions, Endpoint.COMPLETIONS)),
                web.post("/v1/responses", self.responses),
                web.get("/v1/responses/{response_id}", self.stored_response),
                web.post("/v1/responses/{response_id}/cancel", self.stored_response),
                web.post("/v1/messages", self.messages),
                web.post("/v1/messages/count_tokens", self.count_tokens),
                web.post("/v1/embeddings", self.embeddings),
                web.post("/tokenize", partial(self.tokenizer, tokenize)),
                web.post("/detokenize", partial(self.tokenizer, detokenize)),
                web.get("/v1/models", self.models),
                web.get("/version", self.version),
                web.get("/health", self.health),
                web.get("/ping", self.health),
                web.post("/ping", self.health),
                web.get("/metrics", self.metrics),
                web.get("/simulator/config", self.config),
                web.post("/simulator/config", self.change_config),
                web.route("*", "/{path:.*}", self.not_found),
            ]
        )
        return app

    async def models(self, _: web.Request) -> web.Response:
        card = {"id": self._model, "object": "model", "created": self._created, "owned_by": "vllm-slo-simulator"}
        card |= {"root": self._model, "parent": None, "max_model_len": self._engine_loop.flags.max_model_len}
        return _json({"object": "list", "data": [card | {"permission": []}]})

    async def version(self, _: web.Request) -> web.Response:
        return _json({"version": VERSION})

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._engine_loop.metrics.text(), headers={"Content-Type": _METRICS_TYPE})

    async def config(self, _: web.Request) -> web.Response:
        return _json(self._config(self._engine_loop.flags))

    async def change_config(self, request: web.Request) -> web.StreamResponse:
        """Respond, then restart the engine with the new flags."""
        try:
            flags = apply_changes(self._engine_loop.flags, json.loads(await request.read()))
        except ValueError as error:
            return _invalid_change([f"the body is not JSON: {error}"])
        except EngineFlagsError as error:
            return _invalid_change(error.mistakes)
        response = _json({"restarting": True} | self._config(flags))
        response.force_close()
        await response.prepare(request)
        await response.write_eof()
        self._restart(flags)
        return response

    async def not_found(self, _: web.Request) -> web.Response:
        return _json({"detail": "Not Found"}, status=404)

    async def count_tokens(self, request: web.Request) -> web.Response:
        tokens = count_tokens(_body(await request.read()), self._served)
        return _json({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})

    async def tokenizer(
        self, answer: Callable[[Any, ServedModel], dict[str, Any]], request: web.Request
    ) -> web.Response:
        """Tokenize or detokenize."""
        return _json(answer(_body(await request.read()), self._served))

    async def embeddings(self, request: web.Request) -> web.Response:
        """Serve a request of the embeddings API; each input is a request to the engine."""
        body = _body(await request.read())
        inputs = parse_embeddings(body, self._served)
        writers = [PoolingWriter() for _ in inputs]
        await asyncio.gather(
            *(self._until_finished(one, writer, writer.finished) for one, writer in zip(inputs, writers, strict=True))
        )
        prompts = [one.prompt for one in inputs]
        id_ = f"embd-{_request_id(request)}"
        return _json(embeddings_body(id_, int(time.time()), self._model, prompts, body.get("encoding_format")))

    async def stored_response(self, request: web.Request) -> web.Response:
        """Retrieve or cancel a response: none is stored."""
        raise response_not_found(request.match_info["response_id"])

    async def completions(self, endpoint: Endpoint, request: web.Request) -> web.StreamResponse:
        """Serve a request of the chat or the completions API."""
        parsed = parse_request(endpoint, _body(await request.read()), self._served)
        fields = (
            endpoint,
            f"{endpoint.value}-{_request_id(request)}",
            int(time.time()),
            self._model,
            self._fingerprint,
            parsed.include_usage,
        )
        tool = parsed.completion.tool
        format_ = ResponseFormat(*fields) if tool is None else ChatToolFormat(*fields, _call_id(), tool)
        return await self._generate(request, parsed, format_)

    async def responses(self, request: web.Request) -> web.StreamResponse:
        """Serve a request of the Responses API."""
        parsed = parse_responses(_body(await request.read()), self._served)
        tool = parsed.completion.tool
        fields = (
            str(parsed.body.get("request_id") or f"resp_{_random_id()}"),
            f"{'msg' if tool is None else 'fc'}_{_random_id()}",
            int(time.time()),
            self._model,
            parsed.body,
            parsed.max_tokens,
        )
        format_ = ResponsesFormat(*fields) if tool is None else ResponsesToolFormat(*fields, _call_id(), tool)
        return await self._generate(request, parsed, format_)

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """Serve a request of the Messages API, whose ids are those of chat, as in vLLM."""
        parsed = parse_messages(_body(await request.read()), self._served)
        fields, tool = (f"{Endpoint.CHAT.value}-{_request_id(request)}", self._model), parsed.completion.tool
        format_ = (
            messages_format.MessagesFormat(*fields) if tool is None else MessagesToolFormat(*fields, _call_id(), tool)
        )
        return await self._generate(request, parsed, format_)

    async def _generate(
        self, request: web.Request, engine_request: EngineRequest, format_: Format
    ) -> web.StreamResponse:
        if not engine_request.stream:
            unary = UnaryWriter(format_, engine_request.completion)
            body = await self._until_finished(engine_request, unary, unary.finished)
            return web.Response(body=body, content_type="application/json")
        response = await open_stream(request)  # like vLLM, sends the headers while the request is in the queue
        connection = writer_of(request)
        if connection is None:
            raise ConnectionResetError("the client disconnected before its stream began")
        writer = StreamWriter(connection, format_, engine_request.completion)
        await self._until_finished(engine_request, writer, writer.finished)
        await response.write_eof()
        return response

    async def _until_finished(
        self, engine_request: EngineRequest, writer: ResponseWriter, finished: asyncio.Future[T]
    ) -> T:
        job = self._engine_loop.submit(engine_request, writer)
        try:
            return await finished
        finally:
            self._engine_loop.abort(job)  # a client disconnect cancels this handler

    def _config(self, flags: EngineFlags) -> dict[str, Any]:
        return {
            "simulated": True,
            "preset": self._preset.name,
            "model": self._model,
            "version": VERSION,
            "config": asdict(flags),
        }


@web.middleware
async def _rejecting(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a rejected request in the format of its API."""
    try:
        return await handler(request)
    except RequestError as error:
        messages = request.path.startswith("/v1/messages")
        return _json(messages_format.error_body(error) if messages else error.body, status=error.code)


def _body(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except json.JSONDecodeError as error:
        raise FieldError("json_invalid", str(error.pos), "JSON decode error", {}, {"error": error.msg}) from error
    except ValueError as error:
        raise RequestError(f"the request body is not JSON: {error}", param=None) from error


def _request_id(request: web.Request) -> str:
    return request.headers.get("X-Request-Id") or _random_id()


def _call_id() -> str:
    return f"chatcmpl-tool-{_random_id()}"


def _random_id() -> str:
    return uuid.uuid4().hex[:16]


def _json(body: Any, *, status: int = 200) -> web.Response:
    return web.Response(body=dump(body), status=status, content_type="application/json")


def _invalid_change(mistakes: list[str]) -> web.Response:
    error = {"message": "; ".join(mistakes), "type": "BadRequestError", "param": None, "code": 400}
    return _json({"error": error, "mistakes": mistakes}, status=400)


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(SIMULATED_HEADERS)
