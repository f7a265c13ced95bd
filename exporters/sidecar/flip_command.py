"""`vllm-slo flip`: declares a config change that the sidecar cannot observe."""

import argparse
import http.client
from collections.abc import Sequence
from urllib.parse import urlsplit

import msgspec

from exporters.engines.config_changes import DeclarationResult
from exporters.errors import UsageError
from exporters.sidecar.http_api.admin import Accepted, Declaration, Refused, mistakes, read_token

TIMEOUT = 10.0

_MEANING = {
    DeclarationResult.CHANGED: "changed",
    DeclarationResult.NOTE_ADDED: "changed already, as the engine shows; the note is added to that change",
    DeclarationResult.PENDING: "the engine shows another value; the change counts when it shows this one",
    DeclarationResult.UNCHANGED: "unchanged",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting that holds from now on, such as scheduling_policy=priority or image=v0.33.0 (repeatable)",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="why, or what else; listed with the change")
    parser.add_argument(
        "--engine", metavar="HOST:PORT", help="the engine, as in the label `engine` (default: all of that sidecar)"
    )
    parser.add_argument(
        "--admin",
        default="http://127.0.0.1:9464",
        metavar="URL",
        help="the sidecar's metrics port (default %(default)s)",
    )
    parser.add_argument(
        "--token-file", required=True, metavar="FILE", help="the file that the sidecar has as --admin-token-file"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Declare the settings, and print the result for each."""
    token = read_token(arguments.token_file, "--token-file")
    declaration = Declaration(set=_settings(arguments.set), note=arguments.note, engine=arguments.engine)
    if errors := mistakes(declaration):
        raise UsageError("\n".join(f"--{error}" for error in errors))
    for engine, settings in _post(arguments.admin, token, declaration).items():
        for name, result in settings.items():
            print(f"{engine}: {name}={declaration.set[name]}: {_MEANING[result]}")
    return 0


def _settings(pairs: Sequence[str]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for text in pairs:
        name, sign, value = text.partition("=")
        if not sign:
            raise UsageError(f"--set: {text!r} has no value; write NAME=VALUE")
        if settings.setdefault(name, value) != value:
            raise UsageError(f"--set: {name} has two values, {settings[name]!r} and {value!r}; leave out one of them")
    return settings


def _post(url: str, token: bytes, declaration: Declaration) -> dict[str, dict[str, DeclarationResult]]:
    # Not urllib: it would send the token to wherever a redirect or a proxy of the environment points.
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"--admin: {url!r} is no address: {error}; write http://host:port") from error
    if parts.scheme not in {"http", "https"} or not host or parts.path not in {"", "/"}:
        raise UsageError(f"--admin: {url!r} is no address; write http://host:port or https://host:port")
    connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connect(host, port, timeout=TIMEOUT)
    headers = {"authorization": f"Bearer {token.decode()}", "content-type": "application/json"}
    try:
        connection.request("POST", "/admin/flip", msgspec.json.encode(declaration), headers)
        response = connection.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise UsageError(f"--admin: {url}: no answer: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()
    if response.status == 401:
        raise UsageError("--token-file: the sidecar has another token; use the file of its --admin-token-file")
    if response.status == 404:
        raise UsageError(f"--admin: {url} has no /admin/flip; start that sidecar with --admin-token-file FILE")
    try:
        if response.status == 200:
            return msgspec.json.decode(text, type=Accepted).engines
        errors = msgspec.json.decode(text, type=Refused).errors
    except msgspec.DecodeError as error:
        raise UsageError(f"--admin: {url} is no sidecar: it answered {response.status} with {text[:80]!r}") from error
    raise UsageError("\n".join(f"--{mistake}" for mistake in errors))
