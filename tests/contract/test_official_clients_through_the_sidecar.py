"""The official clients of OpenAI and Anthropic through the sidecar: their token counts are those of log and series."""

import json
from pathlib import Path

import anthropic
import openai
import pytest

from tests.support.official_clients import (
    QUESTION,
    REQUESTS,
    SCHEMA,
    STRUCTURED,
    SYSTEM,
    TOKENS,
    Counts,
    chat,
    embeddings,
)
from tests.support.sidecar_process import OUTPUT_SLOS, Running, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until

pytestmark = pytest.mark.slow


FIELDS = ("route", "stream", "outcome", "model")


async def _total(running: Running, series: str, *values: str) -> float:
    """The sum over all label values, or over those with these `values`; a model is `other` until it is known."""
    await running.samples()  # the first exposition has first counts at 0
    return sum(
        value
        for name, value in (await running.samples()).items()
        if name.startswith(f"{series}{{") and set(values) <= set(name[len(series) + 1 : -1].split(","))
    )


async def test_the_clients_token_counts_are_those_of_the_log_and_of_the_series(tmp_path: Path) -> None:
    async with simulator("tiny") as engine, sidecar(tmp_path, engine) as running:
        counts: list[Counts] = []
        for send, endpoint, stream in REQUESTS.values():
            of_this = [await send(running.url) for _ in range(2)]
            counts.extend(of_this)
            await until(lambda: len(running.lines()) == len(counts))
            lines = running.lines()[-2:]
            assert [
                (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) for line in lines
            ] == of_this
            assert of_this[1][2] > 0  # the second prompt is in the prefix cache
            for line in lines:
                assert [line[field] for field in FIELDS] == [endpoint, stream, "ok", "tiny"]
                assert (line["ttft_ms"] is not None, line["slo"]) == (stream, {"availability": "good"})
        prompt, completion, cached = map(sum, zip(*counts, strict=True))
        await until(lambda: _has_counted(running, len(counts)))
        assert await _total(running, "llm_prompt_tokens_total") == prompt
        assert await _total(running, "llm_completion_tokens_total") == completion
        assert await _total(running, "llm_cached_prompt_tokens_total") == cached


@pytest.mark.parametrize("share, result, verdict", [(0.0, "valid", "good"), (1.0, "invalid", "bad")])
async def test_log_and_series_say_whether_the_clients_can_parse_their_answers(
    tmp_path: Path, share: float, result: str, verdict: str
) -> None:
    # The streaming clients raise an error of their own for invalid JSON; a unary answer of Messages is always valid.
    names = [name for name, (_, path, _, _) in STRUCTURED.items() if not share or path == "/v1/chat/completions"]
    flag = "--check-structured-output"
    async with (
        simulator("tiny", invalid_output=share) as engine,
        sidecar(tmp_path, engine, flag, slo_file=OUTPUT_SLOS) as running,
    ):
        answers = [await STRUCTURED[name][0](running.url) for name in names]
        await until(lambda: len(running.lines()) == len(names))
        for line, name, (answer, counts) in zip(running.lines(), names, answers, strict=True):
            _, endpoint, stream, kind = STRUCTURED[name]
            assert _is_valid(answer) == (result == "valid")
            assert min(counts[:2]) > 1
            assert (line["route"], line["stream"]) == (endpoint, stream)
            assert (line["prompt_tokens"], line["completion_tokens"], line["cached_tokens"]) == counts
            assert (line["structured_kind"], line["structured_result"]) == (kind, result)
            assert line["slo"] == {"availability": "good", "json": verdict}
        await until(lambda: _has_counted(running, len(names)))
        for kind in ("json_schema", "tool_call"):
            expected = sum(STRUCTURED[name][3] == kind for name in names)
            assert await _total(running, "llm_structured_requests_total", kind, result) == expected
        assert await _total(running, "llm_slo_events_total", "json") == len(names)
        assert await _total(running, "llm_slo_bad_events_total", "json") == (len(names) if share else 0)


