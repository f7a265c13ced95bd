"""Replays recorded traffic: a request log, a Mooncake trace, a CSV file of times and lengths, or ShareGPT's prompts."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from random import Random

import msgspec

from exporters.text.errors import UsageError
from exporters.text.yaml_reader import read_file
from exporters.vocabulary.log_names import renamed
from exporters.vocabulary.signals import WARM_UP
from loadgen.schedule.prompts import Part, Quoted
from loadgen.schedule.requests import CHAT, COMPLETIONS, PlannedRequest, Schedule
from loadgen.schedule.sharegpt import read_exchanges

BLOCK_TOKENS = 512
"""Tokens of a block of a Mooncake trace, and the estimate for a block of the request log (2,048 characters)."""

PHASE = "replay"
_MOST_PROBLEMS = 20


class TraceFormat(StrEnum):
    """The format of a trace."""

    REQUEST_LOG = "vllm-slo"
    MOONCAKE = "mooncake"
    CSV = "csv"
    SHAREGPT = "sharegpt"


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace; `time` in seconds from any origin.

    `blocks` are hashes of blocks of `BLOCK_TOKENS` tokens from the beginning of the prompt, each of all text up to its
    end: prompts with equal hashes begin alike. `text` is the whole prompt, if the trace has it.
    """

    time: float
    prompt_tokens: int
    output_tokens: int
    request_class: str
    stream: bool = True
    endpoint: str = COMPLETIONS
    blocks: tuple[str, ...] = ()
    text: str = ""


@dataclass(frozen=True, slots=True)
class Pace:
    """When the requests of a trace without times are due: a Poisson process of `rate` requests/s, by the seed."""

    rate: float
    seed: int


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: list[int | str] = []


class _Logged(msgspec.Struct):
    time: datetime
    request_class: str = msgspec.field(name="class")
    stream: bool
    route: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prefix_hashes: list[str] | None = None


def read_trace(
    path: Path, form: TraceFormat | None, request_class: str, pace: Pace | None = None
) -> list[TraceRequest]:
    """The requests of a trace by time; without `form`, the first line decides.

    `request_class` is the class of requests without one. Requests of a log that have no token counts, such as rejected
    ones, those of other endpoints, and those of the class `warm-up` are left out.

    Raises:
        UsageError: the file cannot be read, or has invalid lines; the message lists them.
    """
    text = read_file(path)
    lines = text.splitlines()
    if not any(line.strip() for line in lines):
        raise UsageError(f"{path}: is empty; give a trace with at least one request")
    form = form or detect(next(line for line in lines if line.strip()))
    if pace is not None and form is not TraceFormat.SHAREGPT:
        raise UsageError(f"--rate: {path} has the times of its requests; use --rate-scale")
    match form:
        case TraceFormat.CSV:
            requests = _csv_requests(lines, path, request_class)
        case TraceFormat.MOONCAKE:
            requests = _json_requests(lines, path, lambda line: _of_mooncake(line, request_class))
        case TraceFormat.REQUEST_LOG:
            requests = _json_requests(lines, path, _of_log)
        case TraceFormat.SHAREGPT:
            if pace is None:
                raise UsageError(f"--rate: {path} has no times, as it is in the format of ShareGPT; write --rate 4")
            return _sharegpt_requests(text, path, request_class, pace)
    if not requests:
        raise UsageError(
            f"{path}: no request can be replayed: it needs prompt tokens, completion tokens, and one of the endpoints "
            f"{CHAT} and {COMPLETIONS}"
        )
    return sorted(requests, key=lambda request: request.time)


def detect(line: str) -> TraceFormat:
    """The format of a file with this first line."""
    if line.lstrip().startswith("["):
        return TraceFormat.SHAREGPT
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return TraceFormat.CSV
    return TraceFormat.MOONCAKE if isinstance(value, dict) and "input_length" in value else TraceFormat.REQUEST_LOG


def _json_requests(lines: Sequence[str], path: Path, read: Callable[[str], TraceRequest | None]) -> list[TraceRequest]:
    requests, problems = [], []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            request = read(line)
        except (msgspec.DecodeError, ValueError) as error:
            problems.append(f"{path}:{number}: {error}")
        else:
            requests += [] if request is None else [request]
    _refuse(problems)
    return requests


