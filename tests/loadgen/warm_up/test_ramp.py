"""The lengths and waves of a warm-up, and when it is over."""

from collections.abc import Mapping, Sequence

import pytest

from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Endpoint
from exporters.vocabulary.slo_file import Bound, RequestClass
from loadgen.schedule.requests import CHAT, COMPLETIONS
from loadgen.warm_up.ramp import Length, Ramp, is_warm, lengths
from tests.loadgen.run_flags import refusal

SHIPPED = slo_file.load(slo_file.SHIPPED).classes


def test_the_shipped_classes_have_two_prompt_lengths() -> None:
    assert lengths(SHIPPED, None) == [Length(511, 64, CHAT), Length(1024, 64, CHAT)]


@pytest.mark.parametrize(
    "prompt, output, expected",
    [
        (None, None, (512, 64)),
        (Bound("<=", 100), Bound("<", 10), (100, 9)),
        (Bound("<", 1), Bound("<", 1), (1, 1)),
        (Bound(">", 3000), Bound(">", 10), (6000, 20)),
        (Bound("<", 32768), None, (7308, 64)),  # 90 % of the context of 8,192 tokens, with the output
    ],
)
def test_a_length_fits_the_bounds_of_its_class_and_the_context(
    prompt: Bound | None, output: Bound | None, expected: tuple[int, int]
) -> None:
    (length,) = lengths([RequestClass("one", prompt, output)], 8192)
    assert (length.prompt_tokens, length.max_tokens) == expected


def test_a_small_context_leaves_room_for_the_output() -> None:
    assert lengths([RequestClass("one")], 100) == [Length(65, 25, CHAT)]


def test_the_route_of_a_class_gives_the_path() -> None:
    text, vectors = (Endpoint.COMPLETIONS,), (Endpoint.EMBEDDINGS,)
    classes = [RequestClass("text", route=text), RequestClass("vectors", route=vectors), RequestClass("any")]
    assert [length.endpoint for length in lengths(classes, None)] == [COMPLETIONS, CHAT]
    assert [length.endpoint for length in lengths(classes, None, completions=True)] == [COMPLETIONS]
    assert refusal(lambda: lengths([RequestClass("vectors", route=vectors)], None)) == (
        "--slos: no class of the file has requests to warm up with; a class needs the route chat_completions or "
        "completions, or none"
    )


def test_each_number_of_requests_has_every_length_and_no_text_twice() -> None:
    ramp = Ramp([Length(5, 1, CHAT), Length(6, 1, CHAT), Length(7, 1, CHAT)], 5, "seed")
    passes = [list(ramp.waves(number)) for number in (0, 1)]
    for waves in passes:
        assert [[each.prompt_tokens for each in wave] for wave in waves] == [
            [5],
            [6],
            [7],
            [5, 6],
            [7, 5],
            [5, 6, 7, 5],
        ]
    sent = [request for waves in passes for wave in waves for request in wave]
    assert len({request.prompt for request in sent}) == len(sent)
    assert {(request.request_class, request.stream, request.due) for request in sent} == {("warm-up", True, 0.0)}


@pytest.mark.parametrize(
    "passes, expected",
    [
        pytest.param([{1: 89.0}], False, id="one pass"),
        pytest.param([{1: 89.0}, {1: 0.2}], False, id="a faster pass"),
        pytest.param([{1: 89.0}, {1: 0.2}, {1: 0.19}], True, id="a pass that is not much faster"),
        pytest.param([{1: 0.2}, {1: 0.3}], True, id="a slower pass"),
        pytest.param([{1: 0.2}, {1: 0.3}, {1: 0.2}], True, id="a pass that is not faster than all before"),
        pytest.param([{1: 0.2, 2: 9.0}, {1: 0.2, 2: 0.3}], False, id="a faster pass at one number of requests"),
        pytest.param([{1: 0.006}, {1: 0.002}], True, id="a difference of a few milliseconds"),
    ],
)
def test_it_is_over_when_a_pass_is_no_longer_faster(passes: Sequence[Mapping[int, float]], expected: bool) -> None:
    assert is_warm(passes) is expected
