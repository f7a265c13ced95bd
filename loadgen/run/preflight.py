"""Checks the target and its model with /v1/models before the load starts."""

import msgspec

from exporters.http.parser import BadHttpError
from exporters.text.errors import NotReachableError, UsageError
from loadgen.client.completion import CompletionResponse, error_text
from loadgen.client.http_client import HttpClient, UnreachableError, UntrustedError
from loadgen.client.target import API_KEY, Target
from loadgen.run.settings import RunSettings

TIMEOUT = 10.0
_SKIP = "set --no-check and --model"


def connect(settings: RunSettings) -> tuple[HttpClient, str]:
    """A client of the target, and the model to send requests for.

    Raises:
        UsageError: the target has no address, does not respond, or does not serve the requested model.
    """
    try:
        client = HttpClient(settings.target)
    except UnreachableError as error:
        raise NotReachableError(f"--target {settings.target}: {error}") from error
    return client, find_model(settings, client) if settings.check else settings.model or ""


def find_model(settings: RunSettings, client: HttpClient) -> str:
    """The model to send requests for.

    Raises:
        UsageError: the target does not respond, or does not serve the requested model.
    """
    models = _context_lengths(settings, client)
    if settings.model is not None and settings.model not in models:
        raise UsageError(f"--model {settings.model}: not served by {settings.target}; known: {', '.join(models)}")
    return settings.model or next(iter(models))


def context_length(settings: RunSettings, client: HttpClient, model: str) -> int | None:
    """The limit of prompt and output tokens of a model, as vLLM lists it; None if it is unknown.

    Raises:
        UsageError: as in `find_model`.
    """
    return _context_lengths(settings, client).get(model)


def _context_lengths(settings: RunSettings, client: HttpClient) -> dict[str, int | None]:
    """All models, at least one."""
    target, path = settings.target, f"{settings.target.path}/v1/models"
    hint = f"start it, or {_SKIP}"
    try:
        response = client.get("/v1/models", TIMEOUT)
    except UntrustedError as error:
        raise UsageError(f"--target {target}: {error}; set --target-ca to its CA certificates") from error
    except UnreachableError as error:
        raise NotReachableError(f"--target {target}: {error}; {hint}") from error
    except BadHttpError as error:
        raise UsageError(f"--target {target}: not an HTTP/1.1 server: {error}") from error
    text = target.without_key(error_text(response.body))
    if (status := response.http.status) != 200:
        raise UsageError(f"--target {target}: {path} returned {status}: {text or 'no text'}; {_hint(target, response)}")
    try:
        listed = [
            (str(model["id"]), model.get("max_model_len")) for model in msgspec.json.decode(response.body)["data"]
        ]
    except (msgspec.DecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--target {target}: {path} is not a list of models but {text[:80]!r}; set the base URL of an "
            f"OpenAI-compatible API, or {_SKIP}"
        ) from error
    if not listed:
        raise UsageError(f"--target {target}: {path} lists no model; {hint}")
    return {name: tokens if isinstance(tokens, int) and tokens > 0 else None for name, tokens in listed}


def _hint(target: Target, response: CompletionResponse) -> str:
    """What to do about a status that is not 200."""
    match response.http.status:
        case 401 | 403 if target.api_key is None:
            return f"set --api-key-file or {API_KEY}"
        case 401 | 403:
            return f"the target does not accept the key of --api-key-file or {API_KEY}"
        case 404:
            return f"check the path of the URL, or {_SKIP}"
        case status if status is not None and status < 400:
            return f"redirects are not followed: set the URL of {_location(response)}"
        case _:
            return f"wait until it is ready, or {_SKIP}"


def _location(response: CompletionResponse) -> str:
    found = response.http.head and response.http.head.fields.get(b"location")
    return found.decode("latin-1") if found else "its location"
