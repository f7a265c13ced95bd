"""Counts the lines of the followed log, and saves positions and counts together."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from math import inf
from pathlib import Path
from typing import Protocol

import msgspec
from prometheus_client.core import Metric

from exporters.configuration.sidecar import FollowedLog
from exporters.exposition.accumulators import counter, gauge
from exporters.processes.child import TaskErrors
from exporters.records.messages import Finished
from exporters.requestlog.reader import BadLineError
from exporters.sidecar.follow import access_fields
from exporters.sidecar.follow.access_fields import AccessFields, Value
from exporters.sidecar.follow.access_lines import AccessLines
from exporters.sidecar.follow.growing_log import GrowingLog
from exporters.sidecar.follow.request_log_lines import RequestLogLines
from exporters.sidecar.follow.state import FollowState, FollowStateFile
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Signal
from exporters.vocabulary.slo_file import SloFile

POLL_SECONDS = 0.25
SAVE_SECONDS = 1.0
"""Time between two saves while lines are counted."""

BAD_LINES_SECONDS = 60.0
"""Time between two messages about bad lines."""

MAX_REASON = 200
"""Characters of the reason why a line is bad."""

COUNTED, IGNORED, BAD = "counted", "ignored", "bad"
RESULTS = (COUNTED, IGNORED, BAD)

_NO_RELAY: tuple[Signal, ...] = (
    signals.IN_FLIGHT,
    signals.OLDEST_WAIT,
    signals.INTER_CHUNK,
    signals.SIDECAR_REFUSED,
    signals.SIDECAR_UNMETERED,
    signals.SIDECAR_UNPARSED,
    signals.SIDECAR_DROPPED_VALUES,
)
"""Series that need a relay: a log has only ended requests, without single chunks."""

_NEEDS: Mapping[tuple[Value, ...], tuple[Signal, ...]] = {
    (Value.FIRST_TOKEN,): (signals.TTFT, signals.WITHOUT_FIRST_TOKEN),
    (Value.FIRST_TOKEN, Value.COMPLETION_TOKENS): (signals.TPOT,),
    (Value.PROMPT_TOKENS,): (
        signals.PROMPT_TOKENS,
        signals.REQUEST_PROMPT_TOKENS,
        signals.REQUESTS_BY_LENGTH,
        signals.FAILED_BY_LENGTH,
    ),
    (Value.COMPLETION_TOKENS,): (signals.COMPLETION_TOKENS, signals.REQUEST_COMPLETION_TOKENS),
    (Value.PROMPT_TOKENS, Value.COMPLETION_TOKENS): (signals.REQUESTS_BY_SIZE,),
    (Value.CACHED_TOKENS,): (signals.CACHED_TOKENS,),
}
"""Series that need fields of an access log."""

_ONLY_AT_A_RELAY: tuple[Signal, ...] = (
    signals.TTFT_ANSWER,
    signals.FRONTEND,
    signals.QUEUE,
    signals.PREFILL,
    signals.DECODE,
    signals.REQUESTS_WITH_ENGINE_TIMES,
    signals.REASONING_TOKENS,
    signals.SHAREABLE_PROMPT_TOKENS,
    signals.PROMPT_REPEATS,
    signals.BODY_REPEATS,
    signals.UNIQUE_PROMPTS,
    signals.STRUCTURED_REQUESTS,
    signals.GOODPUT_EVENTS,
    signals.GOODPUT_REQUESTS,
    signals.GOODPUT_TOKENS,
)
"""Series that no access log can give; goodput needs the verdicts of all SLOs."""


def absent(fields: AccessFields | None) -> tuple[Signal, ...]:
    """Series that a log cannot give; without a field map it is a request log."""
    if fields is None:
        return _NO_RELAY
    missing = (each for needed, each in _NEEDS.items() if not fields.fields.keys() >= set(needed))
    return (*_NO_RELAY, *_ONLY_AT_A_RELAY, *chain.from_iterable(missing))


logger = logging.getLogger("vllm_slo.follow")


class LineFormat(Protocol):
    """Converts the lines of a log."""

    def record(self, line: bytes) -> Finished | None:
        """The record of a line; None for a request that is not counted; raises BadLineError."""


def fields_of(followed: FollowedLog) -> AccessFields | None:
    """The field map of an access log; None for a request log. Raises UsageError if its file is invalid."""
    return None if followed.fields is None else access_fields.load(Path(followed.fields))


class LogFollower:
    """Reads the followed log from the saved positions on."""

    def __init__(
        self,
        followed: FollowedLog,
        slos: SloFile,
        request_metrics: RequestMetrics,
        task_errors: TaskErrors,
        *,
        fields: AccessFields | None = None,
        allow_paths: tuple[str, ...] = (),
        may_read: Callable[[], bool] = lambda: True,
    ) -> None:
        """`fields`: the result of `fields_of`; `may_read`: whether the models, which are label values, are known."""
        self._followed = followed
        self._fields = fields
        self._request_metrics = request_metrics
        self._task_errors = task_errors
        self._allow_paths = allow_paths
        self._may_read = may_read
        self._format = self._line_format(slos)
        self._lines = dict.fromkeys(RESULTS, 0)
        self._file = FollowStateFile(followed)
        state = self._file.load()
        if state is not None:
            request_metrics.restore(state.series)
            self._lines |= {result: state.lines.get(result, 0) for result in RESULTS}
        self._log = GrowingLog(Path(followed.path), () if state is None else state.positions)
        self._saved = b"" if state is None else msgspec.msgpack.encode(self._log.positions)
        self._logged_problem: str | None = None
        self._unreported_bad = 0
        self._bad_reported_at = -inf
        self._last_bad = ""
        self._stopping = asyncio.Event()
        self._stopped = asyncio.Event()

    @property
    def problem(self) -> str | None:
        """Why no line can be read."""
        return self._log.problem

    def use(self, slos: SloFile) -> None:
        """Read the next lines under another SLO file."""
        self._format = self._line_format(slos)

    def collect(self) -> Iterator[Metric]:
        yield counter(signals.FOLLOWED_LINES, [((result,), float(count)) for result, count in self._lines.items()])
        yield gauge(signals.FOLLOW_UP, [((), float(self._log.problem is None))])
        yield gauge(signals.FOLLOW_LAG, [((), float(self._log.unread))])

    async def run(self) -> None:
        """Read and save until `stop`."""
        saved_at = -inf
        while not self._stopping.is_set():
            self._log.find(time.monotonic())  # from here on, no line is missed
            more = self._may_read() and self.step(time.monotonic())
            if time.monotonic() - saved_at >= SAVE_SECONDS:
                await self._save()
                saved_at = time.monotonic()
            await asyncio.sleep(0 if more else POLL_SECONDS)
        await self._save()
        self._stopped.set()

    async def stop(self) -> None:
        """Stop after the current lines, and save; the next start continues there."""
        self._stopping.set()
        await self._stopped.wait()

    def step(self, now: float) -> bool:
        """Count the next lines; False if there are none now. Positions and counts agree when it returns."""
        lines = self._log.read(now)
        for line in lines or ():
            self._count(line)
        self._report(now)
        return lines is not None

    def unsaved(self) -> bytes | None:
        """The state to save; None if no position has changed and the file was not removed."""
        positions = self._log.positions
        if not positions or (msgspec.msgpack.encode(positions) == self._saved and self._file.exists()):
            return None
        return msgspec.msgpack.encode(
            FollowState(
                log=self._followed.path,
                format=self._followed.format,
                positions=positions,
                lines=self._lines,
                series=self._request_metrics.save(),
            )
        )

    async def _save(self) -> None:
        encoded, positions = self.unsaved(), msgspec.msgpack.encode(self._log.positions)
        if encoded is not None and await asyncio.to_thread(self._file.save, encoded):
            self._saved = positions

    def _line_format(self, slos: SloFile) -> LineFormat:
        if self._fields is not None:
            return AccessLines(self._fields, slos, self._allow_paths)
        return RequestLogLines(slos)

    def _count(self, line: bytes) -> None:
        try:
            record = self._format.record(line)
            if record is not None:
                self._request_metrics.record(record)
        except BadLineError as error:
            self._lines[BAD] += 1
            self._unreported_bad += 1
            self._last_bad = str(error)[:MAX_REASON]
        except Exception as error:  # noqa: BLE001 - one bad line must not stop the others
            self._lines[BAD] += 1
            self._task_errors.add("counting a line", error)
        else:
            self._lines[IGNORED if record is None else COUNTED] += 1

    def _report(self, now: float) -> None:
        """Log a change of the problem, and bad lines from time to time."""
        problem = self._log.problem
        if problem != self._logged_problem:
            if problem is None:
                logger.info("--follow: reading %s", self._followed.path)
            else:
                logger.warning("--follow: %s; trying again", problem)
            self._logged_problem = problem
        if self._unreported_bad and now - self._bad_reported_at >= BAD_LINES_SECONDS:
            logger.warning(
                "--follow: %s: %d bad lines; the last one: %s",
                self._followed.path,
                self._unreported_bad,
                self._last_bad,
            )
            self._unreported_bad, self._bad_reported_at = 0, now
