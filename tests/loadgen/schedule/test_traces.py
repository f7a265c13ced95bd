"""Recorded traffic is replayed with its times, lengths and shared beginnings, ShareGPT with its prompts."""

import asyncio
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.cli import main
from exporters.records.messages import Finished
from exporters.requestlog.writer import RequestLog
from loadgen.results.record import read_records, read_run
from loadgen.schedule.requests import CHAT, COMPLETIONS, encode_body
from loadgen.schedule.traces import BLOCK_TOKENS, Pace, TraceFormat, TraceRequest, TraceSchedule, detect, read_trace
from tests.loadgen.load_process import load
from tests.loadgen.run_flags import refusal
from tests.support.sample_records import finished
from tests.support.simulator import simulator

MOONCAKE = (
    '{"timestamp": 2500, "input_length": 700, "output_length": 20, "hash_ids": [7, 9]}\n'
    '{"timestamp": 1000, "input_length": 1024, "output_length": 10, "hash_ids": [7, 8]}\n'
)


def written(folder: Path, text: str, name: str = "trace.jsonl") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_mooncake_trace_is_read_by_time(tmp_path: Path) -> None:
    assert read_trace(written(tmp_path, MOONCAKE), None, "trace") == [
        TraceRequest(1.0, 1024, 10, "trace", blocks=("7", "8")),
        TraceRequest(2.5, 700, 20, "trace", blocks=("7", "9")),
    ]


def test_a_csv_may_have_classes(tmp_path: Path) -> None:
    text = "time,prompt_tokens,output_tokens,class\n3.5,100,20,siso\n0.25,50,5,\n"
    assert read_trace(written(tmp_path, text), None, "other") == [
        TraceRequest(0.25, 50, 5, "other"),
        TraceRequest(3.5, 100, 20, "siso"),
    ]


def logged(path: Path, records: list[Finished]) -> Path:
    log = RequestLog(path)
    log.write("run", list(enumerate(records, 1)), None)
    log.close()
    return path


LOGGED = [
    finished(time=1010.5, request_class="lilo", prompt_tokens=1500, completion_tokens=30, prefix_hashes=[1, 2]),
    finished(time=1010.0, stream=False, route=COMPLETIONS, prompt_tokens=600, completion_tokens=5, prefix_hashes=[1]),
    finished(time=1011.0, prompt_tokens=None, completion_tokens=None),  # such as a rejected one
    finished(time=1012.0, route="/v1/embeddings", prompt_tokens=5, completion_tokens=1),
    finished(time=1009.0, request_class="warm-up", prompt_tokens=9, completion_tokens=1, prefix_hashes=[1]),
]


def test_a_request_log_is_replayed_without_what_has_no_lengths(tmp_path: Path) -> None:
    first, second = read_trace(logged(tmp_path / "requests.jsonl", LOGGED), None, "trace")
    assert (first.time, first.prompt_tokens, first.output_tokens) == (1010.0, 600, 5)
    assert (first.stream, first.endpoint) == (False, COMPLETIONS)
    assert (second.request_class, second.stream, second.endpoint, len(second.blocks)) == ("lilo", True, CHAT, 2)
    assert second.blocks[:1] == first.blocks


def test_a_log_of_an_earlier_release_is_replayed_too(tmp_path: Path) -> None:
    log = logged(tmp_path / "requests.jsonl", LOGGED)
    expected = read_trace(log, None, "trace")
    log.write_bytes(log.read_bytes().replace(b'"route":', b'"endpoint":'))
    assert read_trace(log, None, "trace") == expected


