"""The server over a real socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from compose.simulator.api.restarting_server import Simulator, SimulatorConfig
from compose.simulator.engine.flags import preset_flags
from compose.simulator.presets.preset import PRESETS
from tests.support.waiting import HANG, until

TOY = PRESETS["toy"]
MODEL = {"model_name": "toy", "engine": "0"}


@dataclass(frozen=True)
class Lab:
    """A simulator and a client of it."""

    client: aiohttp.ClientSession
    simulator: "ControlledSimulator"

    async def series(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        async with self.client.get("/metrics") as response:
            families = text_string_to_metric_families(await response.text())
            return {(s.name, frozenset(s.labels.items())): s.value for children in families for s in children.samples}

    async def value(self, name: str, **labels: str) -> float:
        return (await self.series())[name, frozenset((MODEL | labels).items())]

    async def chat(self, **body: Any) -> tuple[int, dict[str, Any]]:
        body = {"messages": [{"role": "user", "content": "hello " * 40}], "max_tokens": 8, "ignore_eos": True} | body
        async with self.client.post("/v1/chat/completions", json=body) as response:
            return response.status, await response.json()

    async def change_config(self, **changes: Any) -> tuple[int, dict[str, Any]]:
        async with self.client.post("/simulator/config", json=changes) as response:
            return response.status, await response.json()

    async def restarted(self, times: int = 1) -> None:
        """Wait until the simulator listens after this number of restarts."""
        await until(lambda: self.simulator.restarts == times and self.simulator.listening.is_set())


class ControlledSimulator(Simulator):
    """Waits before a restart until the test allows it, instead of `restart_seconds`."""

    def __init__(self, config: SimulatorConfig) -> None:
        super().__init__(config)
        self.restart = asyncio.Event()
        self.restart.set()
        self.restarts = 0

    async def _wait_before_restart(self, _: float) -> None:
        await self.restart.wait()
        self.restarts += 1


@pytest.fixture
async def lab() -> AsyncIterator[Lab]:
    config = SimulatorConfig(
        host="127.0.0.1", port=0, preset=TOY, model="toy", flags=preset_flags(TOY), restart_seconds=0.0
    )
    simulator = ControlledSimulator(config)
    running = asyncio.create_task(simulator.run())
    await simulator.listening.wait()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{simulator.port}") as client:
        yield Lab(client, simulator)
    simulator.stop()
    await running


SHORT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
LONG = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4000, "ignore_eos": True}


def events(raw: bytes) -> list[Any]:
    assert raw.endswith(b"data: [DONE]\n\n")
    lines = raw.decode().split("\n\n")[:-2]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


async def stream(lab: Lab, path: str, body: dict[str, Any]) -> list[Any]:
    async with lab.client.post(path, json=body | {"stream": True}) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        return events(await response.read())


async def test_a_chat_stream_has_role_tokens_finish_and_usage(lab: Lab) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "ignore_eos": True}
    role, *tokens, last, usage = await stream(
        lab, "/v1/chat/completions", body | {"stream_options": {"include_usage": True}}
    )
    assert role["choices"][0] == {
        "index": 0,
        "delta": {"role": "assistant", "content": ""},
        "logprobs": None,
        "finish_reason": None,
    }
    assert tokens[0]["choices"] == [
        {"index": 0, "delta": {"content": "[sim"}, "logprobs": None, "finish_reason": None, "token_ids": None}
    ]
    assert len(tokens) == 3
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["choices"][0]["delta"]["content"]
    assert usage["choices"] == []
    assert usage["usage"] == {
        "prompt_tokens": 11,
        "total_tokens": 15,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 0, "created_cache_tokens": 0},
    }
    assert usage["system_fingerprint"].startswith("vllm-0.33.0+simulated-")
    assert list(usage["metrics"]) == [
        "time_to_first_token_ms",
        "generation_time_ms",
        "queue_time_ms",
        "mean_itl_ms",
        "tokens_per_second",
    ]
    assert len({event["id"] for event in [role, *tokens, last, usage]}) == 1


async def test_a_stream_without_include_usage_has_none(lab: Lab) -> None:
    chunks = await stream(lab, "/v1/chat/completions", SHORT)
    assert not [event for event in chunks if "usage" in event]


async def test_a_completion_stream_is_text_without_a_role(lab: Lab) -> None:
    chunks = await stream(lab, "/v1/completions", {"prompt": "hello", "max_tokens": 3, "ignore_eos": True})
    assert "".join(event["choices"][0]["text"] for event in chunks) == "[simulated] "
    assert {event["object"] for event in chunks} == {"text_completion"}


async def test_a_natural_stop_ends_with_an_empty_piece(lab: Lab) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 4000, "seed": 1}
    *_, last = await stream(lab, "/v1/chat/completions", body)
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["choices"][0]["delta"] == {"content": ""}


async def test_a_unary_response_has_usage_and_metrics(lab: Lab) -> None:
    status, body = await lab.chat()
    assert status == 200
    assert body["choices"][0]["message"]["content"].startswith("[simulated] ")
    assert body["usage"]["completion_tokens"] == 8
    assert body["metrics"]["generation_time_ms"] == pytest.approx(7 * body["metrics"]["mean_itl_ms"])


async def test_a_repeated_prompt_reports_its_cached_tokens(lab: Lab) -> None:
    first, second = (await lab.chat())[1], (await lab.chat())[1]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == 64
    assert second["usage"]["prompt_tokens"] == 69
    assert await lab.value("vllm:prefix_cache_hits_total") == 64
    assert await lab.value("vllm:prefix_cache_queries_total") == 138


async def test_an_id_follows_the_clients_request_id(lab: Lab) -> None:
    body = {"prompt": "hello", "max_tokens": 1}
    async with lab.client.post("/v1/completions", json=body, headers={"X-Request-Id": 'a"b'}) as response:
        assert (await response.json())["id"] == 'cmpl-a"b'


async def test_a_connection_is_kept_for_the_next_request_after_a_stream(lab: Lab) -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{lab.simulator.port}", connector=connector) as client:
        ports = set()
        for _ in range(3):
            async with client.post("/v1/chat/completions", json=SHORT | {"stream": True}) as response:
                assert response.connection is not None
                assert response.connection.transport is not None
                ports.add(response.connection.transport.get_extra_info("sockname"))
                events(await response.read())
    assert len(ports) == 1


async def test_every_response_is_marked_as_simulated(lab: Lab) -> None:
    for path in ("/v1/models", "/version", "/health", "/ping", "/metrics", "/simulator/config", "/nothing"):
        async with lab.client.get(path) as response:
            assert (response.headers["Server"], response.headers["X-Simulated"]) == ("vllm-slo-simulator", "true")
    async with lab.client.get("/version") as response:
        assert await response.json() == {"version": "0.33.0+simulated"}
    async with lab.client.get("/v1/models") as response:
        card = (await response.json())["data"][0]
    assert (card["id"], card["owned_by"], card["max_model_len"]) == ("toy", "vllm-slo-simulator", 4096)


async def test_a_bad_body_is_refused_in_vllms_shape(lab: Lab) -> None:
    async with lab.client.post("/v1/chat/completions", data=b"{") as response:
        assert response.status == 400
        error = (await response.json())["error"]
    mistake = {
        "type": "json_invalid",
        "loc": "body.1",
        "msg": "JSON decode error",
        "input": "<dict of 0 items>",
        "ctx": {"error": "Expecting property name enclosed in double quotes"},
    }
    message = f"1 validation error:\n  {mistake}"
    assert error == {"message": message, "type": "Bad Request", "param": "body.1", "code": 400}
    status, body = await lab.chat(model="nope")
    assert (status, body["error"]["type"]) == (404, "NotFoundError")


async def test_the_series_count_what_was_served(lab: Lab) -> None:
    await asyncio.gather(*(lab.chat(max_tokens=length) for length in (1, 5, 9)))
    series = await lab.series()

    def value(name: str, **labels: str) -> float:
        return series[f"vllm:{name}", frozenset((MODEL | labels).items())]

    assert value("request_success_total", finished_reason="length") == 3
    assert value("request_success_total", finished_reason="stop") == 0
    assert value("generation_tokens_total") == 15
    assert value("prompt_tokens_total") == 3 * 69
    assert value("time_to_first_token_seconds_count") == 3
    assert value("inter_token_latency_seconds_count") == 12
    assert value("request_generation_tokens_sum") == 15
    computed = value("prompt_tokens_by_source_total", source="local_compute")
    assert value("iteration_tokens_total_sum") == 15 + computed
    assert value("request_decode_time_seconds_sum") == pytest.approx(value("inter_token_latency_seconds_sum"))
    assert value("num_requests_running") == 0
    assert value("kv_cache_usage_perc") == 0


async def test_a_client_that_disconnects_frees_its_blocks_and_counts_as_no_finished_request(lab: Lab) -> None:
    async with lab.client.post("/v1/chat/completions", json=LONG | {"stream": True}) as response:
        await response.content.readline()
        assert await lab.value("vllm:num_requests_running") == 1
        response.close()
    async with asyncio.timeout(HANG):
        while await lab.value("vllm:num_requests_running"):
            await asyncio.sleep(0)
    assert await lab.value("vllm:kv_cache_usage_perc") == 0
    assert await lab.value("vllm:e2e_request_latency_seconds_count") == 0
    for reason in ("stop", "length", "abort"):
        assert await lab.value("vllm:request_success_total", finished_reason=reason) == 0


async def test_a_config_change_resets_every_connection_closes_the_port_and_restarts_the_engine(lab: Lab) -> None:
    await lab.chat()
    before = (await lab.series())["process_start_time_seconds", frozenset()]
    lab.simulator.restart.clear()
    async with lab.client.post("/v1/chat/completions", json=LONG | {"stream": True}) as response:
        await response.content.readline()
        status, body = await lab.change_config(enable_prefix_caching=False)
        assert (status, body["restarting"], body["config"]["enable_prefix_caching"]) == (200, True, False)
        with pytest.raises(aiohttp.ClientError):
            await response.read()
    with pytest.raises(aiohttp.ClientConnectionError):
        await lab.client.get("/health")
    lab.simulator.restart.set()
    await lab.restarted()

    async with lab.client.get("/simulator/config") as response:
        config = await response.json()
    assert config["simulated"] is True
    assert config["preset"] == "toy"
    assert config["config"]["enable_prefix_caching"] is False
    assert (await lab.series())["process_start_time_seconds", frozenset()] > before
    assert await lab.value("vllm:generation_tokens_total") == 0
    assert [(await lab.chat())[1]["usage"]["prompt_tokens_details"]["cached_tokens"] for _ in range(2)] == [0, 0]
    assert await lab.value("vllm:prefix_cache_queries_total") == 0


async def test_a_bad_config_change_changes_nothing_and_lists_every_mistake(lab: Lab) -> None:
    status, body = await lab.change_config(max_num_seqs=0, colour="red")
    assert status == 400
    assert len(body["mistakes"]) == 2
    async with lab.client.post("/simulator/config", data=b"{") as response:
        assert response.status == 400
    assert (await lab.chat())[0] == 200


@pytest.mark.slow
async def test_the_same_seed_gives_the_same_completions(lab: Lab) -> None:
    async def texts() -> list[str]:
        responses = [await lab.chat(ignore_eos=False, max_tokens=40) for _ in range(2)]
        return [body["choices"][0]["message"]["content"] for _, body in responses]

    before = await texts()
    await lab.change_config(seed=0)
    await lab.restarted()
    assert await texts() == before
    await lab.change_config(seed=1)
    await lab.restarted(2)
    assert not set(await texts()) & set(before)
