"""A bash that runs the commands of a page one after the other, as a reader enters them."""

import os
import shlex
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.support.waiting import wait_until

_HANG = 300.0
"""Seconds that a command may take; far more than on a busy machine."""
_STOP = 90.0
"""Seconds for the programs in the background to end; a sidecar drains."""


class ShellSession:
    """One bash with the programs that its commands leave in the background; all of them end with it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], results: Path) -> None:
        results.mkdir()
        self._results, self._count = results, 0
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._enter("trap 'kill $(jobs -p)' EXIT\n")  # also when this process is killed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            if wait_until(self._ended, 1.0 if error is None else 0.0):
                break
            os.killpg(self._bash.pid, number)
            wait_until(self._ended, _STOP)

    def run(self, command: str, variables: Mapping[str, str]) -> tuple[int, str]:
        """Enter a command, wait for its end and print it with its time; its status and its output."""
        self._count += 1
        output, status = self._results / f"{self._count:02}.output", self._results / f"{self._count:02}.status"
        exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
        unset = f"unset {' '.join(variables)}\n" if variables else ""
        started = time.monotonic()
        self._enter(f"{exports}{{ {command}\n}} > {output} 2>&1 < /dev/null\necho $? > {status}\n{unset}")
        ended = wait_until(lambda: status.exists() and status.read_text().endswith("\n"), _HANG)
        print(f"{time.monotonic() - started:>6.1f} s  {command}")
        text = output.read_text(errors="replace")
        assert ended, f"did not end within {_HANG:g} s:\n{command}\n\n{text}"
        return int(status.read_text()), text

    def _enter(self, text: str) -> None:
        assert self._bash.stdin is not None
        self._bash.stdin.write(text)
        self._bash.stdin.flush()

    def _ended(self) -> bool:
        """Whether the shell and all its programs have ended."""
        self._bash.poll()
        try:
            os.killpg(self._bash.pid, 0)
        except ProcessLookupError:
            return True
        return False
