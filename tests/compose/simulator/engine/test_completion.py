"""The drawn text of completions."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.engine.completion import PIECES, draw_completion
from compose.simulator.engine.job import FinishReason
from compose.simulator.engine.tokenizer import encode


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


def test_every_piece_is_one_token_and_needs_no_escaping_in_json() -> None:
    for piece in PIECES:
        assert len(encode(piece.decode())) == 1
        assert json.dumps(piece.decode()) == f'"{piece.decode()}"'


@given(st.integers(0), st.integers(1, 500), st.booleans())
def test_a_completion_sent_back_as_a_message_gives_its_own_tokens_again(seed: int, limit: int, whole: bool) -> None:
    completion = draw_completion(seeded(seed), max_tokens=limit, min_tokens=0, ignore_eos=whole)
    length = completion.length - (completion.finish is FinishReason.STOP)
    assert encode(completion.text(completion.length)) == [completion.token(index) for index in range(length)]


@given(st.integers(0), st.integers(1, 500), st.integers(0, 50))
def test_a_completion_has_the_requested_length_or_stops_earlier(seed: int, limit: int, least: int) -> None:
    full = draw_completion(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=True)
    assert (full.length, full.finish) == (limit, FinishReason.LENGTH)
    free = draw_completion(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=False)
    assert min(least, limit) <= free.length <= limit
    assert free.length == limit or free.finish is FinishReason.STOP
    assert free == draw_completion(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=False)


def test_a_completion_says_that_it_is_simulated() -> None:
    completion = draw_completion(seeded(1), max_tokens=20, min_tokens=0, ignore_eos=True)
    assert completion.text(20).startswith("[simulated] ")
