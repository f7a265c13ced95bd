"""Checks the flags of `vllm-slo sidecar --follow`."""

from pathlib import Path

from exporters.configuration.flags import flags_of
from exporters.configuration.sidecar import FollowedLog, LogFormat, SidecarFlags
from exporters.text.errors import UsageError


def read_followed(given: SidecarFlags) -> FollowedLog | None:
    """The log to follow, or None.

    Raises:
        UsageError: a flag is missing, or flags have no effect with these.
    """
    if not given.followed:
        for flag, value in (("--follow-format", given.followed_format), ("--follow-state", given.follow_state)):
            if value is not None:
                raise UsageError(f"{flag}: needs a log; add --follow FILE")
        return None
    log_format = given.followed_format or LogFormat.VLLM_SLO
    refused = [
        flag.option
        for flag in flags_of(SidecarFlags)
        if log_format in flag.no_effect and getattr(given, flag.field) != flag.default
    ]
    if refused:
        raise UsageError(
            "\n".join(
                f"{flag}: has no effect with --follow and --follow-format {log_format}; remove it" for flag in refused
            )
        )
    if not given.follow_state:
        raise UsageError("--follow: needs a file that keeps the position and the counts; add --follow-state FILE")
    path, state = Path(given.followed).absolute(), Path(given.follow_state).absolute()
    if path == state:
        raise UsageError(f"--follow-state: {state} is the followed log; use another file")
    if path.exists() and not path.is_file():
        raise UsageError(f"--follow: {path} is not a regular file")
    return FollowedLog(path=str(path), format=log_format, state=str(state))
