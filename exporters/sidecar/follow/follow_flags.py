"""The flags of `vllm-slo sidecar --follow`."""

import argparse
from pathlib import Path

from exporters.configuration.sidecar_config import FollowedLog, LogFormat
from exporters.errors import UsageError

ONLY_RELAY = (
    *("--listen", "--tls-cert", "--tls-key", "--expose-engine-metrics", "--workers"),
    *("--max-head", "--max-body", "--connect-timeout", "--client-idle"),
    *("--cut-stalled-client", "--cut-first-token", "--cut-idle", "--drain-delay", "--drain"),
    *("--no-inject-usage", "--request-log", "--request-log-max-size", "--request-log-max-age", "--request-log-total"),
    *("--log-content-limit", "--prompt-hash-salt-file"),
    *("--otlp", "--otlp-header", "--otlp-semconv", "--trace-good", "--engine-spans"),
)
"""Flags that have no effect with --follow."""

ONLY_REQUEST_LOG = ("--check-structured-output", "--log-content", "--log-prefix-hashes")
"""Flags that say what the followed request log contains; an access log of nginx has nothing of it."""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, after those that have no effect with them."""
    follow = parser.add_argument_group("follow a log", "series from a growing log, without a relay")
    follow.add_argument(
        "--follow", metavar="FILE", help="count the requests of this log instead of relaying (default: relay requests)"
    )
    follow.add_argument(
        "--format",
        metavar="FORMAT",
        help="format of the log: vllm-slo (a request log) or nginx (the documented log_format) (default: vllm-slo)",
    )
    follow.add_argument(
        "--follow-state",
        metavar="FILE",
        help="file that keeps the position in the log and the counts; needed by --follow",
    )
    flags = (*ONLY_RELAY, *ONLY_REQUEST_LOG, "--allow-path")
    parser.set_defaults(defaults={flag: parser.get_default(_destination(flag)) for flag in flags})


def read(arguments: argparse.Namespace) -> FollowedLog | None:
    """The log to follow, or None.

    Raises:
        UsageError: a value is invalid, a flag is missing, or flags have no effect with these.
    """
    if not arguments.follow:
        for flag in ("--format", "--follow-state"):
            if getattr(arguments, _destination(flag)) is not None:
                raise UsageError(f"{flag}: needs a log; add --follow FILE")
        return None
    try:
        log_format = LogFormat(arguments.format or LogFormat.VLLM_SLO)
    except ValueError as error:
        raise UsageError(f"--format: {arguments.format!r} is unknown; use vllm-slo or nginx") from error
    nginx = log_format is LogFormat.NGINX
    refused = [
        flag
        for flag in (*ONLY_RELAY, *(ONLY_REQUEST_LOG if nginx else ("--allow-path",)))
        if getattr(arguments, _destination(flag)) != arguments.defaults[flag]
    ]
    if refused:
        raise UsageError(
            "\n".join(f"{flag}: has no effect with --follow and --format {log_format}; remove it" for flag in refused)
        )
    if not arguments.follow_state:
        raise UsageError("--follow: needs a file that keeps the position and the counts; add --follow-state FILE")
    path, state = Path(arguments.follow).absolute(), Path(arguments.follow_state).absolute()
    if path == state:
        raise UsageError(f"--follow-state: {state} is the followed log; use another file")
    if path.exists() and not path.is_file():
        raise UsageError(f"--follow: {path} is not a regular file")
    return FollowedLog(path=str(path), format=log_format, state=str(state))


def _destination(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
