"""The load generator's record of one request, and the files of a run: records, run and summary."""

from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

import msgspec

from exporters.text.errors import UsageError, system_reason
from exporters.vocabulary.signals import LoadOutcome, Outcome, OutputResult, Verdict
from exporters.vocabulary.slo_file import Latency, SloFile
from loadgen.results.saturation import Saturation
from loadgen.schedule.phases import Phase, stored_phase

REQUESTS = "requests.jsonl"
RUN = "run.json"
SUMMARY = "summary.json"
BENCH = "bench.json"


class ClientOutcome(StrEnum):
    """The outcome of a request at the client: the applicable outcomes of the sidecar, and the client's own."""

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
    def sidecar_outcome(self) -> Outcome | None:
        """The sidecar's outcome for it, where a client timeout is an abort; None for a request that was not sent."""
        match self:
            case ClientOutcome.NOT_SENT:
                return None
            case ClientOutcome.TIMEOUT | ClientOutcome.CUT:
                return Outcome.CLIENT_ABORT
            case _:
                return Outcome(self.value)


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Times in seconds since the start of the run, durations in seconds; a field without a value is absent.

    `due` is the scheduled send time, from which latencies count; `dispatched` is the time at which the load generator
    took the request, `send_lag` after `due`, and `sent` the time at which it opened the connection, later only if it
    waited for a slot of --max-concurrency. `ttft_sent`, `ttft_answer_sent` and `e2e_sent` count from `sent`.
    `first_byte` is that of the response, `first`, `answer` and `last` are chunks with output, `first_choice` and
    `last_choice` chunks with a choice. `tpot` is (last - first) / (tokens - 1), `tpot_vllm` the same by choices, as
    `vllm bench serve` has it, and `tpot_guidellm` is (last - sent) / tokens. `coalesced` chunks arrived in one read
    with an earlier one. `number` is that of the request in the schedule (in its phase, for a closed loop), `turn` that
    in its conversation, both from 0; `turns_lost` are the later turns of a conversation that this failed request ended.
    Equal prompts have the same `prompt_hash`, and answers whose first 512 bytes are equal the same `answer_hash`.
    `json_result` says whether an answer that must be JSON is, as the sidecar's `structured_result`.
    `output_bytes` is the length of the whole output, and `silent` counts chunks with a choice without output.
    `text` (the answer) and `itls`, the gaps between chunks with a choice, only with --save-detailed.
    """

    request_class: str = msgspec.field(name="class")
    phase: str
    number: int
    turn: int = 0
    tenant: str = ""
    turns_lost: int = 0
    request_id: str
    endpoint: str
    stream: bool
    outcome: ClientOutcome
    due: float
    dispatched: float | None = None
    sent: float | None = None
    first_byte: float | None = None
    first_choice: float | None = None
    first: float | None = None
    answer: float | None = None
    last: float | None = None
    last_choice: float | None = None
    closed: float
    send_lag: float | None = None
    ttft: float | None = None
    ttft_answer: float | None = None
    e2e: float | None = None
    ttft_sent: float | None = None
    ttft_answer_sent: float | None = None
    e2e_sent: float | None = None
    tpot: float | None = None
    tpot_vllm: float | None = None
    tpot_guidellm: float | None = None
    itl_p50: float | None = None
    itl_p95: float | None = None
    chunks: int = 0
    coalesced: int = 0
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
    prompt_hash: str | None = None
    answer_hash: int | None = None
    output_bytes: int | None = None
    silent: int = 0
    json_result: OutputResult | None = None
    slo: dict[str, Verdict] = {}
    good: bool | None = None
    text: str | None = None
    itls: list[float] = []


class Objective(msgspec.Struct, frozen=True):
    """An SLO that judged the run; `threshold` in seconds, None for availability."""

    name: str
    signal: str
    threshold: float | None
    objective: float


def objectives(slos: SloFile) -> list[Objective]:
    return [
        Objective(
            slo.name, slo.measure.value, slo.sli.threshold if isinstance(slo.sli, Latency) else None, slo.objective
        )
        for slo in slos.slos
    ]


def rule_of_run(slos: SloFile) -> str:
    """The `rule` of a run that this SLO file has judged."""
    return f"verdicts of the run, {slos.first_token_rule}"


def elapsed(begin: float | None, end: float | None) -> float | None:
    """The time between two moments; None if one of them is unknown."""
    return None if begin is None or end is None else end - begin


class WorkerUsage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process of a worker of a distributed run; `lost` is when it was, in seconds since the start of the run."""

    cpu_seconds: float = 0.0
    stalls: int = 0
    stalled: float = 0.0
    worst_stall: float = 0.0
    lost: float | None = None


