"""The relay and the exporter as children of the supervisor: start, stop, periodic tasks and garbage collection."""

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine

import msgspec

from exporters.configuration.child import ChildConfig, Message, Reload, Stop, read_child_config
from exporters.records.messages import Frames
from exporters.text.errors import UsageError, type_and_place
from exporters.text.logs import configure_logging

_READ_SIZE = 65536

_decode = msgspec.msgpack.Decoder(Message).decode

ORPHAN_SECONDS = 1.5
"""The maximum time to record the open requests after the supervisor was killed: its successor needs the ports."""

RESTART_SECONDS = 1.0
"""Time until a periodic task continues after an exception that ended it."""

logger = logging.getLogger("vllm_slo.child_process")


def run_child(
    serve: Callable[[ChildConfig], Coroutine[None, None, None]],
    run: Callable[[Coroutine[None, None, None]], None],
) -> int:
    """Serve with the configuration from standard input; returns the exit status."""
    try:
        config = read_child_config()
    except EOFError:
        return 1
    configure_logging(config.sidecar.log_level, config.sidecar.log_format, config.process)
    try:
        run(serve(config))
    except UsageError as error:  # a file became invalid after the sidecar started
        logger.error("%s", error)  # noqa: TRY400 - the message suffices
        return 1
    return 0


class Orders:
    """The messages of the supervisor; `reload` is called when it has received SIGHUP."""

    def __init__(self, loop: asyncio.AbstractEventLoop, reload: Callable[[Reload], None]) -> None:
        self.stop = asyncio.Event()
        """Set when the supervisor stops this process, and when it was killed."""
        self.orphaned = False
        """Whether the supervisor was killed: the process ends within `ORPHAN_SECONDS`."""
        self._loop = loop
        self._reload = reload
        self._frames = Frames()
        loop.add_reader(sys.stdin.fileno(), self._read)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), _READ_SIZE)
        if not data:
            self._loop.remove_reader(sys.stdin.fileno())
            logger.warning("the supervisor was killed; this process ends at once")
            self.orphaned = True
            self.stop.set()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, also if it hangs
            signal.setitimer(signal.ITIMER_REAL, ORPHAN_SECONDS)
        for payload in self._frames.feed(data):
            message = _decode(payload)
            if isinstance(message, Stop):
                self.stop.set()
            else:
                self._reload(message)


class TaskErrors:
    """Counts the exceptions of the periodic tasks of a process; the tasks continue."""

    def __init__(self) -> None:
        self.count = 0
        self._logged: set[tuple[str, str]] = set()

    def add(self, task: str, error: Exception) -> None:
        """Count an exception; only the first of each task and type is logged."""
        self.count += 1
        kind = task, type(error).__name__
        if kind not in self._logged:
            self._logged.add(kind)
            logger.error("%s failed and continues: %s", task, type_and_place(error))

    async def keep_running(self, task: str, run: Callable[[], Coroutine[None, None, None]]) -> None:
        """Run a task that never ends; after an exception, run it again."""
        while True:
            try:
                await run()
            except Exception as error:  # noqa: BLE001 - no exception may end the task without notice
                self.add(task, error)
            await asyncio.sleep(RESTART_SECONDS)


def collect_garbage_rarely() -> None:
    """Make full collections rare: they stall all open requests, and requests and records create few cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
