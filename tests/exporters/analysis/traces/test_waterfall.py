"""The tree of spans on one time axis."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.analysis.traces.span_parser import Span
from exporters.analysis.traces.trace_page import axis, tree


def span(span_id: str, parent_id: str | None, start: int = 0, end: int = 10) -> Span:
    return Span(
        trace_id="0" * 32,
        span_id=span_id,
        parent_id=parent_id,
        name=span_id,
        service="",
        start=start,
        end=end,
        error=False,
        message="",
        attributes={},
        events=[],
    )


def order(*spans: Span) -> list[tuple[str, int]]:
    return [(each.span_id, depth) for each, depth in tree(spans)]


def test_children_follow_their_parent_by_start_and_a_span_without_a_stored_parent_is_a_root() -> None:
    spans = [span("late", "root", 5), span("inner", "early", 3), span("early", "root", 2), span("root", "of a client")]
    assert order(*spans) == [("root", 0), ("early", 1), ("inner", 2), ("late", 1)]


_IDS = st.sampled_from("abcdef")


@settings(max_examples=40)
@given(st.lists(st.tuples(_IDS, st.none() | _IDS), unique_by=lambda pair: pair[0], min_size=1))
def test_each_span_is_shown_once_even_in_a_cycle(pairs: list[tuple[str, str | None]]) -> None:
    spans = [span(*pair) for pair in pairs]
    assert sorted(name for name, _ in order(*spans)) == sorted(name for name, _ in pairs)


def test_a_chain_deeper_than_the_stack_is_ordered() -> None:
    chain = [span(str(number), str(number - 1), number) for number in range(2000)]
    assert order(*chain)[-1] == ("1999", 1999)


def test_every_position_is_on_the_axis() -> None:
    times = axis([span("a", None, 100, 100), span("b", None, 300, 500)])
    assert [times.share(at) for at in (0, 100, 300, 500, 900)] == [0, 0, 0.5, 1, 1]
    assert axis([span("a", None, 100, 100)]).share(100) == 0
