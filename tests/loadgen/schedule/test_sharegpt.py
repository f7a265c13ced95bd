"""ShareGPT's conversations as a trace."""

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.schedule.requests import CHAT, encode_body
from loadgen.schedule.traces import Pace, TraceFormat, TraceSchedule, read_trace
from tests.loadgen.run_flags import refusal

PACE = Pace(rate=2.0, seed=1)


def conversation(prompt: str, *answers: str) -> dict[str, Any]:
    messages = [{"from": "human", "value": prompt}, *({"from": "gpt", "value": answer} for answer in answers)]
    return {"id": "x", "conversations": messages}


def written(folder: Path, content: Any) -> Path:
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(content, indent=2))
    return path


def test_the_first_message_is_sent_and_as_many_tokens_as_the_second_are_asked_for(tmp_path: Path) -> None:
    path = written(tmp_path, [conversation("What is a KV cache?", "a" * 41, "never sent")])
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
    path = written(tmp_path, [left_out, conversation("a question that is kept", "a" * 40)])
    assert [request.text for request in read_trace(path, None, "chat", PACE)] == ["a question that is kept"]


def test_the_seed_decides_order_and_times_and_the_rate_the_pace(tmp_path: Path) -> None:
    path = written(tmp_path, [conversation(f"question number {number}", "a" * 40) for number in range(2000)])
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
def test_an_unusable_file_is_refused(tmp_path: Path, content: Any, message: str) -> None:
    path = written(tmp_path, content)
    assert refusal(lambda: read_trace(path, None, "chat", PACE)) == message.format(path=path)


def test_a_rate_belongs_to_a_trace_without_times(tmp_path: Path) -> None:
    path = written(tmp_path, [conversation("a question", "a" * 40)])
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
