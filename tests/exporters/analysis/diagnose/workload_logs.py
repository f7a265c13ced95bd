"""Request logs of workloads with a known bottleneck, as the sidecar writes them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from exporters.records.messages import PREFIX_BLOCK, Finished
from exporters.vocabulary.signals import Verdict
from tests.exporters.analysis.compare.sample_logs import request, write

START = 1_800_000_000.0
TOKENS_PER_BLOCK = PREFIX_BLOCK // 4


def log(folder: Path, requests: Iterable[Finished]) -> str:
    return str(write(folder / "requests.jsonl", requests, changed_at=None))


def prompts(count: int, tokens: int, *, shared: int = 0) -> Iterator[dict[str, Any]]:
    """The prompt fields of `count` requests, of which `shared` tokens at the beginning are the same for all."""
    blocks, common = tokens // TOKENS_PER_BLOCK, shared // TOKENS_PER_BLOCK
    for number in range(count):
        own = range((number + 1) * 1000 + common, (number + 1) * 1000 + blocks)
        yield {
            "prompt_tokens": tokens,
            "prefix_hashes": [*range(1, common + 1), *own],
            "prefix_characters": tokens * 4,
        }


def stream(
    at: float, *, queue: float, prefill: float, output: int, tpot: float = 0.02, frontend: float = 0.01, **fields: Any
) -> Finished:
    """A finished stream whose times add up: TTFT is front end + queue + prefill, E2E is TTFT + decode."""
    ttft, decode = frontend + queue + prefill, tpot * (output - 1)
    return request(
        **{
            "time": START + at,
            "queue": queue,
            "prefill": prefill,
            "decode": decode,
            "ttft": ttft,
            "tpot": tpot,
            "e2e": ttft + decode,
            "completion_tokens": output,
            "itl_p50": tpot,
            "itl_p95": tpot * 1.5,
            **fields,
        }
    )


def missed(slo: str) -> dict[str, Any]:
    return {"slo": {slo: Verdict.BAD}}
