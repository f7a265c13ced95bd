"""The official clients of OpenAI and Anthropic, the sidecar and a real vLLM agree on tokens and structured output."""

import json
from pathlib import Path

import pytest

from compose.lab.ports import HOST
from tests.engine.token_counters import engine_counts
from tests.engine.vllm_process import vllm
from tests.support.official_clients import REQUESTS, SCHEMA, STRUCTURED
from tests.support.ports import free_port
from tests.support.sidecar_process import OUTPUT_SLOS, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine


async def test_clients_log_and_engine_have_the_same_token_counts(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://{HOST}:{port}"
    async with vllm(tmp_path / "vllm.log", port), sidecar(tmp_path, url) as running:
        before = await engine_counts(url)
        counts = [await send(running.url) for send, _, _ in REQUESTS.values() for _ in range(2)]
        await until(lambda: len(running.lines()) == len(counts))
        lines = running.lines()
        assert [(line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) for line in lines] == counts
        kinds = [kind for _, *kind in REQUESTS.values() for _ in range(2)]
        assert [[line["route"], line["stream"]] for line in lines] == kinds
        assert all(line["outcome"] == "ok" and (line["ttft_ms"] is not None) == line["stream"] for line in lines)
        totals = tuple(map(sum, zip(*counts, strict=True)))
        after = await engine_counts(url)
    assert tuple(later - earlier for earlier, later in zip(before, after, strict=True)) == totals


TOOL_PARSER = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes")  # a required tool needs one


async def test_clients_log_series_and_engine_agree_on_structured_output(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://{HOST}:{port}"
    flag = "--check-structured-output"
    async with (
        vllm(tmp_path / "vllm.log", port, *TOOL_PARSER),
        sidecar(tmp_path, url, flag, "--model", "tiny", slo_file=OUTPUT_SLOS) as running,
    ):
        before = await engine_counts(url)
        answers = [await send(running.url) for send, *_ in STRUCTURED.values()]
        await until(lambda: len(running.lines()) == len(answers))
        lines = running.lines()
        after = await engine_counts(url)
        for kind in ("json_schema", "tool_call"):
            expected = sum(each == kind for *_, each in STRUCTURED.values())
            await running.shows(f"llm_structured_requests_total{{all,{kind},tiny,valid}}", expected)
        await running.shows("llm_slo_events_total{all,tiny,json,other}", len(answers))
        await running.shows("llm_slo_bad_events_total{all,tiny,json,other}", 0)
    for (text, _), name in zip(answers, STRUCTURED, strict=True):
        found = json.loads(text)
        assert found.keys() == SCHEMA["properties"].keys(), name
        assert all(found[key] in schema["enum"] for key, schema in SCHEMA["properties"].items()), name
    fields = ("route", "stream", "structured_kind", "structured_result", "outcome", "slo")
    good = {"availability": "good", "json": "good"}
    assert [[line[field] for field in fields] for line in lines] == [
        [path, stream, kind, "valid", "ok", good] for _, path, stream, kind in STRUCTURED.values()
    ]
    counts = [count for _, count in answers]
    assert [(line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) for line in lines] == counts
    totals = tuple(map(sum, zip(*counts, strict=True)))
    assert tuple(later - earlier for earlier, later in zip(before, after, strict=True)) == totals
