"""Checks that the server generated the answers that were requested: their tokens, times and texts, and the hardware."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter

from exporters.vocabulary.token_pace import FASTEST_TOKEN, FEWEST_TOKENS, cache_pace
from loadgen.results.record import ClientOutcome, Record, Run

MOST_SHORT = 0.01
"""Share of the answers that may have fewer tokens than requested."""
MOST_IMPLAUSIBLE = 0.05
"""Share of the answers with an implausible number or time of tokens."""
MOST_IDENTICAL = 0.5
"""Share of the answers that equal one to another prompt: some models answer many meaningless prompts alike."""
TOKENS_PER_STEP = 16
"""Tokens of one event or one decode step, at most: more than the draft tokens of usual speculative decoding."""
FEWEST_COMPARED = 128
"""Bytes of an answer that is compared with others; many prompts have the same short answer."""
BYTES_PER_TOKEN = 16
"""More than the tokens of any text have on average."""
FEWEST_PROMPT_TOKENS = 512
"""Prompt tokens that must be computed, so that the time to the first token shows the prefill."""
MOST_TEMPLATE = 256
"""Prompt tokens of a chat template and its default system prompt."""
_WITHOUT_TOKEN = 2
"""Events of a stream with a choice that have no token: the first has the role, the last the finish reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCheck:
    """One check: `failed` of the `judged` answers are not as `expected`, which is their `share`.

    It is `found` if the share is above what correct servers have. Then it makes the run invalid if `invalidates` is
    set: its figures are not those of the requested load. `seen` is empty if no answer could be judged.
    """

    name: str
    expected: str
    seen: str
    judged: int
    failed: int
    share: float | None
    found: bool
    invalidates: bool

    @property
    def message(self) -> str:
        return f"{self.name}: expected {self.expected}; {self.seen}"


def check_answers(run: Run, records: Iterable[Record]) -> tuple[AnswerCheck, ...]:
    """All checks, over the requests that ended ok; a record without the measurements of a check is not judged by it."""
    answers = [record for record in records if record.outcome is ClientOutcome.OK]
    first, repeated = _split_repeats(answers)
    return (
        _delivered(answers),
        _usage(answers),
        _generation(first),
        _tpot(first),
        _identical(answers),
        _cached(first, repeated),
        *_roofline(run, answers),
    )


def found_by(checks: Iterable[AnswerCheck], *, invalidates: bool) -> Iterator[str]:
    """What was found and makes the run invalid, or leaves it valid."""
    return (check.message for check in checks if check.found and check.invalidates is invalidates)


def _check(
    name: str,
    expected: str,
    judged: Sequence[Record],
    is_failed: Callable[[Record], bool],
    *,
    most: float,
    seen: Callable[[Sequence[Record]], str],
    invalidates: bool = True,
    note: str = "",
) -> AnswerCheck:
    """The result of a check; `seen` says what the failed answers have, `note` something about the others."""
    failed = [record for record in judged if is_failed(record)]
    share = len(failed) / len(judged) if judged else None
    if share is None:
        text = ""
    elif failed:
        text = f"{len(failed):,} of {len(judged):,} answers ({share * 100:.3g} %) {seen(failed)}{note}"
    else:
        text = f"0 of {len(judged):,} answers differ{note}"
    return AnswerCheck(
        name=name,
        expected=expected,
        seen=text,
        judged=len(judged),
        failed=len(failed),
        share=share,
        found=share is not None and share > most,
        invalidates=invalidates,
    )


def _delivered(answers: Sequence[Record]) -> AnswerCheck:
    judged = [record for record in answers if _delivered_tokens(record) is not None and record.json_result is None]
    limited = _at_context_limit(judged)
    asked = sum(record.max_tokens for record in judged)
    got = sum(min(_delivered_tokens(record) or 0, record.max_tokens) for record in judged)
    ended = f"; {len(limited):,} ended at the context limit" if limited else ""
    return _check(
        "delivered tokens",
        "max_tokens in each answer, because ignore_eos is sent, or an end at the context limit",
        judged,
        lambda record: (_delivered_tokens(record) or 0) < record.max_tokens and id(record) not in limited,
        most=MOST_SHORT,
        seen=lambda _: f"have fewer: {got:,} of {asked:,} tokens arrived",
        note=ended,
    )


