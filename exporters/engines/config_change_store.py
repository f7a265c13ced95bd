"""Keeps what is known of each engine's flips in a small file, over a restart of the sidecar."""

import contextlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from exporters.engines.config_changes import ConfigWatch, Known
from exporters.errors import UsageError, system_reason


class _File(msgspec.Struct):
    version: Literal[1]
    seen_at: float  # unix: the engines were seen like this then, and perhaps later
    engines: dict[str, Known]


_encode = msgspec.json.Encoder().encode


class ConfigChangeStore:
    """The file of `--state`; one that cannot be read is set aside, and one that cannot be written is said once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._aside = path.with_name(f"{path.name}.broken")
        self._beside = path.with_name(f"{path.name}.new")
        self._written = b""
        self._failed = False

    def check(self) -> None:
        """Find out whether it can be written.

        Raises:
            UsageError: it cannot.
        """
        path = self._path
        try:
            with contextlib.suppress(FileExistsError):  # a file where a folder should be: `open` says it better
                path.parent.mkdir(parents=True, exist_ok=True)
            self._beside.open("wb").close()
            self._beside.unlink()
            if path.is_dir():
                raise IsADirectoryError(None, "is a directory")
        except OSError as error:
            raise UsageError(f"--state: {path} cannot be written: {system_reason(error)}") from error

    def load(self) -> dict[str, ConfigWatch]:
        """What was kept, by engine; nothing where there is no file, or none that can be used."""
        try:
            read = msgspec.json.decode(self._path.read_bytes(), type=_File)
        except FileNotFoundError:
            return {}
        except OSError as error:
            self._say(f"{self._path} cannot be read: {system_reason(error)}; starting without it")
            return {}
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            said = f"{self._path} is no state of this version: {error}"
            try:
                self._path.replace(self._aside)
            except OSError as refused:
                self._say(f"{said}; it cannot be set aside: {system_reason(refused)}; it will be overwritten")
            else:
                self._say(f"{said}; set aside as {self._aside.name}, starting without it")
            return {}
        return {name: ConfigWatch(known, read.seen_at) for name, known in read.engines.items()}

    def save(self, engines: Mapping[str, Known], now: float) -> None:
        """Write what differs from the last time, whole or not at all."""
        known = _encode(engines)
        if known == self._written:
            return
        try:
            with self._beside.open("wb") as file:
                file.write(_encode(_File(version=1, seen_at=now, engines=dict(engines))))
                file.flush()
                os.fsync(file.fileno())
            self._beside.replace(self._path)
        except OSError as error:
            if not self._failed:
                self._say(
                    f"{self._path} cannot be written: {system_reason(error)}; flips are kept in memory until it can"
                )
            self._failed = True
            return
        self._written, self._failed = known, False

    def _say(self, text: str) -> None:
        print(f"exporter: --state: {text}", file=sys.stderr, flush=True)
