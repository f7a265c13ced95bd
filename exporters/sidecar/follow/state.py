"""The file of `--follow-state`: positions in the log and the counts up to them, replaced in one step.

After a crash, lines behind the saved positions are counted again, into the saved counts: none is lost or counted twice.
"""

import logging
from pathlib import Path
from typing import Literal

import msgspec

from exporters.configuration.sidecar import FollowedLog
from exporters.sidecar.follow.log_parts import Position
from exporters.sidecar.ingest.saved_series import SavedSeries
from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import check_replaceable, replace_file

logger = logging.getLogger("vllm_slo.follow")

_PRIVATE = 0o600


class FollowState(msgspec.Struct, kw_only=True):
    """The contents of the file."""

    version: Literal[1] = 1
    log: str
    format: str
    positions: list[Position]
    lines: dict[str, int]
    series: SavedSeries


class FollowStateFile:
    """The file; a failed write is logged once and retried."""

    def __init__(self, followed: FollowedLog) -> None:
        self._followed = followed
        self._path = Path(followed.state)
        self._save_failed = False

    def check(self) -> None:
        """Check that the file can be written and belongs to the followed log; raises UsageError if not."""
        try:
            check_replaceable(self._path)
        except OSError as error:
            raise UsageError(f"--follow-state: {self._path} cannot be written: {system_reason(error)}") from error
        state = self.load()
        if state is not None and (state.log, state.format) != (self._followed.path, self._followed.format):
            raise UsageError(
                f"--follow-state: {self._path} belongs to {state.log} with --follow-format {state.format}; use another "
                f"file for {self._followed.path} with --follow-format {self._followed.format}"
            )

    def load(self) -> FollowState | None:
        """The stored state; None if there is no file. Raises UsageError if the file is invalid."""
        try:
            return msgspec.msgpack.decode(self._path.read_bytes(), type=FollowState)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"--follow-state: {self._path} cannot be read: {system_reason(error)}") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(
                f"--follow-state: {self._path} is not a valid state file: {error}; without it, the log is counted from "
                "its start"
            ) from error

    def exists(self) -> bool:
        return self._path.exists()

    def save(self, encoded: bytes) -> bool:
        """Replace the file; returns whether that has succeeded."""
        try:
            replace_file(self._path, encoded, _PRIVATE)
        except OSError as error:
            if not self._save_failed:
                logger.error(  # noqa: TRY400 - the message suffices
                    "--follow-state: %s cannot be written: %s; retrying", self._path, system_reason(error)
                )
            self._save_failed = True
            return False
        self._save_failed = False
        return True
