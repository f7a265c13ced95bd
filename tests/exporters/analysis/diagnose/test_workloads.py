"""One log per workload of a published table of levers: the diagnosis names its bottleneck and its lever.

The table is that of a course on vLLM: long repository context, many short queries, long documents beside short
code, an interactive assistant, strict JSON, and an agent that repeats its prompt. Where the answer differs, the test
says why.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exporters.records.messages import Finished
from exporters.vocabulary.signals import OutputKind, OutputResult
from tests.exporters.analysis.diagnose.workload_logs import log, missed, prompts, stream
from tests.support.command_line import CommandLine


def repository_context() -> Iterator[Finished]:
    for number, prompt in enumerate(prompts(60, 12_288, shared=11_264)):
        yield stream(
            number * 4.0,
            queue=0.05,
            prefill=3.0 + number % 5 * 0.8,
            output=100,
            request_class="liso",
            cached_tokens=0,
            **prompt,
            **missed("ttft"),
        )


def prompts_that_share_nothing() -> Iterator[Finished]:
    for number, prompt in enumerate(prompts(60, 12_288)):
        yield stream(
            number * 4.0,
            queue=0,
            prefill=6,
            output=100,
            request_class="liso",
            cached_tokens=0,
            **prompt,
            **missed("ttft"),
        )


def short_queries() -> Iterator[Finished]:
    """Three arrive each 0.1 s; 16 run at once, each for 2 s, so the queue grows."""
    free = [0.0] * 16
    for number in range(400):
        at = number // 3 * 0.1
        slot = number % len(free)
        start = max(at, free[slot])
        free[slot] = start + 2.0
        yield stream(
            at, queue=start - at, prefill=0.02, frontend=0, output=100, tpot=0.02, prompt_tokens=90, **missed("ttft")
        )


def documents_beside_code(stall: float = 1.5) -> Iterator[Finished]:
    for number in range(60):
        yield stream(
            number * 10.0, queue=0.1, prefill=8, output=300, request_class="liso", prompt_tokens=20_000, slo={}
        )
        for each in range(3):
            yield stream(
                number * 10.0 + each + 0.5,
                queue=7.0 - each,
                prefill=0.05,
                output=60,
                tpot=0.03,
                itl_p50=0.03,
                itl_p95=0.03 * stall,
                prompt_tokens=200,
                **missed("ttft"),
            )


def assistant(**fields: Any) -> Iterator[Finished]:
    for number in range(60):
        yield stream(
            number * 20.0,
            queue=0.001,
            prefill=0.15,
            output=600,
            tpot=0.03,
            request_class="silo",
            prompt_tokens=400,
            **missed("itl"),
            **fields,
        )


def strict_json(kind: OutputKind, result: OutputResult) -> Iterator[Finished]:
    for number in range(100):
        yield stream(
            number,
            queue=0,
            prefill=0.1,
            output=50,
            prompt_tokens=300,
            structured_kind=kind,
            structured_result=OutputResult.VALID if number % 10 else result,
        )


def agent_loop(cached: int, prefill: float) -> Iterator[Finished]:
    """One request after another, of which most is the same PROMPT.md."""
    for number, prompt in enumerate(prompts(40, 6144, shared=5120)):
        yield stream(
            number * 15.0,
            queue=0,
            prefill=prefill,
            output=200,
            request_class="liso",
            cached_tokens=cached,
            **prompt,
            **missed("ttft"),
        )


INVALID, TRUNCATED = OutputResult.INVALID, OutputResult.TRUNCATED


@pytest.mark.parametrize(
    "requests, flag, expected",
    [
        pytest.param(repository_context(), "", {"liso": "prefill: prefix caching"}, id="long repository context"),
        pytest.param(prompts_that_share_nothing(), "", {"liso": "prefill: faster prefill"}, id="nothing is shared"),
        pytest.param(short_queries(), "", {"siso": "queue: larger batch"}, id="many short queries"),
        pytest.param(short_queries(), "max_num_seqs=16", {"siso": "queue: larger batch"}, id="the batch is full"),
        pytest.param(short_queries(), "max_num_seqs=64", {"siso": "queue: more capacity"}, id="the batch is not full"),
        pytest.param(
            documents_beside_code(),
            "enable_chunked_prefill=False",
            {"siso": "queue: chunked prefill", "liso": "prefill: faster prefill"},
            id="short code beside long documents",
        ),
        # vLLM V1 has chunked prefill on, so that the lever of the table is already pulled.
        pytest.param(
            documents_beside_code(),
            "",
            {"siso": "queue: separate engines for long prompts", "liso": "prefill: faster prefill"},
            id="chunked prefill is on: the second lever of the table",
        ),
        pytest.param(
            documents_beside_code(stall=10.0),
            "",
            {"siso": "queue: smaller prefill chunks", "liso": "prefill: faster prefill"},
            id="it is on, and steps with a chunk delay the decode of others",
        ),
        # The table calls the bottleneck the delay of the first token; its lever shortens what follows it, decode.
        pytest.param(assistant(), "", {"silo": "decode: speculative decoding"}, id="an interactive assistant"),
        # The first answer token waits for the decode of the reasoning.
        pytest.param(
            assistant(reasoning_tokens=450), "", {"silo": "decode: less reasoning"}, id="an assistant that reasons"
        ),
        *(
            pytest.param(
                strict_json(kind, result), "", {"siso": f"invalid output: {lever}"}, id=f"strict JSON: {lever}"
            )
            for kind, result, lever in (
                (OutputKind.JSON, INVALID, "structured outputs"),
                (OutputKind.TOOL_CALL, INVALID, "tool parser of the model"),
                (OutputKind.JSON_SCHEMA, TRUNCATED, "higher max_tokens"),
            )
        ),
        pytest.param(
            agent_loop(0, 6.0),
            "enable_prefix_caching=False",
            {"liso": "prefill: prefix caching"},
            id="an agent's prompt",
        ),
        pytest.param(
            agent_loop(512, 5.5), "", {"liso": "prefill: keep prefixes in the cache"}, id="a cache that loses it"
        ),
    ],
)
def test_the_bottleneck_and_the_lever_of_a_workload(
    requests: Iterator[Finished], flag: str, expected: dict[str, str], tmp_path: Path, cli: CommandLine
) -> None:
    words = ["--set", flag] if flag else []
    classes = cli.json("diagnose", "--request-log", log(tmp_path, requests), *words)["classes"]
    assert {each["class"]: f"{each['binding']}: {each['lever']['name']}" for each in classes} == expected