@pytest.mark.parametrize(
    "line, form",
    [
        ('{"timestamp": 0, "input_length": 1}', TraceFormat.MOONCAKE),
        ('{"time": "2026-01-01T00:00:00Z"}', TraceFormat.REQUEST_LOG),
        ("time,prompt_tokens,output_tokens", TraceFormat.CSV),
        ('[{"id": "a", "conversations": []}]', TraceFormat.SHAREGPT),
        ("[", TraceFormat.SHAREGPT),
    ],
)
def test_the_first_line_tells_the_format(line: str, form: TraceFormat) -> None:
    assert detect(line) is form


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "{path}: is empty; give a trace with at least one request"),
        (
            "time,prompt\n1,2\n",
            (
                "{path}:1: the header lacks prompt_tokens, output_tokens; write time,prompt_tokens,output_tokens, and "
                "class if you like, with time in seconds"
            ),
        ),
        (
            "time,prompt_tokens,output_tokens\n1,x,2\n1,2,0\n",
            (
                "{path}:2: invalid literal for int() with base 10: 'x'\n"
                "{path}:3: 2 prompt and 0 output tokens; both must be at least 1"
            ),
        ),
        (
            MOONCAKE + '{"timestamp": 1, "input_length": "a", "output_length": 1}\n',
            "{path}:3: Expected `int`, got `str` - at `$.input_length`",
        ),
        (
            json.dumps({"time": "2026-01-01T00:00:00Z", "class": "siso", "stream": True, "route": CHAT}),
            (
                "{path}: no request can be replayed: it needs prompt tokens, completion tokens, and one of the "
                "endpoints /v1/chat/completions and /v1/completions"
            ),
        ),
    ],
    ids=["empty", "header", "values", "types", "no lengths"],
)
def test_every_invalid_line_is_reported(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    assert refusal(lambda: read_trace(path, None, "trace")) == message.format(path=path)


HASHES = st.lists(st.sampled_from("abc"), max_size=4).map(tuple)
REQUESTS = st.lists(
    st.builds(
        TraceRequest, st.floats(0, 100), st.integers(1, 3000), st.integers(1, 50), st.just("siso"), blocks=HASHES
    ),
    min_size=1,
    max_size=12,
).map(lambda requests: sorted(requests, key=lambda request: request.time))


@settings(max_examples=30)
@given(REQUESTS)
def test_prompts_have_their_length_and_share_the_text_of_equal_blocks(requests: list[TraceRequest]) -> None:
    planned = list(TraceSchedule(requests, 1))
    assert [request.prompt_tokens for request in planned] == [request.prompt_tokens for request in requests]
    for request, traced in zip(planned, requests, strict=True):
        words = request.prompt.split()
        assert len(words) == traced.prompt_tokens
        for other, other_traced in zip(planned, requests, strict=True):
            same = 0
            for mine, theirs in zip(traced.blocks, other_traced.blocks, strict=False):
                if mine != theirs:
                    break
                same += BLOCK_TOKENS
            shared = min(same, traced.prompt_tokens, other_traced.prompt_tokens)
            assert words[:shared] == other.prompt.split()[:shared]


def test_times_are_scaled_and_cut(tmp_path: Path) -> None:
    requests = [TraceRequest(time, 10, 5, name) for time, name in ((100.0, "a"), (104.0, "b"), (130.0, "a"))]
    assert [request.due for request in TraceSchedule(requests, 1)] == [0.0, 4.0, 30.0]
    schedule = TraceSchedule(requests, 1, rate_scale=2.0, seconds=10.0)
    assert [request.due for request in schedule] == [0.0, 2.0]
    assert (schedule.seconds, schedule.shares) == (10.0, {"a": 0.5, "b": 0.5})


def test_production_traffic_goes_through_mooncake_and_keeps_its_shared_blocks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = logged(tmp_path / "requests.jsonl", LOGGED)
    assert main(["requests", "--request-log", str(path), "--format", "mooncake"]) == 0
    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == [
        {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]},
        {"timestamp": 500, "input_length": 1500, "output_length": 30, "hash_ids": [0, 2, 3]},
    ]
    assert "2 requests are not in the trace" in err
    first, second = TraceSchedule(read_trace(written(tmp_path, out), None, "trace"), 1)
    assert first.prompt.split()[:BLOCK_TOKENS] == second.prompt.split()[:BLOCK_TOKENS]
    assert main(["requests", "--request-log", str(path), "--format", "mooncake", "--sort", "e2e_ms"]) == 2
    assert "remove --columns, --sort and --around" in capsys.readouterr().err


PACE = Pace(rate=2.0, seed=1)


def conversation(prompt: str, *answers: str) -> dict[str, Any]:
    messages = [{"from": "human", "value": prompt}, *({"from": "gpt", "value": answer} for answer in answers)]
    return {"id": "x", "conversations": messages}


def sharegpt(folder: Path, content: Any) -> Path:
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(content, indent=2))
    return path


def test_the_first_message_is_sent_and_as_many_tokens_as_the_second_are_asked_for(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, [conversation("What is a KV cache?", "a" * 41, "never sent")])
    (request,) = TraceSchedule(read_trace(path, None, "chat", PACE), 1)
    body = json.loads(encode_body(request, "m"))
    assert body["messages"] == [{"role": "user", "content": "What is a KV cache?"}]
    assert (body["max_tokens"], body["stream"], request.endpoint) == (11, True, CHAT)
    assert (request.request_class, request.prompt_tokens, request.due) == ("chat", 5, 0.0)


