"""Checks the flags of `vllm-slo sidecar --follow`."""

import argparse
from pathlib import Path

from exporters.configuration.flags import flags_of
from exporters.configuration.sidecar import FollowedLog, LogFormat, SidecarFlags
from exporters.text.errors import UsageError


def read_followed(arguments: argparse.Namespace) -> FollowedLog | None:
    """The log to follow, or None.

    Raises:
        UsageError: a value is invalid, a flag is missing, or flags have no effect with these.
    """
    if not arguments.follow:
        for flag in ("--follow-format", "--follow-state"):
            if getattr(arguments, flag.removeprefix("--").replace("-", "_")) is not None:
                raise UsageError(f"{flag}: needs a log; add --follow FILE")
        return None
    try:
        log_format = LogFormat(arguments.follow_format or LogFormat.VLLM_SLO)
    except ValueError as error:
        raise UsageError(f"--follow-format: {arguments.follow_format!r} is unknown; use vllm-slo or nginx") from error
    refused = [
        flag.option
        for flag in flags_of(SidecarFlags)
        if log_format in flag.no_effect and flag.given(arguments) != flag.text
    ]
    if refused:
        raise UsageError(
            "\n".join(
                f"{flag}: has no effect with --follow and --follow-format {log_format}; remove it" for flag in refused
            )
        )
    if not arguments.follow_state:
        raise UsageError("--follow: needs a file that keeps the position and the counts; add --follow-state FILE")
    path, state = Path(arguments.follow).absolute(), Path(arguments.follow_state).absolute()
    if path == state:
        raise UsageError(f"--follow-state: {state} is the followed log; use another file")
    if path.exists() and not path.is_file():
        raise UsageError(f"--follow: {path} is not a regular file")
    return FollowedLog(path=str(path), format=log_format, state=str(state))