def _of_mooncake(line: str, request_class: str) -> TraceRequest:
    row = msgspec.json.decode(line, type=_Mooncake)
    blocks = tuple(str(block) for block in row.hash_ids)
    return _checked(
        TraceRequest(row.timestamp / 1000, row.input_length, row.output_length, request_class, blocks=blocks)
    )


def _of_log(line: str) -> TraceRequest | None:
    row = msgspec.json.decode(renamed(line.encode()), type=_Logged)
    if not row.prompt_tokens or not row.completion_tokens or row.route not in {CHAT, COMPLETIONS}:
        return None
    if row.request_class == WARM_UP:
        return None
    return TraceRequest(
        row.time.timestamp(),
        row.prompt_tokens,
        row.completion_tokens,
        row.request_class,
        row.stream,
        row.route,
        tuple(row.prefix_hashes or ()),
    )


_COLUMNS = ("time", "prompt_tokens", "output_tokens")


def _csv_requests(lines: Sequence[str], path: Path, request_class: str) -> list[TraceRequest]:
    reader = csv.DictReader(lines)
    missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
    if missing:
        raise UsageError(
            f"{path}:1: the header lacks {', '.join(missing)}; write {','.join(_COLUMNS)}, and class if you like, with "
            "time in seconds"
        )
    requests, problems = [], []
    for row in reader:
        try:
            time, prompt, output = float(row["time"]), int(row["prompt_tokens"]), int(row["output_tokens"])
            requests.append(_checked(TraceRequest(time, prompt, output, row.get("class") or request_class)))
        except (TypeError, ValueError) as error:
            problems.append(f"{path}:{reader.line_num}: {error}")
    _refuse(problems)
    return requests


def _sharegpt_requests(text: str, path: Path, request_class: str, pace: Pace) -> list[TraceRequest]:
    """All exchanges in an order of the seed, so that a part of them is a sample."""
    random = Random(pace.seed)  # noqa: S311 - repeatable, not secret
    exchanges = read_exchanges(text, path)
    random.shuffle(exchanges)
    requests, due = [], 0.0
    for each in exchanges:
        lengths = each.prompt_tokens, each.answer_tokens
        requests.append(TraceRequest(due, *lengths, request_class, endpoint=CHAT, text=each.prompt))
        due += random.expovariate(pace.rate)
    return requests


def _checked(request: TraceRequest) -> TraceRequest:
    if request.prompt_tokens < 1 or request.output_tokens < 1:
        raise ValueError(
            f"{request.prompt_tokens} prompt and {request.output_tokens} output tokens; both must be at least 1"
        )
    return request


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        raise UsageError("\n".join([*problems[:_MOST_PROBLEMS], *([f"... and {more} more lines"] if more > 0 else [])]))


class TraceSchedule(Schedule):
    """The schedule of a trace, times divided by `rate_scale`, cut after `seconds`; the same prompts for a seed."""

    def __init__(
        self, requests: Sequence[TraceRequest], seed: int, rate_scale: float = 1.0, seconds: float | None = None
    ) -> None:
        self._seed = seed
        start = requests[0].time
        scaled = [((request.time - start) / rate_scale, request) for request in requests]
        self._requests = [(due, request) for due, request in scaled if seconds is None or due < seconds]
        self.seconds = self._requests[-1][0] + 0.001 if seconds is None else seconds

    @property
    def shares(self) -> dict[str, float]:
        """The share of each class in the requests."""
        counts = Counter(request.request_class for _, request in self._requests)
        return {name: count / counts.total() for name, count in sorted(counts.items())}

    def __iter__(self) -> Iterator[PlannedRequest]:
        for number, (due, request) in enumerate(self._requests):
            yield PlannedRequest(
                number=number,
                due=due,
                phase=PHASE,
                request_class=request.request_class,
                stream=request.stream,
                endpoint=request.endpoint,
                parts=tuple(self._parts(number, request)),
                max_tokens=request.output_tokens,
            )

    def _parts(self, number: int, request: TraceRequest) -> Iterator[Part]:
        """The recorded text; else the blocks, the last of which may be shorter, and text of its own."""
        if request.text:
            yield Quoted(f"trace/{number}", request.prompt_tokens, request.text)
            return
        left = request.prompt_tokens
        for block in request.blocks:
            if left > 0:
                yield Part(f"block/{block}", min(left, BLOCK_TOKENS))
            left -= BLOCK_TOKENS
        if left > 0:
            yield Part(f"{self._seed}/trace/{number}", left)
