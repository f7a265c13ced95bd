"""The class of a request."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay.dialects.paths import METERED, endpoint_of_path
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import GENERATING, MEASURED, Endpoint

FOUR = slo_file.loads(
    """
version: 1
period: 30d
classes:
  - {name: siso, prompt_tokens: "<512", max_tokens: "<=512"}
  - {name: silo, prompt_tokens: "<512", max_tokens: ">512"}
  - {name: liso, prompt_tokens: ">=512", max_tokens: "<=512"}
  - {name: lilo, prompt_tokens: ">=512", max_tokens: ">512"}
slos:
  - {name: availability, classes: [siso], signal: availability, objective: 99%}
"""
)
SHORT_ONLY = slo_file.loads(
    """
version: 1
period: 30d
classes:
  - {name: tiny, max_tokens: "<10"}
  - {name: short, max_tokens: "<=100"}
slos:
  - {name: availability, classes: [short, other], signal: availability, objective: 99%}
"""
)
BY_ENDPOINT = slo_file.loads(
    """
version: 1
period: 30d
classes:
  - {name: vectors, route: embeddings, prompt_tokens: "<512"}
  - {name: large-vectors, route: embeddings}
  - {name: ranking, route: [rerank, score]}
  - {name: generation, route: [chat_completions, completions, responses, messages]}
slos:
  - {name: availability, classes: [vectors], signal: availability, objective: 99%}
"""
)
CHAT = Endpoint.CHAT_COMPLETIONS


@pytest.mark.parametrize(
    "prompt_tokens, max_tokens, expected",
    [
        (0, 1, "siso"),
        (511.75, 512, "siso"),
        (512, 512, "liso"),
        (511, 513, "silo"),
        (512, 513, "lilo"),
        (10, None, "silo"),
        (9999, None, "lilo"),
    ],
)
def test_the_size_of_a_request_selects_its_class(prompt_tokens: float, max_tokens: int | None, expected: str) -> None:
    assert FOUR.classify(None, prompt_tokens, max_tokens, CHAT) == expected


@pytest.mark.parametrize(
    "header, expected",
    [("lilo", "lilo"), ("other", "other"), ("gold", "siso"), ("", "siso"), ("LILO", "siso"), (None, "siso")],
)
def test_a_known_header_selects_the_class_and_an_unknown_one_is_ignored(header: str | None, expected: str) -> None:
    assert FOUR.classify(header, 1, 1, CHAT) == expected


def test_a_warm_up_is_recognised_by_its_header_and_is_in_no_slo() -> None:
    assert FOUR.classify("warm-up", 1, 1, CHAT) == "warm-up"
    assert FOUR.slos_of("warm-up") == ()
    assert "warm-up" not in FOUR.class_names


@pytest.mark.parametrize("max_tokens, expected", [(9, "tiny"), (10, "short"), (101, "other"), (None, "other")])
def test_the_first_class_that_fits_is_used_else_other(max_tokens: int | None, expected: str) -> None:
    assert SHORT_ONLY.classify(None, 1, max_tokens, CHAT) == expected


@pytest.mark.parametrize("endpoint", MEASURED)
def test_a_request_without_a_completion_has_a_max_tokens_of_0_for_its_class(endpoint: Endpoint) -> None:
    assert FOUR.classify(None, 1, None, endpoint) == ("silo" if endpoint in GENERATING else "siso")


@pytest.mark.parametrize(
    "endpoint, prompt_tokens, header, expected",
    [
        (Endpoint.EMBEDDINGS, 1, None, "vectors"),
        (Endpoint.EMBEDDINGS, 9999, None, "large-vectors"),
        (Endpoint.SCORE, 9999, None, "ranking"),
        (Endpoint.RERANK, 1, None, "ranking"),
        (Endpoint.CLASSIFY, 1, None, "other"),
        (Endpoint.MESSAGES, 1, None, "generation"),
        (Endpoint.CHAT_COMPLETIONS, 1, "vectors", "vectors"),
        (Endpoint.EMBEDDINGS, 1, "ranking", "ranking"),
    ],
)
def test_the_endpoint_selects_the_class_unless_the_header_does(
    endpoint: Endpoint, prompt_tokens: float, header: str | None, expected: str
) -> None:
    assert BY_ENDPOINT.classify(header, prompt_tokens, None, endpoint) == expected


def test_classes_match_exactly_the_endpoints_that_the_relay_measures() -> None:
    assert {endpoint_of_path(path) for path in METERED} == set(MEASURED)


@settings(max_examples=40)
@given(st.none() | st.text(), st.floats(0, 1e6), st.none() | st.integers(0, 10**6), st.sampled_from(MEASURED))
def test_every_request_has_a_class_of_the_bounded_list(
    header: str | None, prompt: float, most: int | None, endpoint: Endpoint
) -> None:
    for file in (FOUR, SHORT_ONLY, BY_ENDPOINT):
        assert file.classify(header, prompt, most, endpoint) in file.class_names
