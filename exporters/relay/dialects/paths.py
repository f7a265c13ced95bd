"""Selects the request paths that are metered, passed through or rejected."""

import posixpath
from collections.abc import Iterable, Mapping
from enum import Enum
from urllib.parse import quote, unquote, urlsplit

from exporters.relay.dialects import audio, chat, messages, one_answer, responses, token_counts
from exporters.relay.dialects.dialect import Dialect
from exporters.text.names import cut
from exporters.vocabulary.signals import Endpoint

_MESSAGES = "/v1/messages"

_APIS: Mapping[str, tuple[Dialect, Endpoint]] = {
    "/v1/chat/completions": (chat, Endpoint.CHAT_COMPLETIONS),
    "/v1/completions": (chat, Endpoint.COMPLETIONS),
    "/v1/responses": (responses, Endpoint.RESPONSES),
    _MESSAGES: (messages, Endpoint.MESSAGES),
    "/v1/messages/count_tokens": (token_counts, Endpoint.COUNT_TOKENS),
    "/v1/embeddings": (one_answer, Endpoint.EMBEDDINGS),
    "/v1/rerank": (one_answer, Endpoint.RERANK),
    "/v2/rerank": (one_answer, Endpoint.RERANK),
    "/rerank": (one_answer, Endpoint.RERANK),
    "/v1/score": (one_answer, Endpoint.SCORE),
    "/score": (one_answer, Endpoint.SCORE),
    "/classify": (one_answer, Endpoint.CLASSIFY),
    "/pooling": (one_answer, Endpoint.POOLING),
    "/v1/audio/transcriptions": (audio, Endpoint.AUDIO_TRANSCRIPTIONS),
    "/v1/audio/translations": (audio, Endpoint.AUDIO_TRANSLATIONS),
    "/tokenize": (token_counts, Endpoint.TOKENIZE),
    "/detokenize": (token_counts, Endpoint.DETOKENIZE),
}

METERED: Mapping[str, Dialect] = {path: dialect for path, (dialect, _) in _APIS.items()}

REALTIME = "/v1/realtime"
ENGINE_METRICS = "/metrics"

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

_ENDPOINTS = {path: endpoint for path, (_, endpoint) in _APIS.items()} | {
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


def refuses_upgrade(path: str, allowed: Iterable[str], *, websocket: bool) -> str | None:
    """Why no other protocol may be used at a path; None for a WebSocket at `REALTIME` and at the `allowed` paths."""
    if not websocket:
        return "protocol upgrades and tunnels are not supported"
    if path != REALTIME and (path not in allowed or path in METERED):
        return f"{cut(path)} does not accept a WebSocket; the operator can allow it with --allow-path"
    return None


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


def route_of_path(path: str, allowed: Iterable[str] = ()) -> Route:
    """The route of a path that `normalise` has returned; `allowed` adds exact paths."""
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
