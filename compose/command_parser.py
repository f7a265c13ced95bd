"""The parser of one command: refuses unknown and abbreviated flags, and reads the environment."""

import argparse
import os
from collections.abc import Sequence
from typing import Any, NoReturn

from compose.renamed_flags import new_flag, old_variables
from exporters.text.environment import set_defaults
from exporters.text.errors import UsageError

_MANY = 12


class CommandParser(argparse.ArgumentParser):
    """Raises UsageError for wrong usage, instead of printing all flags and exiting."""

    def __init__(self, *positional: Any, **named: Any) -> None:
        super().__init__(*positional, **{"allow_abbrev": False, **named})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, after a check of the flags (of a command without subcommands) and their variables."""
        words = list(args or ())
        if not any(isinstance(each, argparse._SubParsersAction) for each in self._actions):  # noqa: SLF001
            self._check_flags(words)
            self._check_variables()
            set_defaults(self, os.environ)
        found, extra = super().parse_known_args(words, namespace)
        if extra:
            self.error(f"{extra[0]!r} is not expected{self._positional_hint()}")
        return found, extra

    def format_help(self) -> str:
        """The usage of a command with many flags has only the required ones: all are explained below it."""
        if len(self._actions) > _MANY:
            required = [action for action in self._actions if action.required and action.option_strings]
            flags = (f"{action.option_strings[0]} {action.metavar}" for action in required)
            self.usage = " ".join([self.prog, *flags, "[FLAGS]"])
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        if message.startswith("argument -"):  # the value of a flag; else the usage is wrong
            raise UsageError(message.removeprefix("argument "))
        raise UsageError(f"{message}\nsee: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            from exporters.text.yaml_reader import nearest  # noqa: PLC0415 - imports YAML, which only an error needs

            message = f"{value!r} is unknown; {nearest(str(value), map(str, action.choices))}"
            raise argparse.ArgumentError(action, message)

    def _check_flags(self, words: Sequence[str]) -> None:
        """Report an unknown flag before a required one that is missing, which it may be meant to be."""
        for word in words:
            if word == "--":
                return
            flag = word.partition("=")[0]
            if flag.startswith("--") and " " not in flag and flag not in self._option_string_actions:
                self.error(f"{flag}: {self._renamed(flag) or self._unknown(flag)}")

    def _check_variables(self) -> None:
        for name, now in old_variables(self.prog):
            if name in os.environ:
                self.error(f"{name}: its flag has another name, and so has the variable; write {now}")

    def _renamed(self, flag: str) -> str | None:
        now = new_flag(self.prog, flag)
        return now and f"has another name; write {now}"

    def _unknown(self, flag: str) -> str:
        from exporters.text.yaml_reader import nearest  # noqa: PLC0415 - imports YAML, which only an error needs

        flags = sorted(name for name in self._option_string_actions if name.startswith("--"))
        meant = nearest(flag, [name for name in flags if name.startswith(flag)] or flags)
        return f"there is no such flag; {meant}" if meant.startswith("did") else "there is no such flag"

    def _positional_hint(self) -> str:
        now = new_flag(self.prog)
        return f"; write {now}" if now else ""
