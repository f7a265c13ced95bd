"""The command line, for the tests of every command of the exporters."""

import pytest

from tests.support.command_line import CommandLine


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(capsys)
