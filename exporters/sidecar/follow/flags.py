"""Checks the flags of `vllm-slo sidecar --follow`."""

from pathlib import Path

from exporters.configuration.flags import flags_of
from exporters.configuration.sidecar import REQUEST_LOG, FollowedLog, LogKind, SidecarFlags
from exporters.sidecar.follow import access_fields
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import find_built_in


def read_followed(given: SidecarFlags) -> FollowedLog | None:
    """The log to follow, or None; raises UsageError if a flag is missing, or flags have no effect with these."""
    if not given.followed:
        for flag, value in (("--follow-format", given.followed_format), ("--follow-state", given.follow_state)):
            if value is not None:
                raise UsageError(f"{flag}: needs a log; add --follow FILE")
        return None
    log_format, fields, kind = given.followed_format or REQUEST_LOG, None, LogKind.REQUEST_LOG
    if log_format != REQUEST_LOG:
        fields, kind = str(_field_map(log_format).absolute()), LogKind.ACCESS_LOG
    refused = [
        flag.option
        for flag in flags_of(SidecarFlags)
        if kind in flag.no_effect and getattr(given, flag.field) != flag.default
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
    return FollowedLog(path=str(path), format=log_format, fields=fields, state=str(state))


def _field_map(name: str) -> Path:
    """The file of a field map, after a check of its contents."""
    try:
        path = find_built_in(name, access_fields.SHIPPED, "log format")
    except UsageError as error:
        raise UsageError(f"--follow-format: {error}, {REQUEST_LOG}") from error
    access_fields.load(path)
    return path
