"""Executes a program that gets SIGTERM when its parent process dies; run as a script, never imported."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> None:
    """Arguments: the parent's process id, then the program and its arguments."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":  # elsewhere the children of a killed runner go on
        # SIGTERM, not SIGKILL: a child that has children must be able to stop them.
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before the line above
        sys.exit(143)
    try:
        os.execvp(program[0], program)  # noqa: S606 - replacing this process is intended
    except OSError as error:
        sys.exit(f"{program[0]}: cannot be started: {(error.strerror or str(error)).lower()}")


if __name__ == "__main__":
    main()
