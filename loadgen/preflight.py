"""Asks the target for its models before any load, so that a wrong address or name costs nothing."""

import gevent
import msgspec

from exporters.errors import UsageError
from loadgen.http_client import Client, UnreachableError
from loadgen.http_response import ProtocolError
from loadgen.response import Answer, error_text
from loadgen.run_settings import Settings

SECONDS = 10.0


def model(settings: Settings, client: Client) -> str:
    """The model to ask for.

    Raises:
        UsageError: the target does not answer, or does not serve the model that was chosen.
    """
    answer = Answer()
    path = f"{settings.target.path}/v1/models"
    request = f"GET {path} HTTP/1.1\r\nhost: {settings.target.netloc}\r\nconnection: close\r\n\r\n".encode("ascii")
    hint = "start it first, or give --no-check"
    try:
        with gevent.Timeout(SECONDS):
            client.exchange(request, answer)
    except gevent.Timeout as error:
        raise UsageError(f"--target {settings.target}: no answer in {SECONDS:.0f} s; {hint}") from error
    except UnreachableError as error:
        raise UsageError(f"--target {settings.target}: {error}; {hint}") from error
    except ProtocolError as error:
        raise UsageError(f"--target {settings.target}: does not speak HTTP/1.1: {error}") from error
    if answer.http.status != 200:
        text = error_text(answer.body)
        raise UsageError(f"--target {settings.target}: {path} answers {answer.http.status}: {text}; {hint}")
    try:
        models = [str(model["id"]) for model in msgspec.json.decode(answer.body)["data"]]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise UsageError(f"--target {settings.target}: {path} is no list of models; give --no-check") from error
    if settings.model is not None and settings.model not in models:
        raise UsageError(f"--model {settings.model}: is not served by {settings.target}; it has {', '.join(models)}")
    if not models:
        raise UsageError(f"--target {settings.target}: {path} names no model; {hint}")
    return settings.model or models[0]