class Hardware(msgspec.Struct, frozen=True):
    """The bounds of --roofline: prompt tokens per second, and the seconds of a decode step of one request."""

    prefill: float
    step: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run and how it ended; `start` in unix seconds, to which all times are relative.

    `stalls`, `stalled` (seconds) and `worst_stall` are those of the event loop. `same_machine`: the target is a
    loopback address. `schedule` is the hash of the open-loop requests, `shares` the share of each class in them, with a
    sum of 1. `rule` says which rule has judged the requests. With several `workers`, `cpu_seconds` and `stalls` are
    the sums, `stalled` and `worst_stall` the maxima.
    """

    scenario: str
    experiment: str = ""
    configuration: str = ""
    seed: int
    schedule: str
    shares: dict[str, float]
    target: str
    model: str
    start: float = 0.0
    rate_scale: float
    timeout: float
    timeouts: dict[str, float] = {}
    phases: list[Phase]
    classes: list[str]
    class_titles: dict[str, str] = {}
    slos: list[Objective]
    rule: str = ""
    max_send_lag: float
    max_concurrency: int | None = None
    same_machine: bool
    versions: dict[str, str]
    ended: str = "running"
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    chunks: int = 0
    stalls: int = 0
    stalled: float = 0.0
    worst_stall: float = 0.0
    saturated: Saturation | None = None
    hardware: Hardware | None = None
    workers: list[WorkerUsage] = []


_encode = msgspec.json.Encoder(decimal_format="number").encode


def encode_line(record: Record) -> bytes:
    return _encode(record) + b"\n"


def write_json(path: Path, value: object) -> None:
    """Write a value as `replace_file` does."""
    replace_file(path, json_text(value))


def json_text(value: object) -> bytes:
    return msgspec.json.format(_encode(value), indent=2) + b"\n"


def replace_file(path: Path, content: bytes) -> None:
    """Write a file, or leave the earlier one as it is if this fails.

    Raises:
        OSError: the file cannot be written.
    """
    temporary = path.with_suffix(".tmp")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise


def read_run(folder: Path) -> Run:
    """Read `run.json`.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        return msgspec.json.decode((folder / RUN).read_bytes(), type=Run, dec_hook=lambda _, phase: stored_phase(phase))
    except OSError as error:
        raise UsageError(f"{folder}: not the output of a load run: {RUN} cannot be read") from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{folder / RUN}: not the output of a load run: {error}") from error


def read_records(folder: Path) -> list[Record]:
    """The requests of the run in a folder; see `read_record_file`."""
    return read_record_file(folder / REQUESTS)


def read_record_file(path: Path) -> list[Record]:
    """All requests of a run, sorted by end time; an incomplete last line, of a run that was killed, is left out.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        lines = path.read_bytes().split(b"\n")
        return list(_decode(lines[:-1], path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error


def _decode(lines: Iterable[bytes], path: Path) -> Iterable[Record]:
    decode = msgspec.json.Decoder(Record).decode
    for number, text in enumerate(lines, start=1):
        try:
            yield decode(text)
        except msgspec.DecodeError as error:
            raise UsageError(f"{path}:{number}: not a request record: {error}") from error