def _is_valid(text: str) -> bool:
    """Whether the client can parse the text, whose values are then those of the schema."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    assert found.keys() == SCHEMA["properties"].keys()
    assert all(found[key] in schema["enum"] for key, schema in SCHEMA["properties"].items())
    return True


async def _has_counted(running: Running, requests: int) -> bool:
    return await _total(running, "llm_requests_total") == requests


BY_ENDPOINT = """
version: 1
period: 12h
scrape_interval: 1s
classes:
  - {name: vectors, route: embeddings}
  - {name: counts, route: [tokenize, detokenize, count_tokens]}
  - {name: text}
slos:
  - {name: vectors, classes: [vectors], signal: e2e, threshold: 30s, objective: 99%}
  - {name: availability, classes: [vectors, counts, text], signal: availability, objective: 99%}
"""


async def test_embeddings_have_the_clients_tokens_in_log_and_series_and_a_class_and_slos_of_their_own(
    tmp_path: Path,
) -> None:
    async with (
        simulator("tiny") as engine,
        sidecar(tmp_path, engine, "--model", "tiny", slo_file=BY_ENDPOINT) as running,
    ):
        tokens = await embeddings(running.url)
        counts = await chat(running.url)
        tokenized = {"model": "tiny", "prompt": QUESTION}
        async with running.session.post(f"{running.url}/tokenize", json=tokenized) as response:
            assert (await response.json())["count"] > TOKENS // 2
        await until(lambda: len(running.lines()) == 3)
        names = ("route", "class", "model", "prompt_tokens", "completion_tokens", "slo")
        vectors, good = {"vectors": "good", "availability": "good"}, {"availability": "good"}
        assert [tuple(line[name] for name in names) for line in running.lines()] == [
            ("/v1/embeddings", "vectors", "tiny", tokens, None, vectors),
            ("/v1/chat/completions", "text", "tiny", counts[0], counts[1], good),
            ("/tokenize", "counts", "tiny", None, None, good),
        ]
        await until(lambda: _has_counted(running, 3))
        samples = {name: value for name, value in (await running.samples()).items() if value}
    assert {name: value for name, value in samples.items() if name.startswith("llm_requests_total{")} == {
        "llm_requests_total{counts,tiny,ok,tokenize,false,other}": 1,
        "llm_requests_total{text,tiny,ok,chat_completions,false,other}": 1,
        "llm_requests_total{vectors,tiny,ok,embeddings,false,other}": 1,
    }
    assert {name: value for name, value in samples.items() if name.startswith("llm_prompt_tokens_total{")} == {
        "llm_prompt_tokens_total{text,tiny,other}": counts[0],
        "llm_prompt_tokens_total{vectors,tiny,other}": tokens,
    }
    assert {name: value for name, value in samples.items() if name.startswith("llm_slo_events_total{")} == {
        "llm_slo_events_total{counts,tiny,availability,other}": 1,
        "llm_slo_events_total{text,tiny,availability,other}": 1,
        "llm_slo_events_total{vectors,tiny,availability,other}": 1,
        "llm_slo_events_total{vectors,tiny,vectors,other}": 1,
    }


async def test_the_clients_get_the_engines_errors_unchanged(tmp_path: Path) -> None:
    async with simulator("tiny") as engine, sidecar(tmp_path, engine) as running:
        async with openai.AsyncOpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client:
            with pytest.raises(openai.NotFoundError, match="The model `nope` does not exist"):
                await client.responses.create(model="nope", input=QUESTION)
        async with anthropic.AsyncAnthropic(base_url=running.url, api_key="none", max_retries=0) as claude:
            counted = await claude.messages.count_tokens(
                model="tiny", system=SYSTEM, messages=[{"role": "user", "content": QUESTION}]
            )
            assert counted.input_tokens > TOKENS
            with pytest.raises(anthropic.NotFoundError, match="The model `nope` does not exist"):
                await claude.messages.create(
                    model="nope", messages=[{"role": "user", "content": QUESTION}], max_tokens=TOKENS
                )
        await until(lambda: len(running.lines()) == 3)
        assert [(line["route"], line["outcome"]) for line in running.lines()] == [
            ("/v1/responses", "client_error"),
            ("/v1/messages/count_tokens", "ok"),
            ("/v1/messages", "client_error"),
        ]
