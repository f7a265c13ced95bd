"""Text as tokens of four bytes."""

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.engine.tokenizer import TOKEN_BYTES, decode, encode, encode_chat


@given(st.text(max_size=200))
def test_a_token_is_four_bytes(text: str) -> None:
    assert len(encode(text)) == -(-len(text.encode("utf-8", "surrogatepass")) // TOKEN_BYTES)


@given(st.text(max_size=50))
def test_the_text_of_tokens_is_the_encoded_text_without_spaces_at_its_end(text: str) -> None:
    assert decode(encode(text)) == text.encode("utf-8", "replace").decode().rstrip(" ")


def test_the_markers_of_a_chat_template_have_no_text() -> None:
    assert decode(encode_chat([("user", "hi")])) == "userhi  assistant"


@given(st.text(max_size=50), st.text(max_size=50))
def test_equal_beginnings_are_equal_tokens(left: str, right: str) -> None:
    shared = "You are a helpful assistant. " * 4
    count = len(shared) // TOKEN_BYTES
    assert encode(shared + left)[:count] == encode(shared + right)[:count]


def test_roles_and_the_borders_of_messages_are_part_of_the_prompt() -> None:
    prompts = [[("user", "abcdefgh")], [("system", "abcdefgh")], [("user", "abcd"), ("user", "efgh")]]
    assert len({tuple(encode_chat(messages)) for messages in prompts}) == 3