def _delivered_tokens(record: Record) -> int | None:
    """Completion tokens by `usage`, without it as many as the output can have; None if neither is known."""
    return record.completion_tokens if record.completion_tokens is not None else _most_tokens(record)


def _most_tokens(record: Record) -> int | None:
    """The maximum number of tokens in the output: a token with a text has at least a byte, special tokens have none."""
    if record.output_bytes is None:
        return None
    if not record.stream:
        return TOKENS_PER_STEP * record.output_bytes  # special tokens leave no trace
    return record.output_bytes + TOKENS_PER_STEP * max(0, record.silent - _WITHOUT_TOKEN)


def _at_context_limit(judged: Sequence[Record]) -> set[int]:
    """The ids of short answers that ended where prompt and completion of no other answer are longer.

    A context limit is the same for all requests. It is not assumed if no answer of the run is complete.
    """
    if all((_delivered_tokens(record) or 0) < record.max_tokens for record in judged):
        return set()
    longest = max(map(_length, judged), default=0)
    return {
        id(record)
        for record in judged
        if record.finish_reason == "length"
        and (record.completion_tokens or 0) < record.max_tokens
        and _length(record) >= longest - 1
        and (record.prompt_tokens or 0) <= 2 * record.asked_prompt_tokens + MOST_TEMPLATE  # not a false usage
    }


def _length(record: Record) -> int:
    return (record.prompt_tokens or 0) + (record.completion_tokens or 0)


def _usage(answers: Sequence[Record]) -> AnswerCheck:
    judged = [
        record
        for record in answers
        if record.completion_tokens is not None
        and max(record.completion_tokens, record.chunks) >= FEWEST_TOKENS
        and (record.output_bytes or (record.stream and record.output_bytes is not None))
    ]

    def disagrees(record: Record) -> bool:
        counted, most = record.completion_tokens or 0, _most_tokens(record) or 0
        return counted > most or record.chunks > 2 * counted

    return _check(
        "usage",
        "as many completion tokens as arrived",
        judged,
        disagrees,
        most=MOST_IMPLAUSIBLE,
        seen=lambda failed: (
            f"have another usage: {_sum(failed, 'completion_tokens'):,} tokens counted, "
            f"{_sum(failed, 'output_bytes'):,} bytes of output in {_sum(failed, 'chunks'):,} chunks"
        ),
    )


def _sum(records: Iterable[Record], name: str) -> int:
    return sum(map(attrgetter(name), records))


def _generation(first: Iterable[Record]) -> AnswerCheck:
    judged = [record for record in first if _pace(record) is not None]
    return _check(
        "generation time",
        f"at least {FASTEST_TOKEN * 1000:g} ms per token from sending, for bodies that are not repeated",
        judged,
        lambda record: (_pace(record) or 0.0) < FASTEST_TOKEN,
        most=MOST_IMPLAUSIBLE,
        seen=lambda _: "took less, so no engine has generated them",
    )


def _tpot(first: Iterable[Record]) -> AnswerCheck:
    judged = [record for record in first if record.tpot is not None and _has_many_tokens(record)]
    return _check(
        "TPOT",
        f"at least {FASTEST_TOKEN * 1000:g} ms, for bodies that are not repeated",
        judged,
        lambda record: (record.tpot or 0.0) < FASTEST_TOKEN,
        most=MOST_IMPLAUSIBLE,
        seen=lambda _: "arrived at once: a gateway buffers streams, or the answers were not generated",
        invalidates=False,
    )


def _has_many_tokens(record: Record) -> bool:
    return _least_tokens(record) >= FEWEST_TOKENS


