"""Text in, tokens out and back."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.scheduler import Finish
from compose.simulator.tokenizer import PIECES, TOKEN_BYTES, draw_answer, encode, encode_chat


def seeded(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - no secret


@given(st.text(max_size=200))
def test_a_token_is_four_bytes(text: str) -> None:
    assert len(encode(text)) == -(-len(text.encode("utf-8", "surrogatepass")) // TOKEN_BYTES)


@given(st.text(max_size=50), st.text(max_size=50))
def test_equal_beginnings_are_equal_tokens(left: str, right: str) -> None:
    shared = "You are a helpful assistant. " * 4
    count = len(shared) // TOKEN_BYTES
    assert encode(shared + left)[:count] == encode(shared + right)[:count]


def test_roles_and_the_borders_of_messages_are_part_of_the_prompt() -> None:
    prompts = [[("user", "abcdefgh")], [("system", "abcdefgh")], [("user", "abcd"), ("user", "efgh")]]
    assert len({tuple(encode_chat(messages)) for messages in prompts}) == 3


def test_every_piece_is_one_token_and_stands_in_json_as_it_is() -> None:
    for piece in PIECES:
        assert len(encode(piece.decode())) == 1
        assert json.dumps(piece.decode()) == f'"{piece.decode()}"'


@given(st.integers(0), st.integers(1, 500), st.booleans())
def test_an_answer_sent_back_as_a_message_gives_its_own_tokens_again(seed: int, limit: int, whole: bool) -> None:
    answer = draw_answer(seeded(seed), max_tokens=limit, min_tokens=0, ignore_eos=whole)
    said = answer.length - (answer.finish is Finish.STOP)
    assert encode(answer.text(answer.length)) == [answer.token(index) for index in range(said)]


@given(st.integers(0), st.integers(1, 500), st.integers(0, 50))
def test_an_answer_is_as_long_as_asked_or_stops_earlier(seed: int, limit: int, least: int) -> None:
    full = draw_answer(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=True)
    assert (full.length, full.finish) == (limit, Finish.LENGTH)
    free = draw_answer(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=False)
    assert min(least, limit) <= free.length <= limit
    assert free.length == limit or free.finish is Finish.STOP
    assert free == draw_answer(seeded(seed), max_tokens=limit, min_tokens=least, ignore_eos=False)


def test_an_answer_says_that_it_is_simulated() -> None:
    answer = draw_answer(seeded(1), max_tokens=20, min_tokens=0, ignore_eos=True)
    assert answer.text(20).startswith("[simulated] ")
