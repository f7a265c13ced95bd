"""The program `vllm-slo`: SIGHUP must not end a sidecar that is starting, so it is blocked before the imports."""

import signal
import sys


def main() -> int:
    """Run the command of the arguments; returns the exit status."""
    if sys.argv[1:2] == ["sidecar"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # the supervisor unblocks it when it can reload
    try:
        from compose import cli  # noqa: PLC0415 - its imports take as long as the start of Python

        return cli.main()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
