"""A real vLLM that serves embeddings: client, log and engine have the same tokens of requests with one answer."""

from pathlib import Path

import aiohttp
import pytest

from compose.lab.ports import HOST
from tests.engine.token_counters import engine_counts
from tests.engine.vllm_process import vllm
from tests.support.official_clients import QUESTION, embeddings
from tests.support.ports import free_port
from tests.support.sidecar_process import sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine

BODIES: dict[str, dict[str, object]] = {
    "/pooling": {"model": "tiny", "input": QUESTION},
    "/v1/rerank": {"model": "tiny", "query": QUESTION, "documents": ["Paris", "London"]},
    "/v1/score": {"model": "tiny", "text_1": QUESTION, "text_2": "Paris"},
}


async def test_clients_log_and_engine_have_the_same_token_counts(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://{HOST}:{port}"
    flags = ("--runner", "pooling", "--convert", "embed")
    async with vllm(tmp_path / "vllm.log", port, *flags), sidecar(tmp_path, url) as running:
        before = await engine_counts(url)
        counts: list[int | None] = [await embeddings(running.url)]
        for path, body in BODIES.items():
            counts.append((await _post(running.url + path, body))["usage"]["prompt_tokens"])
        tokenized = await _post(f"{running.url}/tokenize", {"model": "tiny", "prompt": QUESTION})
        await _post(f"{running.url}/detokenize", {"model": "tiny", "tokens": tokenized["tokens"]})
        counts += [None, None]
        await until(lambda: len(running.lines()) == len(counts))
        lines = running.lines()
        after = await engine_counts(url)
    assert [line["prompt_tokens"] for line in lines] == counts
    assert [line["route"] for line in lines] == ["/v1/embeddings", *BODIES, "/tokenize", "/detokenize"]
    for line in lines:
        assert (line["model"], line["outcome"], line["slo"]) == ("tiny", "ok", {"availability": "good"})
        assert (line["completion_tokens"], line["queue_ms"]) == (None, None)
    prompt_tokens = sum(count or 0 for count in counts)
    assert (after[0] - before[0], after[1] - before[1]) == (prompt_tokens, 0)


async def _post(url: str, body: dict[str, object]) -> dict[str, dict[str, int]]:
    async with aiohttp.request("POST", url, json=body) as response:
        assert response.status == 200
        answer: dict[str, dict[str, int]] = await response.json()
    return answer
