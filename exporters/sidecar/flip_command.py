"""`vllm-slo flip`: declares a config change that the sidecar cannot observe, and silences alerts if it is planned."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from exporters.engines.changes.config_changes import DeclarationResult
from exporters.http.admin_client import TOKEN_FLAG, add_flags, no_sidecar, post
from exporters.sidecar.http_api.admin_messages import Accepted, Declaration, Refused, mistakes, read_admin_token
from exporters.sidecar.silence import Alertmanager, matchers
from exporters.text.errors import UsageError, parse_flag
from exporters.text.units import parse_duration, spell_duration

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
    add_flags(parser)
    parser.add_argument(
        "--maintenance",
        metavar="TIME",
        help="silence the alerts of the engine, the model or all for this time, such as 20m; needs --alertmanager",
    )
    parser.add_argument("--alertmanager", metavar="URL", help="URL of Alertmanager, such as http://127.0.0.1:9093")
    parser.add_argument(
        "--model", metavar="NAME", help="value of the label `model` of the silenced alerts (default: all models)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Silence the alerts, declare the settings and print the result for each engine and setting."""
    token = read_admin_token(arguments.admin_token_file, TOKEN_FLAG)
    declaration = Declaration(set=_settings(arguments.set), note=arguments.note, engine=arguments.engine)
    if errors := mistakes(declaration):
        raise UsageError("\n".join(f"--{error}" for error in errors))
    with _silenced(arguments, declaration):
        results = _post(arguments.sidecar, token, declaration)
    for engine, settings in results.items():
        for name, result in settings.items():
            print(f"{engine}: {name}={declaration.set[name]}: {_MEANING[result]}")
    return 0


@contextmanager
def _silenced(arguments: argparse.Namespace, declaration: Declaration) -> Iterator[None]:
    """Silences the alerts first, as the change may come at once; a change that is not declared ends the silences."""
    if arguments.maintenance is None:
        if given := [name for name in ("alertmanager", "model") if getattr(arguments, name) is not None]:
            raise UsageError(f"--{given[0]}: only a planned change is silenced; add --maintenance TIME, such as 20m")
        yield
        return
    seconds = parse_flag("--maintenance", arguments.maintenance, partial(parse_duration, examples="20m or 1h"))
    if arguments.alertmanager is None:
        raise UsageError(
            "--maintenance: needs Alertmanager to silence alerts; add --alertmanager URL, such as http://127.0.0.1:9093"
        )
    alertmanager, silences = Alertmanager.parse(arguments.alertmanager), matchers(arguments.engine, arguments.model)
    settings = ", ".join(f"{name}={value}" for name, value in declaration.set.items())
    ids = alertmanager.silence(
        silences, seconds, ": ".join(filter(None, (f"planned change of {settings}", declaration.note)))
    )
    try:
        yield
    except UsageError as error:
        try:
            alertmanager.expire(ids)
        except UsageError as failure:
            raise UsageError(f"{error}\n{failure}\nthe silence {', '.join(ids)} was not ended") from error
        raise
    for silence_id, matched in zip(ids, silences, strict=True):
        print(f"silenced for {spell_duration(seconds)}: {{{', '.join(map(str, matched))}}} (silence {silence_id})")
    print(f"alerts resume by themselves; to end this earlier: amtool silence expire {' '.join(ids)}")
    print("the error budget is still charged")


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
    status, text = post(url, "/admin/flip", token, msgspec.json.encode(declaration))
    try:
        if status == 200:
            return msgspec.json.decode(text, type=Accepted).engines
        errors = msgspec.json.decode(text, type=Refused).errors
    except msgspec.DecodeError as error:
        raise no_sidecar(url, status, text) from error
    raise UsageError("\n".join(f"--{mistake}" for mistake in errors))
