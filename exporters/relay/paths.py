"""Which request paths are metered, which pass through and which are refused."""

import posixpath
from collections.abc import Iterable
from enum import Enum
from urllib.parse import quote, unquote, urlsplit

METERED = frozenset({"/v1/chat/completions", "/v1/completions"})

# Inference and model paths of the engines; everything else (/metrics, /sleep, /v1/load_lora_adapter, whatever comes
# next) acts on the engine itself and must be allowed by name.
PASSED = frozenset(
    {
        "/v1/models",
        "/v1/embeddings",
        "/v1/responses",
        "/v1/messages",
        "/v1/rerank",
        "/v2/rerank",
        "/v1/score",
        "/rerank",
        "/score",
        "/tokenize",
        "/detokenize",
        "/health",
        "/ping",
        "/version",
    }
)
PASSED_BELOW = ("/v1/audio/", "/v1/models/")


class Route(Enum):
    """What happens to a request by its path."""

    METERED = "metered"
    PASSED = "passed"
    REFUSED = "refused"


_ROUTES = dict.fromkeys(PASSED, Route.PASSED) | dict.fromkeys(METERED, Route.METERED)


def normalise(target: str) -> str:
    """The path that an engine would see: decoded, dot segments and double slashes gone, no query."""
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


def forwarded_target(target: str) -> str:
    """The target that the engine gets: the path that was matched, and no byte that could end the request line."""
    path, mark, query = target.partition("?")
    matched = normalise(target)
    if matched == path:
        return target
    return quote(matched, safe="/:@!$&'()*+,;=") + mark + query


def route(target: str, allowed: Iterable[str] = ()) -> Route:
    """Where a request line's target leads; `allowed` adds exact paths."""
    path = normalise(target)
    listed = _ROUTES.get(path)
    if listed is not None:
        return listed
    return Route.PASSED if path in allowed or path.startswith(PASSED_BELOW) else Route.REFUSED