def _least_tokens(record: Record) -> int:
    """Completion tokens by `usage`; without it, as many as the output has at least."""
    if record.completion_tokens is not None:
        return record.completion_tokens
    return max(record.chunks, (record.output_bytes or 0) // BYTES_PER_TOKEN)


def _pace(record: Record) -> float | None:
    """Seconds per token from sending to the last token; None for short answers."""
    end = record.last if record.stream else record.closed
    if not _has_many_tokens(record) or end is None or record.sent is None:
        return None
    return (end - record.sent) / _least_tokens(record)


def _identical(answers: Sequence[Record]) -> AnswerCheck:
    judged = [
        record
        for record in answers
        if (record.output_bytes or 0) >= FEWEST_COMPARED and record.prompt_hash and record.json_result is None
    ]
    prompts: dict[int | None, set[str | None]] = {}
    for record in judged:
        prompts.setdefault(record.answer_hash, set()).add(record.prompt_hash)
    return _check(
        "identical answers",
        "different answers to different prompts",
        judged,
        lambda record: len(prompts[record.answer_hash]) > 1,
        most=MOST_IDENTICAL,
        seen=lambda _: "begin with the same 512 bytes as one to another prompt: canned answers, or dummy weights",
        invalidates=False,
    )


def _split_repeats(answers: Iterable[Record]) -> tuple[list[Record], list[Record]]:
    """The answers to bodies that are sent for the first time, and those to repeated ones; none if it is unknown."""
    seen: set[tuple[object, ...]] = set()
    first: list[Record] = []
    repeated: list[Record] = []
    for record in sorted(answers, key=lambda record: record.due if record.sent is None else record.sent):
        if record.prompt_hash is not None:
            body = record.prompt_hash, record.endpoint, record.max_tokens, record.stream
            (repeated if body in seen else first).append(record)
            seen.add(body)
    return first, repeated


def _cached(first: Iterable[Record], repeated: Iterable[Record]) -> AnswerCheck:
    limit = cache_pace(record.tpot for record in first if record.tpot is not None and _has_many_tokens(record))
    return _check(
        "repeated bodies",
        f"at least {limit * 1000:.3g} ms per token from sending, as each token is generated",
        [record for record in repeated if _pace(record) is not None],
        lambda record: (_pace(record) or 0.0) < limit,
        most=MOST_IMPLAUSIBLE,
        seen=lambda _: "took less: they look cached, and the figures are those of a response cache",
        invalidates=False,
    )


def _roofline(run: Run, answers: Sequence[Record]) -> Iterator[AnswerCheck]:
    """The checks against --roofline, if it was given; a prefix cache that reports nothing hides the prefill."""
    if (bounds := run.hardware) is None:
        return
    least = bounds.step / TOKENS_PER_STEP
    yield _check(
        "decode on the hardware",
        f"a TPOT of at least {least * 1000:.3g} ms: {TOKENS_PER_STEP} tokens in a step of {bounds.step * 1000:.3g} ms",
        [record for record in answers if record.tpot is not None and _has_many_tokens(record)],
        lambda record: (record.tpot or 0.0) < least,
        most=MOST_IMPLAUSIBLE,
        seen=lambda _: "are faster than the hardware of --roofline allows",
    )
    yield _check(
        "prefill on the hardware",
        f"at most {bounds.prefill:,.0f} prompt tokens/s that the prefix cache does not have",
        [record for record in answers if record.ttft_sent is not None and _computed(record) >= FEWEST_PROMPT_TOKENS],
        lambda record: _computed(record) > bounds.prefill * (record.ttft_sent or 0.0),
        most=MOST_IMPLAUSIBLE,
        seen=lambda _: "are faster than the hardware of --roofline allows",
    )


def _computed(record: Record) -> int:
    """Prompt tokens that the engine had to compute; 0 if that is unknown."""
    return 0 if record.cached_tokens is None else (record.prompt_tokens or 0) - record.cached_tokens
