"""The parser of every command and subcommand."""

import argparse
from collections.abc import Iterator

from compose.cli import COMMANDS, parser


def leaf_parsers() -> dict[str, argparse.ArgumentParser]:
    """The parsers that take flags, by the words of their command."""
    return {each.prog.removeprefix("vllm-slo "): each for name in COMMANDS for each in _leaves(parser(name))}


def _leaves(of: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    groups = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not groups:
        yield of
    for group in groups:
        for child in group.choices.values():
            yield from _leaves(child)
