"""Stores the config changes of each engine in a file, so that they survive a restart of the sidecar."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from exporters.engines.changes.config_changes import ConfigHistory, ConfigWatch
from exporters.text.errors import UsageError, system_reason
from exporters.text.output_files import check_replaceable, replace_file

logger = logging.getLogger("vllm_slo.engines")


class _StateFile(msgspec.Struct):
    version: Literal[1]
    # Unix seconds of the write; the file is not written again while the settings stay the same.
    seen_at: float
    engines: dict[str, ConfigHistory]


_encode = msgspec.json.Encoder().encode


class ConfigChangeStore:
    """The file of `--state`; an invalid file is renamed, and a failed write is logged once and retried."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._broken_path = path.with_name(f"{path.name}.broken")
        self._saved = b""
        self._save_failed = False

    def check(self) -> None:
        """Check that the file can be written.

        Raises:
            UsageError: the file cannot be written.
        """
        try:
            check_replaceable(self._path)
        except OSError as error:
            raise UsageError(f"--state: {self._path} cannot be written: {system_reason(error)}") from error

    def load(self) -> dict[str, ConfigWatch]:
        """The stored histories by engine; empty if the file is missing or invalid."""
        try:
            state = msgspec.json.decode(self._path.read_bytes(), type=_StateFile)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._warn(f"{self._path} cannot be read: {system_reason(error)}; starting without it")
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            problem = f"{self._path} is not a valid state file: {error}"
            try:
                self._path.replace(self._broken_path)
            except OSError as rename_error:
                self._warn(f"{problem}; it cannot be renamed: {system_reason(rename_error)}; it will be overwritten")
            else:
                self._warn(f"{problem}; renamed to {self._broken_path.name}, starting without it")
            return {}
        return {name: ConfigWatch(history, state.seen_at) for name, history in state.engines.items()}

    def save(self, engines: Mapping[str, ConfigHistory], now: float) -> None:
        """Replace the file if the histories have changed since the last write, or if the file was removed."""
        encoded = _encode(engines)
        if encoded == self._saved and self._path.exists():
            return
        try:
            replace_file(self._path, _encode(_StateFile(version=1, seen_at=now, engines=dict(engines))))
        except OSError as error:
            if not self._save_failed:
                self._warn(f"{self._path} cannot be written: {system_reason(error)}; config changes stay in memory")
            self._save_failed = True
            return
        self._saved, self._save_failed = encoded, False

    def _warn(self, text: str) -> None:
        logger.warning("--state: %s", text)
