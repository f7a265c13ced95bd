"""Environment variables as defaults of flags."""

import argparse
from collections.abc import Mapping


def set_defaults(parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
    """Set the default of --listen from VLLM_SLO_LISTEN, and so on; that of a repeatable flag is comma-separated."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of a parser's options
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for child in action.choices.values():
                set_defaults(child, environment)
            continue
        value = environment.get(f"VLLM_SLO_{action.dest.upper()}")
        if not action.option_strings or action.dest == "help" or value is None:
            continue
        if isinstance(action, argparse._StoreTrueAction):  # noqa: SLF001
            parser.set_defaults(**{action.dest: value.lower() in {"1", "true", "yes"}})
        else:
            repeatable = isinstance(action, argparse._AppendAction)  # noqa: SLF001
            parser.set_defaults(**{action.dest: value.split(",") if repeatable else value})
            action.required = False
