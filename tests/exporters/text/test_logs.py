"""The log lines of a process, in a subprocess because logging configuration is global."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from compose.command_parser import CommandParser
from exporters.text.errors import UsageError
from exporters.text.logs import add_logging_flags

pytestmark = pytest.mark.slow

WARN = "logging.getLogger('vllm_slo.relay').warning('%s of %d', 'one', 2)"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


def standard_error(statements: str, level: str = "info", format: str = "text") -> str:  # noqa: A002 - named as the flag
    program = (
        "import logging, threading; from exporters.text.logs import configure_logging; "
        f"configure_logging({level!r}, {format!r}, 'relay-0'); {statements}"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr


def test_a_line_of_text_has_time_level_process_and_message() -> None:
    assert re.fullmatch(f"{TIME} WARNING relay-0: one of 2\n", standard_error(WARN))


def test_a_line_of_json_has_the_logger_too() -> None:
    line = json.loads(standard_error(WARN, format="json"))
    assert abs(datetime.fromisoformat(line.pop("time")) - datetime.now(UTC)) < timedelta(minutes=1)
    assert line == {"level": "warning", "logger": "vllm_slo.relay", "process": "relay-0", "message": "one of 2"}


def test_messages_below_the_level_are_not_logged() -> None:
    assert standard_error(WARN, level="error") == ""


@pytest.mark.parametrize(
    "statements, message",
    [
        pytest.param("1 / 0", "uncaught exception", id="of the process"),
        pytest.param(
            "thread = threading.Thread(target=lambda: 1 / 0, name='sender'); thread.start(); thread.join()",
            "uncaught exception in thread sender",
            id="of a thread",
        ),
    ],
)
def test_an_uncaught_exception_is_logged_with_its_traceback(statements: str, message: str) -> None:
    line = json.loads(standard_error(statements, format="json"))
    assert (line["level"], line["message"]) == ("critical", message)
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("\nZeroDivisionError: division by zero")
    assert f" CRITICAL relay-0: {message}\nTraceback " in standard_error(statements)


@pytest.mark.parametrize(
    "words, message",
    [
        (["--log-level", "loud"], "--log-level: 'loud' is unknown; known: debug, info, warning, error"),
        (["--log-format", "xml"], "--log-format: 'xml' is unknown; known: text, json"),
    ],
)
def test_an_unknown_level_or_format_is_rejected(words: list[str], message: str) -> None:
    parser = CommandParser()
    add_logging_flags(parser)
    with pytest.raises(UsageError) as refused:
        parser.parse_args(words)
    assert str(refused.value) == message
