"""Executes a program that gets SIGTERM when its parent process ends; run as a script, never imported.

Linux sends that signal itself. Elsewhere this process stays as the parent of the program and compares its own parent's
process id (untested on macOS).
"""

import contextlib
import ctypes
import os
import signal
import sys
import time

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.1


def main() -> None:
    """Arguments: the parent's process id, then the program and its arguments."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    signalled = _set_parent_death_signal()
    # The parent ended before the line above.
    if os.getppid() != parent:
        sys.exit(143)
    if signalled:
        _execute(program)
    _run_and_watch(parent, program)


def _set_parent_death_signal() -> bool:
    """Whether the kernel will send the signal: SIGTERM, so that a child with children can stop them."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM) == 0)


def _execute(program: list[str]) -> None:
    try:
        os.execvp(program[0], program)  # noqa: S606 - replacing this process is intended
    except OSError as error:
        sys.exit(f"{program[0]}: cannot be started: {(error.strerror or str(error)).lower()}")


def _run_and_watch(parent: int, program: list[str]) -> None:
    """Run the program as a child: forward SIGTERM, send it when the parent ends, and exit with the program's status."""
    # Blocked until there is a process to forward the signal to.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _execute(program)

    def terminate(*_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if os.getppid() != parent:
            # Once: a second signal would cut short a clean-up.
            parent = os.getppid()
            terminate()
        time.sleep(_POLL_SECONDS)
    code = os.waitstatus_to_exitcode(ended[1])
    if code < 0:
        # SIGTERM has a handler here; SIGKILL cannot have one.
        if -code == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
