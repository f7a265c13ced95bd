"""The prompt and the completion that `--log-content full` logs: their form, their limit, and their memory."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.configuration.sidecar import LogContent
from exporters.relay import relay
from exporters.relay.bodies.logged_content import LoggedContent
from tests.support.prompt_hashing import Hashing
from tests.support.scripted_relay import CHAT_WITH_USAGE, UNARY, ok, post, staged, whole_stream

HASHING = Hashing()
PIECES = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 2), st.text(max_size=20)), max_size=10)


@given(text=st.text(max_size=60), limit=st.integers(1, 100), escaped=st.booleans())
def test_a_prompt_is_cut_at_a_character_within_the_limit(text: str, limit: int, escaped: bool) -> None:
    body = json.dumps({"model": "m", "prompt": text, "user": "u"}, ensure_ascii=escaped).encode()
    whole = json.dumps({"prompt": text}, ensure_ascii=escaped, separators=(",", ":"))
    content = LoggedContent(body, limit, HASHING)
    assert content.prompt is not None
    assert whole.startswith(content.prompt)
    assert len(content.prompt.encode()) <= limit
    assert content.is_cut == (content.prompt != whole)
    if content.is_cut:
        assert len(content.prompt.encode()) > limit - 4


@settings(max_examples=50)
@given(pieces=PIECES, limit=st.integers(1, 100))
def test_a_completion_is_cut_at_a_character_within_the_limit(pieces: list[tuple[int, int, str]], limit: int) -> None:
    content, whole = LoggedContent(b"{}", limit, HASHING), LoggedContent(b"{}", 10_000, HASHING)
    for each in (content, whole):
        for choice, call, piece in pieces:
            if call < 0:
                each.text(piece, choice)
            else:
                each.call(call, piece, choice)
    assert len((content.completion or "").encode()) <= limit
    assert not whole.is_cut
    if not content.is_cut:
        assert content.completion == whole.completion


def test_texts_and_calls_are_in_order_of_their_choice_and_position() -> None:
    content = LoggedContent(b"{}", 100, HASHING)
    for call, piece, choice in ((1, "c", 0), (0, "b", 0), (0, "e", 1)):
        content.call(call, piece, choice)
    content.text("d", 1)
    content.text("a")
    content.text("a")
    assert (content.completion, content.is_cut) == ("aa\nb\nc\nd\ne", False)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"model":"m"}', b"\xff"])
def test_a_body_without_content_has_no_prompt(body: bytes) -> None:
    content = LoggedContent(body, 100, HASHING)
    assert (content.prompt, content.completion, content.is_cut) == (None, None, False)


async def test_the_record_of_a_stream_has_all_its_text(tmp_path: Path) -> None:
    async with staged(tmp_path, whole_stream, log_content=LogContent.FULL) as stage:
        await stage.ask(post(CHAT_WITH_USAGE))
        record = await stage.record()
    assert record.prompt == '{"messages":[{"role":"user","content":"twelve chars"}]}'
    assert (record.completion, record.content_cut) == ("abc", False)


async def test_the_texts_of_records_that_wait_for_the_exporter_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "MAX_CONTENTS", 2)
    async with staged(tmp_path, ok, log_content=LogContent.FULL) as stage:
        for _ in range(3):
            await stage.ask(post(UNARY))
        await stage.record(3)
        records = [record for record in stage.records if record.prompt is not None]
        assert records == stage.records[:2]
        assert (stage.records[2].completion, stage.records[2].content_cut) == (None, None)
