"""`vllm-slo flip`: declares a config change that the sidecar cannot observe."""

import argparse
from collections.abc import Sequence

import msgspec

from exporters.engines.config_changes import DeclarationResult
from exporters.errors import UsageError
from exporters.sidecar.admin_client import add_flags, no_sidecar, post
from exporters.sidecar.http_api.admin import Accepted, Declaration, Refused, mistakes, read_admin_token

_MEANING = {
    DeclarationResult.CHANGED: "changed",
    DeclarationResult.NOTE_ADDED: "changed already; the note is added to the detected change",
    DeclarationResult.PENDING: "pending; the engine still reports another value",
    DeclarationResult.UNCHANGED: "unchanged",
}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="new value of a setting, such as scheduling_policy=priority or image=v0.33.0 (repeatable)",
    )
    parser.add_argument("--note", default="", metavar="TEXT", help="reason or description of the change")
    parser.add_argument(
        "--engine", metavar="HOST:PORT", help="value of the label `engine` (default: all engines of the sidecar)"
    )
    add_flags(parser, "--admin")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Declare the settings and print the result for each engine and setting."""
    token = read_admin_token(arguments.token_file, "--token-file")
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
            raise UsageError(f"--set: {name} has two values, {settings[name]!r} and {value!r}; remove one of them")
    return settings


def _post(url: str, token: bytes, declaration: Declaration) -> dict[str, dict[str, DeclarationResult]]:
    status, text = post("--admin", url, "/admin/flip", token, msgspec.json.encode(declaration))
    try:
        if status == 200:
            return msgspec.json.decode(text, type=Accepted).engines
        errors = msgspec.json.decode(text, type=Refused).errors
    except msgspec.DecodeError as error:
        raise no_sidecar("--admin", url, status, text) from error
    raise UsageError("\n".join(f"--{mistake}" for mistake in errors))
