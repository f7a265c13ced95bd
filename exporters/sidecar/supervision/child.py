"""One child process: its start, the messages to its standard input, and its end."""

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence

from exporters.configuration.child import ChildConfig, Message, Reload, Stop, child_message

_IGNORED = {signal.SIGHUP, signal.SIGTERM, signal.SIGINT}
"""Signals that children never receive, because they are blocked before they start: a service manager sends them to all
processes at once, but the supervisor stops its children in order, and reloads them with one SLO file."""


class Child:
    """One child process and its restarts."""

    def __init__(self, name: str, module: str, sockets: Sequence[socket.socket]) -> None:
        self.name = name
        self.module = module
        self.sockets = sockets
        self.starts = 0
        self.run_id = ""
        self.stopping = asyncio.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._code = 0
        self._exited = asyncio.Event()

    async def start(self, config: Callable[[], ChildConfig]) -> None:
        """Start the process and send it its configuration, which may change until it is sent.

        Raises:
            OSError: the system has too few descriptors, processes or memory.
        """
        process = self._spawn(config().socket_fds)
        try:
            stdin, _ = await asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        except OSError:
            process.kill()
            raise
        self._stdin = stdin
        stdin.write(child_message(config()))
        if self.stopping.is_set():  # stopped during the start
            self.stop()

    def _spawn(self, socket_fds: Sequence[int]) -> "subprocess.Popen[bytes]":
        """Start the process.

        asyncio's subprocesses need a thread or a descriptor after the process has started. If the system has none left,
        they raise an exception and leave a process that nothing stops.
        """
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, _IGNORED)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", self.module],  # -P: never import from the working directory
                stdin=subprocess.PIPE,
                pass_fds=socket_fds,
                # Ctrl-c must reach only the supervisor, which drains in order. Not a new session: Linux schedules
                # sessions as groups, so a relay would stall for seconds beside an engine that spins on its cores.
                process_group=0,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        self._exited.clear()
        return self._process

    async def exited(self) -> int:
        """Wait until the process has exited; returns its exit status, or the negative number of a signal."""
        self.reap()
        await self._exited.wait()
        if self._stdin is not None:
            self._stdin.close()
        return self._code

    def reap(self) -> None:
        """Check whether the process has exited; called on each SIGCHLD."""
        if self._process is not None and (code := self._process.poll()) is not None:
            self._code = code
            self._exited.set()

    def reload(self, reload: Reload) -> None:
        """Let it use this SLO file and certificate, which a process that has not started yet gets at its start."""
        self._send(reload)

    def stop(self) -> None:
        """Let it exit, and do not restart it."""
        self.stopping.set()
        self._send(Stop())

    def _send(self, message: Message) -> None:
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(child_message(message))

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
