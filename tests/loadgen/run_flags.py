"""Parses the flags of `vllm-slo load run` for tests, and takes the text of a refusal."""

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from exporters.text.errors import UsageError
from loadgen import command


def parsed(*arguments: str) -> Any:
    parser = argparse.ArgumentParser(prog="vllm-slo load")
    command.configure(parser)
    return parser.parse_args(["run", *arguments])


def refusal(refused: Callable[[], object]) -> str:
    """The text of the error with which a call refuses its input."""
    with pytest.raises(UsageError) as found:
        refused()
    return str(found.value)
