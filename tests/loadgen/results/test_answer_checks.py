"""The checks of the answers find what no engine does, and nothing in the answers of engines with unusual settings."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.results.answer_checks import FEWEST_PROMPT_TOKENS, AnswerCheck, check_answers
from loadgen.results.record import ClientOutcome, Hardware, Record
from loadgen.results.summary import health_of, summarise
from tests.loadgen.load_records import record, run

HARDWARE = Hardware(prefill=10_000.0, step=0.004)


def answer(
    number: int, *, tokens: int = 100, pace: float = 0.01, seconds: float | None = None, **changes: Any
) -> Record:
    """The answer to a stream whose `tokens` arrived every `pace` seconds, or `seconds` after it was sent."""
    end = number + (0.1 + pace * tokens if seconds is None else seconds)
    usual: dict[str, Any] = {
        "max_tokens": tokens,
        "completion_tokens": tokens,
        "prompt_tokens": 50 + number,
        "asked_prompt_tokens": changes.get("prompt_tokens", 50),
        "chunks": tokens,
        "output_bytes": 4 * tokens,
        "silent": 2,
        "finish_reason": "length",
        "prompt_hash": f"{number:016x}",
        "answer_hash": number,
        "sent": float(number),
        "ttft_sent": 0.1,
        "tpot": pace,
        "last": end,
        "closed": end,
    }
    return record(**(usual | changes))


def found(*records: Record, hardware: Hardware | None = HARDWARE) -> dict[str, AnswerCheck]:
    checks = check_answers(run(hardware=hardware), records)
    return {check.name: check for check in checks if check.found}


CORRECT = {
    "every token": [answer(number) for number in range(20)],
    "bursts of speculative decoding, four tokens in a chunk": [
        answer(number, chunks=25, pace=0.002) for number in range(20)
    ],
    "tiny outputs in one chunk": [
        answer(number, tokens=4, chunks=1, output_bytes=6, pace=0.0, seconds=0.0001, answer_hash=1)
        for number in range(20)
    ],
    "an end at the context limit": [
        *(answer(number) for number in range(10)),
        *(answer(number, max_tokens=500, prompt_tokens=880 + number, tokens=120 - number) for number in range(10, 20)),
    ],
    "special tokens without text, which ignore_eos continues with": [
        answer(number, output_bytes=40, chunks=10, silent=92) for number in range(20)
    ],
    "special tokens in a unary answer": [
        answer(number, output_bytes=40, chunks=0, silent=0, stream=False, tpot=None, last=None) for number in range(20)
    ],
    "a stop string, whose tokens are counted and not sent": [
        answer(number, chunks=98, output_bytes=392) for number in range(20)
    ],
    "a prefix cache": [
        answer(number, prompt_hash="same", prompt_tokens=8000, cached_tokens=7984, ttft_sent=0.01, answer_hash=1)
        for number in range(20)
    ],
    "equal prompts at temperature 0, with other parameters": [
        answer(number, tokens=100 + number, prompt_hash="same", answer_hash=1) for number in range(20)
    ],
    "repeated bodies on an idle engine": [
        *(answer(number, pace=0.1) for number in range(10)),
        *(answer(number + 10, pace=0.03, prompt_hash=f"{number:016x}", answer_hash=number) for number in range(10)),
    ],
    "no usage, and bursts": [answer(number, completion_tokens=None, chunks=25, tpot=None) for number in range(20)],
    "failed requests": [answer(0), *(answer(n, tokens=0, outcome=ClientOutcome.TRUNCATED) for n in range(20))],
    "records of an earlier release": [
        answer(number, prompt_hash=None, answer_hash=None, output_bytes=None, silent=0) for number in range(20)
    ],
    "no answers": [],
}


@pytest.mark.parametrize("records", [pytest.param(each, id=name) for name, each in CORRECT.items()])
def test_nothing_is_found_in_what_an_engine_generated(records: list[Record]) -> None:
    assert found(*records) == {}


BRIEF: dict[str, Any] = {"completion_tokens": 1, "chunks": 1, "output_bytes": 5, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "changes, name, seen",
    [
        pytest.param(
            BRIEF,
            "delivered tokens",
            "20 of 20 answers (100 %) have fewer: 20 of 7,360 tokens arrived",
            id="one token and stop",
        ),
        pytest.param(
            {**BRIEF, "finish_reason": "length"},
            "delivered tokens",
            "20 of 20 answers (100 %) have fewer: 20 of 7,360 tokens arrived",
            id="one token and length",
        ),
        pytest.param(
            {**BRIEF, "completion_tokens": None},
            "delivered tokens",
            "20 of 20 answers (100 %) have fewer: 100 of 7,360 tokens arrived",
            id="one token without usage",
        ),
        pytest.param(
            {"chunks": 1, "output_bytes": 5},
            "usage",
            "20 of 20 answers (100 %) have another usage: 7,360 tokens counted, 100 bytes of output in 20 chunks",
            id="tokens counted that were not sent",
        ),
        pytest.param(
            {"completion_tokens": 10, "max_tokens": 10, "chunks": 368},
            "usage",
            "20 of 20 answers (100 %) have another usage: 200 tokens counted, 29,440 bytes of output in 7,360 chunks",
            id="more tokens sent than counted",
        ),
        pytest.param(
            {"seconds": 0.01},
            "generation time",
            "20 of 20 answers (100 %) took less, so no engine has generated them",
            id="no time to generate",
        ),
        pytest.param(
            {"seconds": 0.002, "completion_tokens": None, "chunks": 1, "tpot": None},
            "generation time",
            "20 of 20 answers (100 %) took less, so no engine has generated them",
            id="no time to generate, without usage",
        ),
        pytest.param(
            {"tpot": 0.0002},
            "decode on the hardware",
            "20 of 20 answers (100 %) are faster than the hardware of --roofline allows",
            id="decode above the roofline",
        ),
        pytest.param(
            {"cached_tokens": 0, "prompt_tokens": FEWEST_PROMPT_TOKENS, "ttft_sent": 0.01},
            "prefill on the hardware",
            "20 of 20 answers (100 %) are faster than the hardware of --roofline allows",
            id="prefill above the roofline",
        ),
    ],
)
def test_what_no_engine_does_makes_the_run_invalid(changes: dict[str, Any], name: str, seen: str) -> None:
    records = [answer(number, **({"tokens": 368} | changes)) for number in range(20)]
    check = found(*records)[name]
    assert (check.seen, check.invalidates, check.share) == (seen, True, 1.0)
    assert check.message in health_of(run(hardware=HARDWARE), records).faults
    assert check.message in summarise(run(hardware=HARDWARE), records).health.faults


@pytest.mark.parametrize(
    "records, name, seen",
    [
        pytest.param(
            [answer(number, pace=0.0) for number in range(20)],
            "TPOT",
            "20 of 20 answers (100 %) arrived at once: a gateway buffers streams, or the answers were not generated",
            id="a whole stream at once",
        ),
        pytest.param(
            [answer(number, answer_hash=1) for number in range(20)],
            "identical answers",
            "20 of 20 answers (100 %) begin with the same 512 bytes as one to another prompt: canned answers, or dummy "
            "weights",
            id="one text for all prompts",
        ),
        pytest.param(
            [
                answer(0, prompt_hash="same"),
                *(answer(n, prompt_hash="same", tpot=0.0, seconds=0.01) for n in range(1, 20)),
            ],
            "repeated bodies",
            "19 of 19 answers (100 %) took less: they look cached, and the figures are those of a response cache",
            id="a response cache",
        ),
    ],
)
def test_what_a_gateway_can_do_is_a_warning(records: list[Record], name: str, seen: str) -> None:
    (check,) = found(*records, hardware=None).values()
    assert (check.name, check.seen, check.invalidates) == (name, seen, False)
    result = summarise(run(), records)
    assert check.message in result.warnings
    assert result.health.faults == ()


def test_a_message_says_what_was_expected() -> None:
    (check,) = found(*(answer(number, tokens=368, **BRIEF) for number in range(20)), hardware=None).values()
    assert check.message == (
        "delivered tokens: expected max_tokens in each answer, because ignore_eos is sent, or an end at the context "
        "limit; 20 of 20 answers (100 %) have fewer: 20 of 7,360 tokens arrived"
    )


def test_the_context_limit_is_seen_and_not_a_fault() -> None:
    limited = CORRECT["an end at the context limit"]
    (delivered, *_) = check_answers(run(), limited)
    assert delivered.seen == "0 of 20 answers differ; 10 ended at the context limit"


def test_a_server_cannot_invent_a_context_limit_by_its_usage() -> None:
    counted = {"finish_reason": "length", "prompt_tokens": 8191, "asked_prompt_tokens": 50}
    brief = [answer(number, tokens=368, **(BRIEF | counted)) for number in range(1, 20)]
    assert found(answer(0), *brief, hardware=None)["delivered tokens"].failed == 19


@given(st.lists(st.builds(answer, st.integers(0, 5), tokens=st.integers(0, 500), pace=st.floats(0, 1)), max_size=20))
def test_the_share_is_that_of_the_judged_answers(records: list[Record]) -> None:
    for check in check_answers(run(hardware=HARDWARE), records):
        assert 0 <= check.failed <= check.judged <= len(records)
        assert check.share == (check.failed / check.judged if check.judged else None)
        assert bool(check.seen) == bool(check.judged)
