"""Checks the target and its model with /v1/models before the load starts."""

import gevent
import msgspec

from exporters.errors import UsageError
from loadgen.completion_response import CompletionResponse, error_text
from loadgen.http_client import HttpClient, UnreachableError
from loadgen.http_response import ProtocolError
from loadgen.run_settings import RunSettings

TIMEOUT = 10.0


def find_model(settings: RunSettings, client: HttpClient) -> str:
    """The model to send requests for.

    Raises:
        UsageError: the target does not respond, or does not serve the requested model.
    """
    response = CompletionResponse()
    path = f"{settings.target.path}/v1/models"
    request = f"GET {path} HTTP/1.1\r\nhost: {settings.target.netloc}\r\nconnection: close\r\n\r\n".encode("ascii")
    hint = "start it, or set --no-check"
    try:
        with gevent.Timeout(TIMEOUT):
            client.exchange(request, response)
    except gevent.Timeout as error:
        raise UsageError(f"--target {settings.target}: no response in {TIMEOUT:.0f} s; {hint}") from error
    except UnreachableError as error:
        raise UsageError(f"--target {settings.target}: {error}; {hint}") from error
    except ProtocolError as error:
        raise UsageError(f"--target {settings.target}: not an HTTP/1.1 server: {error}") from error
    if response.http.status != 200:
        text = error_text(response.body)
        raise UsageError(f"--target {settings.target}: {path} returned {response.http.status}: {text}; {hint}")
    try:
        models = [str(model["id"]) for model in msgspec.json.decode(response.body)["data"]]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(f"--target {settings.target}: {path} is not a list of models; set --no-check") from error
    if settings.model is not None and settings.model not in models:
        raise UsageError(f"--model {settings.model}: not served by {settings.target}; known: {', '.join(models)}")
    if not models:
        raise UsageError(f"--target {settings.target}: {path} lists no model; {hint}")
    return settings.model or models[0]
