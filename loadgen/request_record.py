"""One request as the load generator saw it, and the file that keeps one JSON line for each."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.signals import LoadOutcome, Outcome, Verdict
from loadgen.arrivals import Phase

REQUESTS = "requests.jsonl"
RUN = "run.json"
SUMMARY = "summary.json"


class Fate(StrEnum):
    """What became of a request, seen from the client: the sidecar's outcomes where they apply, and its own."""

    OK = Outcome.OK.value
    TRUNCATED = Outcome.TRUNCATED.value
    UPSTREAM_ERROR = Outcome.UPSTREAM_ERROR.value
    UPSTREAM_UNREACHABLE = Outcome.UPSTREAM_UNREACHABLE.value
    REJECTED = Outcome.REJECTED.value
    CLIENT_ERROR = Outcome.CLIENT_ERROR.value
    TIMEOUT = LoadOutcome.TIMEOUT.value
    CUT = LoadOutcome.CUT.value
    NOT_SENT = LoadOutcome.NOT_SENT.value

    @property
    def outcome(self) -> Outcome | None:
        """The same in the sidecar's eyes, to whom a client that hangs up is an abort; None for what it never saw."""
        match self:
            case Fate.NOT_SENT:
                return None
            case Fate.TIMEOUT | Fate.CUT:
                return Outcome.CLIENT_ABORT
            case _:
                return Outcome(self.value)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Moments in seconds since the run's start, durations in seconds; absent is what was not seen.

    `due` is when the request was meant to be sent and the zero of every latency; `sent` is when it was.
    """

    request_class: str = msgspec.field(name="class")
    phase: str
    request_id: str
    endpoint: str
    stream: bool
    outcome: Fate
    due: float
    sent: float | None = None
    first: float | None = None
    last: float | None = None
    closed: float
    send_lag: float | None = None
    ttft: float | None = None
    e2e: float | None = None
    itl_p50: float | None = None
    itl_p95: float | None = None
    chunks: int = 0
    status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    asked_prompt_tokens: int
    max_tokens: int
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    queue: float | None = None
    prefill: float | None = None
    decode: float | None = None
    slo: dict[str, Verdict] = {}
    good: bool | None = None


class Objective(msgspec.Struct, frozen=True):
    """An SLO that judged the run; `threshold` in seconds, None for availability."""

    name: str
    signal: str
    threshold: float | None
    objective: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What was run, where, when and how it ended; `start` in unix seconds, to which all moments are relative."""

    scenario: str
    seed: int
    target: str
    model: str
    start: float = 0.0
    rate_scale: float
    timeout: float
    phases: list[Phase]
    classes: list[str]
    slos: list[Objective]
    versions: dict[str, str]
    ended: str = "running"
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    chunks: int = 0


_encode = msgspec.json.Encoder(decimal_format="number").encode


def line(record: Record) -> bytes:
    return _encode(record) + b"\n"


def write_json(path: Path, value: object) -> None:
    path.write_bytes(msgspec.json.format(_encode(value), indent=2) + b"\n")


def read_run(folder: Path) -> Run:
    """What `run.json` says.

    Raises:
        UsageError: there is no readable one.
    """
    try:
        return msgspec.json.decode((folder / RUN).read_bytes(), type=Run)
    except OSError as error:
        raise UsageError(f"{folder}: is no result of a load run: {RUN} cannot be read") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{folder / RUN}: is no result of a load run: {error}".lower()) from error


def read_records(folder: Path) -> list[Record]:
    """All requests of a run, in the order in which they ended.

    Raises:
        UsageError: the file cannot be read.
    """
    path = folder / REQUESTS
    try:
        return list(_decoded(path.read_bytes().splitlines(), path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error


def _decoded(lines: Iterable[bytes], path: Path) -> Iterable[Record]:
    decode = msgspec.json.Decoder(Record).decode
    for number, text in enumerate(lines, start=1):
        try:
            yield decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}:{number}: is no record of a request: {error}") from error
