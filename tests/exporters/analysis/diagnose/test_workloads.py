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


def diagnosed(cli: CommandLine, path: str, *words: str) -> dict[str, tuple[str, str | None]]:
    """What binds each class, and the name of the lever."""
    classes = cli.json("diagnose", "--request-log", path, *words)["classes"]
    return {each["class"]: (each["binding"], each["lever"] and each["lever"]["name"]) for each in classes}


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


def test_long_repository_context_needs_prefix_caching(tmp_path: Path, cli: CommandLine) -> None:
    assert diagnosed(cli, log(tmp_path, repository_context())) == {"liso": ("prefill", "prefix caching")}


def test_prompts_that_share_nothing_need_faster_prefill(tmp_path: Path, cli: CommandLine) -> None:
    requests = [
        stream(
            number * 4.0, queue=0, prefill=6, output=100, request_class="liso", cached_tokens=0, **p, **missed("ttft")
        )
        for number, p in enumerate(prompts(60, 12_288))
    ]
    assert diagnosed(cli, log(tmp_path, requests)) == {"liso": ("prefill", "faster prefill")}


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


def test_many_short_queries_need_a_larger_batch(tmp_path: Path, cli: CommandLine) -> None:
    path = log(tmp_path, short_queries())
    assert diagnosed(cli, path) == {"siso": ("queue", "larger batch")}
    assert diagnosed(cli, path, "--set", "max_num_seqs=16") == {"siso": ("queue", "larger batch")}
    assert diagnosed(cli, path, "--set", "max_num_seqs=64") == {"siso": ("queue", "more capacity")}


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


@pytest.mark.parametrize(
    "flags, stall, lever",
    [
        pytest.param(["--set", "enable_chunked_prefill=False"], 1.5, "chunked prefill", id="off: turn it on"),
        # vLLM V1 has chunked prefill on, so that the lever of the table is already pulled.
        pytest.param([], 1.5, "separate engines for long prompts", id="on: the second lever of the table"),
        pytest.param([], 10.0, "smaller prefill chunks", id="on, and steps with a chunk delay the decode of others"),
    ],
)
def test_short_code_beside_long_documents(
    flags: list[str], stall: float, lever: str, tmp_path: Path, cli: CommandLine
) -> None:
    found = diagnosed(cli, log(tmp_path, documents_beside_code(stall)), *flags)
    assert found["siso"] == ("queue", lever)
    assert found["liso"] == ("prefill", "faster prefill")


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


def test_an_interactive_assistant_needs_speculative_decoding(tmp_path: Path, cli: CommandLine) -> None:
    """The table calls the bottleneck the delay of the first token; its lever shortens what follows it, decode."""
    assert diagnosed(cli, log(tmp_path, assistant())) == {"silo": ("decode", "speculative decoding")}


def test_an_assistant_that_reasons_first_needs_less_reasoning(tmp_path: Path, cli: CommandLine) -> None:
    """The first answer token waits for the decode of the reasoning."""
    assert diagnosed(cli, log(tmp_path, assistant(reasoning_tokens=450))) == {"silo": ("decode", "less reasoning")}


@pytest.mark.parametrize(
    "kind, result, lever",
    [
        pytest.param(OutputKind.JSON, OutputResult.INVALID, "structured outputs", id="free JSON"),
        pytest.param(OutputKind.TOOL_CALL, OutputResult.INVALID, "tool parser of the model", id="tool calls"),
        pytest.param(OutputKind.JSON_SCHEMA, OutputResult.TRUNCATED, "higher max_tokens", id="cut"),
    ],
)
def test_strict_json(kind: OutputKind, result: OutputResult, lever: str, tmp_path: Path, cli: CommandLine) -> None:
    requests = [
        stream(
            number,
            queue=0,
            prefill=0.1,
            output=50,
            prompt_tokens=300,
            structured_kind=kind,
            structured_result=OutputResult.VALID if number % 10 else result,
        )
        for number in range(100)
    ]
    assert diagnosed(cli, log(tmp_path, requests)) == {"siso": ("invalid output", lever)}


def agent_loop(cached: int, prefill: float, **fields: Any) -> Iterator[Finished]:
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
            **fields,
        )


def test_an_agent_that_repeats_its_prompt_needs_prefix_caching(tmp_path: Path, cli: CommandLine) -> None:
    before = log(tmp_path, agent_loop(0, 6.0, **missed("ttft")))
    assert diagnosed(cli, before, "--set", "enable_prefix_caching=False") == {"liso": ("prefill", "prefix caching")}


def test_a_cache_that_loses_the_prompt_of_an_agent_is_too_small(tmp_path: Path, cli: CommandLine) -> None:
    evicted = log(tmp_path, agent_loop(512, 5.5, **missed("ttft")))
    assert diagnosed(cli, evicted) == {"liso": ("prefill", "keep prefixes in the cache")}
