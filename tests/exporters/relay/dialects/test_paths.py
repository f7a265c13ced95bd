"""Metered, passed and rejected paths, in any spelling."""

from collections.abc import Sequence
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exporters.relay.dialects.paths import (
    METERED,
    PASSED,
    Route,
    endpoint_of_path,
    forwarded_target,
    normalise,
    route_of_path,
)
from exporters.vocabulary.signals import Endpoint

PASSED_TARGETS = """
    /v1/models/org/model /v1/models/some%20name /v1/audio/speech?format=wav /v1/../health /metrics/../health
    /v1/responses/resp_1 /v1/responses/resp_1?stream=true&starting_after=5 /v1/responses/resp_1/cancel
    /v1/chat/completions/batch http://gateway.example/v1/models
"""
METERED_TARGETS = """
    /v1/chat/completions/ /v1/chat/completions?api-version=2024-10-21 /v1/chat/completions#top //v1/chat/completions
    /v1//chat///completions /v1/./chat/completions /v1/models/../chat/completions /v1/%63hat/completions
    /v1%2fchat%2Fcompletions http://gateway.example/v1/chat/completions?x=1 HTTP://gateway.example:80/v1/completions
"""
REFUSED_TARGETS = """
    / * ? gateway.example:443 /metrics /%6detrics /%6Detrics?x=1 //metrics /v1/../metrics /v1/models/../../metrics
    /v1/responses/../../metrics /v1/responses/%2e%2e/load_lora_adapter /v1/messages/batches
    /v1/models/%2e%2e/%2e%2e/metrics /v1/models/..%2f..%2fmetrics /health/../metrics http://gateway.example/metrics
    http://gateway.example/v1/models/../../metrics http://[ http://[::1/v1/models /v1/load_lora_adapter
    /v1/unload_lora_adapter /server_info /sleep /wake_up /reset_prefix_cache /docs /openapi.json /v1 /v1/audio
    /v1/modelsx /V1/chat/completions /v1/chat/completions/x /v1/chat/completions%3fx /v1/chat/completions%00
    /v1/chat/completions;x
"""
TARGETS = {
    Route.METERED: [*sorted(METERED), *METERED_TARGETS.split()],
    Route.PASSED: [*sorted(PASSED), *PASSED_TARGETS.split()],
    Route.REFUSED: ["", *REFUSED_TARGETS.split()],
}


def route(target: str, allowed: Sequence[str] = ()) -> Route:
    return route_of_path(normalise(target), allowed)


@pytest.mark.parametrize("expected", Route)
def test_each_target_has_its_route(expected: Route) -> None:
    assert {target: route(target) for target in TARGETS[expected]} == dict.fromkeys(TARGETS[expected], expected)


@pytest.mark.parametrize(
    "path, endpoint",
    [
        ("/v1/chat/completions", Endpoint.CHAT_COMPLETIONS),
        ("/v1/responses", Endpoint.RESPONSES),
        ("/v1/responses/resp_1", Endpoint.RESPONSES_BY_ID),
        ("/v1/responses/resp_1/cancel", Endpoint.RESPONSES_BY_ID),
        ("/v1/messages/count_tokens", Endpoint.COUNT_TOKENS),
        ("/v1/rerank", Endpoint.RERANK),
        ("/v2/rerank", Endpoint.RERANK),
        ("/v1/audio/translations", Endpoint.AUDIO_TRANSLATIONS),
        ("/v1/models/org/model", Endpoint.MODELS),
        ("/v1/chat/completions/batch", Endpoint.OTHER),
        ("/v1/audio/speech", Endpoint.OTHER),
        ("/metrics", Endpoint.OTHER),
    ],
)
def test_each_path_has_its_endpoint(path: str, endpoint: Endpoint) -> None:
    assert endpoint_of_path(path) is endpoint


def test_each_measured_path_has_an_endpoint_of_its_own_or_of_its_versions() -> None:
    assert Endpoint.OTHER not in {endpoint_of_path(path) for path in METERED}


def test_an_allowed_path_passes_only_if_it_matches_exactly() -> None:
    assert route("/%6detrics?x", ["/metrics"]) is Route.PASSED
    assert route("/metrics/x", ["/metrics"]) is Route.REFUSED
    assert route("/metric", ["/metrics"]) is Route.REFUSED


@pytest.mark.parametrize(
    "target, sent",
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/models?a=%20b&c", "/v1/models?a=%20b&c"),
        ("//v1/./models/?a=%20b&c", "/v1/models?a=%20b&c"),
        ("/v1/models/some%20name", "/v1/models/some%20name"),
        ("/v1/models/%E2%82%AC", "/v1/models/%E2%82%AC"),
        ("/v1/models/a%25b", "/v1/models/a%25b"),
        ("/v1/models/a%3Fb", "/v1/models/a%3Fb"),
        ("/v1/models/org%2Fname", "/v1/models/org/name"),
        ("http://gateway.example/v1/models?a", "/v1/models?a"),
        (
            "/v1/models/x%20HTTP/1.1%0d%0ahost:%20x%0d%0a%0d%0aPOST%20/sleep",
            "/v1/models/x%20HTTP/1.1%0D%0Ahost:%20x%0D%0A%0D%0APOST%20/sleep",
        ),
    ],
)
def test_the_engine_gets_the_path_that_was_matched(target: str, sent: str) -> None:
    assert forwarded_target(target) == sent


PARTS = "/ // . .. %2e %2f %252e %0d%0a %20 %00 %ff v1 models metrics é ? #"
PIECES = st.lists(st.sampled_from(PARTS.split()), max_size=12)


@settings(max_examples=50)
@given(PIECES)
def test_the_forwarded_target_has_the_same_route_and_cannot_end_the_request_line(pieces: list[str]) -> None:
    target = "/" + "".join(pieces)
    path = forwarded_target(target).split("?", 1)[0]
    assert route(path) is route(target)
    assert normalise(path) == normalise(target)
    assert not set(path) & set(" \r\n\0")


@settings(max_examples=50)
@given(PIECES)
def test_a_normal_path_has_no_dot_segment_and_no_double_slash(pieces: list[str]) -> None:
    path = normalise("/" + "".join(pieces))
    assert path.startswith("/")
    assert "//" not in path
    assert not {".", ".."} & set(path.split("/"))


@given(st.text(alphabet="/%2eEfF.metrics", max_size=30))
def test_a_path_that_the_engine_decodes_to_metrics_never_passes(text: str) -> None:
    target = "/" + text
    if unquote(target).rstrip("/") == "/metrics":
        assert route(target) is Route.REFUSED
