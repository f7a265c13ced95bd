"""The official clients of OpenAI and Anthropic, the sidecar and a real vLLM agree on the tokens of each API."""

from pathlib import Path

import pytest

from compose.ports import HOST
from tests.engine.token_counters import engine_counts
from tests.engine.vllm_process import vllm
from tests.support.official_clients import REQUESTS
from tests.support.ports import free_port
from tests.support.sidecar_process import sidecar
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
        assert [[line["endpoint"], line["stream"]] for line in lines] == kinds
        assert all(line["outcome"] == "ok" and (line["ttft_ms"] is not None) == line["stream"] for line in lines)
        totals = tuple(map(sum, zip(*counts, strict=True)))
        after = await engine_counts(url)
    assert tuple(later - earlier for earlier, later in zip(before, after, strict=True)) == totals
