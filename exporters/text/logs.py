"""Sets up the logging of a process: lines on standard error, as text or as JSON objects."""

import argparse
import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType

from exporters.text.errors import alternatives

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("text", "json")


LEVEL_HELP = f"minimum level of messages logged on standard error: {alternatives(LEVELS)} (default %(default)s)"
FORMAT_HELP = f"{alternatives(FORMATS)}; json writes one object per line (default %(default)s)"


def add_logging_flags(parser: argparse.ArgumentParser) -> None:
    """Declare --log-level and --log-format."""
    group = parser.add_argument_group("logging")
    group.add_argument("--log-level", choices=LEVELS, default="info", metavar="LEVEL", help=LEVEL_HELP)
    group.add_argument("--log-format", choices=FORMATS, default="text", metavar="FORMAT", help=FORMAT_HELP)


def configure_logging(level: str, format: str, process: str) -> None:  # noqa: A002 - named as the flag
    """Log to standard error, uncaught exceptions included; `process` names this process on each line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(process) if format == "json" else TextFormatter(process))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread


class TextFormatter(logging.Formatter):
    """`TIME LEVEL PROCESS: MESSAGE`, followed by the traceback of an exception."""

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s {process.replace('%', '%%')}: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's
        return _time(record)


class JsonFormatter(logging.Formatter):
    """A JSON object with time, level, logger, process and message; `exception` is a traceback."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": self._process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _log_uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, traceback)
    else:
        logging.getLogger("vllm_slo").critical("uncaught exception", exc_info=(kind, error, traceback))


def _log_uncaught_in_thread(arguments: threading.ExceptHookArgs) -> None:
    name = "unknown" if arguments.thread is None else arguments.thread.name
    error = arguments.exc_value or arguments.exc_type()
    exc_info = (arguments.exc_type, error, arguments.exc_traceback)
    logging.getLogger("vllm_slo").critical("uncaught exception in thread %s", name, exc_info=exc_info)
