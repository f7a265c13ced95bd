"""Runs commands of `vllm-slo` in this process."""

import json
from typing import Any

import pytest

from compose.cli import main


class CommandLine:
    """Prints to the capture of one test."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture
        self.errors = ""
        """What the last command wrote to standard error."""

    def __call__(self, *words: object, status: int = 0) -> str:
        """What the command prints; it has to exit with `status`."""
        try:
            found: Any = main([*map(str, words)])
        except SystemExit as exited:
            found = exited.code
        printed = self._capture.readouterr()
        assert found == status, printed.err
        self.errors = printed.err
        return printed.out

    def json(self, *words: object) -> Any:
        return json.loads(self(*words, "--format", "json"))

    def refusal(self, *words: object, status: int = 2) -> str:
        """The error, without the name of the program; nothing else is printed."""
        assert self(*words, status=status) == ""
        assert self.errors.startswith("vllm-slo: ")
        return self.errors.removeprefix("vllm-slo: ").removesuffix("\n")
