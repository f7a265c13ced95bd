"""Environment variables as defaults of flags."""

import argparse
from collections.abc import Mapping
from typing import Any

from exporters.text.errors import UsageError

_SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False}


def variable(option: str) -> str:
    """The environment variable of a flag: VLLM_SLO_LISTEN of --listen."""
    return f"VLLM_SLO_{option.removeprefix('--').replace('-', '_').upper()}"


def switch(name: str, value: str) -> bool:
    """The value of a switch; raises UsageError if it is neither true nor false."""
    try:
        return _SWITCH[value.lower()]
    except KeyError:
        raise UsageError(f"{name}: {value!r} is neither true nor false; write one of them") from None


class _Overridden(list[Any]):
    """The values of a repeatable flag from the environment: argparse appends to a copy, which is empty."""

    def __copy__(self) -> list[Any]:
        return []


def set_defaults(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Set the default of --listen from VLLM_SLO_LISTEN, and so on; that of a repeatable flag is comma-separated.

    Raises:
        UsageError: a value is invalid; argparse checks no defaults.
    """
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of a parser's options
        if not action.option_strings or action.default is argparse.SUPPRESS:
            continue
        name = variable(action.option_strings[0])
        if name in environment:
            parser.set_defaults(**{action.dest: _default(parser, action, name, environment[name])})
            action.required = False


def _default(parser: argparse.ArgumentParser, action: argparse.Action, name: str, value: str) -> object:
    def parse(text: str) -> object:
        try:
            found = parser._get_value(action, text)  # noqa: SLF001 - as for a flag
            parser._check_value(action, found)  # noqa: SLF001
        except argparse.ArgumentError as error:
            raise UsageError(f"{name}: {error.message}") from error
        return found

    if action.nargs == 0:
        return switch(name, value)
    if isinstance(action, argparse._AppendAction):  # noqa: SLF001
        return _Overridden(map(parse, value.split(",")))
    return parse(value)