@pytest.mark.parametrize(
    "left_out",
    [
        pytest.param({"id": "x"}, id="no conversation"),
        pytest.param(conversation("a question without an answer"), id="one message"),
        pytest.param(conversation("short", "a" * 40), id="a prompt of 2 tokens"),
        pytest.param(conversation("a question", "short"), id="an answer of 2 tokens"),
        pytest.param(conversation("a" * 4097, "a" * 40), id="a long prompt"),
        pytest.param(conversation("a" * 400, "a" * 8000), id="long together"),
    ],
)
def test_conversations_that_vllm_bench_leaves_out_are_left_out(tmp_path: Path, left_out: dict[str, Any]) -> None:
    path = sharegpt(tmp_path, [left_out, conversation("a question that is kept", "a" * 40)])
    assert [request.text for request in read_trace(path, None, "chat", PACE)] == ["a question that is kept"]


def test_the_seed_decides_order_and_times_and_the_rate_the_pace(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, [conversation(f"question number {number}", "a" * 40) for number in range(2000)])
    one, again, other = (read_trace(path, None, "chat", Pace(2.0, seed)) for seed in (1, 1, 2))
    assert one == again != other
    assert sorted(request.text for request in one) == sorted(request.text for request in other)
    assert one[-1].time == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    "content, message",
    [
        pytest.param(
            [{"conversations": [{"from": "human"}]}],
            "{path}: is not in the format of ShareGPT: Object missing required field `value` - at "
            '`$[0].conversations[0]`; write a JSON list of conversations, such as [{{"conversations": [{{"from": '
            '"human", "value": "..."}}, {{"from": "gpt", "value": "..."}}]}}]',
            id="another format",
        ),
        pytest.param(
            [conversation("one message")],
            "{path}: no conversation can be replayed: it needs two messages of 4 tokens or more, a prompt of 1024 or "
            "fewer, and 2048 or fewer together, at 4 characters a token",
            id="none is left",
        ),
    ],
)
def test_an_unusable_file_of_sharegpt_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = sharegpt(tmp_path, content)
    assert refusal(lambda: read_trace(path, None, "chat", PACE)) == message.format(path=path)


def test_a_rate_belongs_to_a_trace_without_times(tmp_path: Path) -> None:
    path = sharegpt(tmp_path, [conversation("a question", "a" * 40)])
    assert (
        refusal(lambda: read_trace(path, TraceFormat.SHAREGPT, "chat"))
        == f"--rate: {path} has no times, as it is in the format of ShareGPT; write --rate 4"
    )
    timed = tmp_path / "trace.csv"
    timed.write_text("time,prompt_tokens,output_tokens\n1,2,3\n")
    assert (
        refusal(lambda: read_trace(timed, None, "chat", PACE))
        == f"--rate: {timed} has the times of its requests; use --rate-scale"
    )


def mooncake(requests: int, gap_ms: int) -> tuple[str, float]:
    """A trace of prompts that begin with one of three shared texts, and the share of their tokens that is cached."""
    random, seen = Random(67), set[int]()  # noqa: S311 - repeatable, not secret
    lines, cached, prompts = [], 0, 0
    for number in range(requests):
        family = random.randrange(3)
        ids = [family, 10 + family, 100 + number]  # two shared blocks, and one of its own
        length = 2 * BLOCK_TOKENS + random.randint(50, 400)
        cached += BLOCK_TOKENS * sum(block in seen for block in ids)
        prompts += length
        seen.update(ids)
        row = {"timestamp": number * gap_ms, "input_length": length, "output_length": 4, "hash_ids": ids}
        lines.append(json.dumps(row))
    return "\n".join(lines), cached / prompts


@pytest.mark.long
async def test_the_simulator_hits_the_share_of_the_prefix_cache_that_the_hashes_imply(tmp_path: Path) -> None:
    text, implied = mooncake(16, gap_ms=400)
    path, out = written(tmp_path, text), tmp_path / "out"
    async with simulator() as url:
        flags = ("--target", url, "--out", str(out), "--allow-invalid", "--log-level", "warning")
        process = await asyncio.to_thread(load, "replay", "--trace", str(path), *flags)
    assert (process.returncode, process.stderr) == (0, "")
    records = read_records(out)
    assert (read_run(out).scenario, len(records)) == ("trace.jsonl", 16)
    assert [record.prompt_tokens for record in records] == [record.asked_prompt_tokens for record in records]
    cached = sum(record.cached_tokens or 0 for record in records) / sum(record.prompt_tokens or 0 for record in records)
    assert implied > 0.5
    assert cached == pytest.approx(implied, abs=0.02)
