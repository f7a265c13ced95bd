"""Selects the request paths that are metered, passed through or rejected."""

import posixpath
from collections.abc import Iterable, Mapping
from enum import Enum
from urllib.parse import quote, unquote, urlsplit

from exporters.names import cut
from exporters.relay.dialects import audio, chat, completions, messages, one_answer, responses, token_counts
from exporters.relay.dialects.dialect import Dialect
from exporters.relay.http1_parser import BadHttpError
from exporters.signals import Endpoint

_MESSAGES = "/v1/messages"

METERED: Mapping[str, Dialect] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completions,
    "/v1/responses": responses,
    _MESSAGES: messages,
    "/v1/messages/count_tokens": token_counts,
    "/v1/embeddings": one_answer,
    "/v1/rerank": one_answer,
    "/v2/rerank": one_answer,
    "/rerank": one_answer,
    "/v1/score": one_answer,
    "/score": one_answer,
    "/classify": one_answer,
    "/pooling": one_answer,
    "/v1/audio/transcriptions": audio,
    "/v1/audio/translations": audio,
    "/tokenize": token_counts,
    "/detokenize": token_counts,
}

REALTIME = "/v1/realtime"

# Inference and model paths of the engines. All other paths (/metrics, /sleep, /v1/load_lora_adapter) expose or control
# the engine; the operator must allow each of them.
PASSED = frozenset(
    {
        "/v1/models",
        "/v1/chat/completions/batch",
        REALTIME,
        "/health",
        "/ping",
        "/version",
    }
)
PASSED_BELOW = ("/v1/audio/", "/v1/models/", "/v1/responses/")

_ENDPOINTS = {
    "/v1/chat/completions": Endpoint.CHAT_COMPLETIONS,
    "/v1/completions": Endpoint.COMPLETIONS,
    "/v1/responses": Endpoint.RESPONSES,
    _MESSAGES: Endpoint.MESSAGES,
    "/v1/messages/count_tokens": Endpoint.COUNT_TOKENS,
    "/v1/embeddings": Endpoint.EMBEDDINGS,
    "/v1/rerank": Endpoint.RERANK,
    "/v2/rerank": Endpoint.RERANK,
    "/rerank": Endpoint.RERANK,
    "/v1/score": Endpoint.SCORE,
    "/score": Endpoint.SCORE,
    "/classify": Endpoint.CLASSIFY,
    "/pooling": Endpoint.POOLING,
    "/v1/audio/transcriptions": Endpoint.AUDIO_TRANSCRIPTIONS,
    "/v1/audio/translations": Endpoint.AUDIO_TRANSLATIONS,
    "/tokenize": Endpoint.TOKENIZE,
    "/detokenize": Endpoint.DETOKENIZE,
    "/v1/models": Endpoint.MODELS,
    REALTIME: Endpoint.REALTIME,
}
_ENDPOINTS_BELOW = (("/v1/responses/", Endpoint.RESPONSES_BY_ID), ("/v1/models/", Endpoint.MODELS))


class Route(Enum):
    """How the relay handles a request path."""

    METERED = "metered"
    PASSED = "passed"
    REFUSED = "refused"


_ROUTES = dict.fromkeys(PASSED, Route.PASSED) | dict.fromkeys(METERED, Route.METERED)


def normalise(target: str) -> str:
    """The path as the engine resolves it: decoded, without dot segments, double slashes or a query."""
    if target in METERED:
        return target
    if target.startswith("/"):
        path = target.split("?", 1)[0].split("#", 1)[0]
    else:  # the absolute form, http://host/path
        try:
            path = urlsplit(target).path
        except ValueError:
            return "/"
    path = posixpath.normpath("/" + unquote(path).lstrip("/"))
    return path if path.startswith("/") else "/"


def require_websocket(target: str, allowed: Iterable[str]) -> None:
    """Check that a WebSocket may be opened at a request target: at `REALTIME` and at the `allowed` paths.

    Raises:
        BadHttpError: it may not.
    """
    path = normalise(target)
    if path != REALTIME and (path not in allowed or path in METERED):
        message = f"{cut(path)} does not accept a WebSocket; the operator can allow it with --allow-path"
        raise BadHttpError(message, 426, "upgrade_not_supported")


def is_anthropic(path: str) -> bool:
    """Whether the API of the path is Anthropic's."""
    return path.startswith(_MESSAGES) and path[len(_MESSAGES) :][:1] in {"", "/"}


def forwarded_target(target: str) -> str:
    """The request target for the engine: the matched path, encoded so that it cannot end the request line."""
    path, mark, query = target.partition("?")
    matched = normalise(target)
    if matched == path:
        return target
    return quote(matched, safe="/:@!$&'()*+,;=") + mark + query


def route(target: str, allowed: Iterable[str] = ()) -> Route:
    """The route of a request target; `allowed` adds exact paths."""
    return route_of_path(normalise(target), allowed)


def route_of_path(path: str, allowed: Iterable[str] = ()) -> Route:
    """The route of a path that `normalise` has returned."""
    listed = _ROUTES.get(path)
    if listed is not None:
        return listed
    return Route.PASSED if path in allowed or path.startswith(PASSED_BELOW) else Route.REFUSED


def endpoint_of_path(path: str) -> Endpoint:
    """The API of a path that `normalise` has returned."""
    listed = _ENDPOINTS.get(path)
    if listed is not None:
        return listed
    return next((endpoint for prefix, endpoint in _ENDPOINTS_BELOW if path.startswith(prefix)), Endpoint.OTHER)
