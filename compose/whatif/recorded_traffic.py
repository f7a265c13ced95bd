"""The requests of a request log as a load that the simulator can replay, and what the log says of their SLOs."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate, chain
from pathlib import Path
from statistics import median
from typing import TypeVar

import msgspec

from compose.whatif.calibration import Latencies
from exporters.requestlog.entry import LogEntry
from exporters.requestlog.reader import LogReader
from exporters.text.errors import UsageError
from exporters.text.units import from_milliseconds
from exporters.vocabulary.signals import WARM_UP, Endpoint, Outcome
from exporters.vocabulary.verdicts import goodput
from loadgen.results.record import ClientOutcome, Record, read_record_file
from loadgen.schedule.requests import CHAT, COMPLETIONS

_CHARACTERS_PER_TOKEN = 4.0
"""The estimate for a log without the lengths of prefixes."""
Key = TypeVar("Key", str, tuple[str, str])
_NOT_SERVED = frozenset({Outcome.CLIENT_ERROR})
"""Outcomes of requests that cost the engine nothing."""


@dataclass(frozen=True, slots=True)
class Attainment:
    """Requests of a class with a verdict, and how many of them met all their SLOs."""

    judged: int
    good: int

    @property
    def share(self) -> float:
        return self.good / self.judged if self.judged else 0.0


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request of the log; `time` in seconds from any origin.

    `prefix` has the hashes of the prompt's blocks of `PREFIX_BLOCK` characters, each of all text up to its end.
    """

    number: int
    time: float
    prompt_tokens: int
    output_tokens: int
    request_class: str
    stream: bool = True
    endpoint: Endpoint = Endpoint.COMPLETIONS
    prefix: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """The requests by time. `assumed` of them have no token counts, and those of their class instead."""

    requests: Sequence[RecordedRequest]
    measured: Mapping[int, Latencies]
    """TTFT and TPOT of the requests that ended, by their number."""
    attained: Mapping[str, Attainment]
    assumed: int
    characters_per_token: float
    longest: float
    """Seconds of the longest request."""
    most_open: int
    """The most requests that were open at the same time."""
    events: Mapping[tuple[str, str], Attainment] = field(default_factory=dict)
    """The good and bad events of each class and SLO."""

    @property
    def has_prefixes(self) -> bool:
        return any(request.prefix for request in self.requests)

    @property
    def seconds(self) -> float:
        return max(self.requests[-1].time - self.requests[0].time, 1.0)

    def ranges(self) -> dict[str, tuple[int, int]]:
        """The least and most of prompt tokens, completion tokens and open requests."""
        prompts = [request.prompt_tokens for request in self.requests]
        completions = [request.output_tokens for request in self.requests]
        return {
            "prompt_tokens": (min(prompts), max(prompts)),
            "completion_tokens": (min(completions), max(completions)),
            "open_requests": (1, self.most_open),
        }


def read_traffic(paths: Sequence[Path]) -> RecordedTraffic:
    """Read logs with their rotated files, or the records of load runs.

    Raises:
        UsageError: a file cannot be read, or has no request to replay.
    """
    runs = {path: records for path in paths if (records := _load_run(path)) is not None}
    reader = LogReader([path for path in paths if path not in runs])
    every = chain(reader, (_entry(each) for records in runs.values() for each in records))
    entries = sorted((each for each in every if _is_replayed(each)), key=lambda entry: entry.arrived)
    if not any(entry.prompt_tokens and entry.completion_tokens for entry in entries):
        bad = sum(each.count for each in reader.bad_lines.values())
        raise UsageError(
            f"--request-log: {', '.join(map(str, paths))}: no request with token counts to {CHAT} or {COMPLETIONS} "
            f"({bad} lines are not requests); give files that `vllm-slo sidecar --request-log FILE` or `vllm-slo load "
            f"run` has written"
        )
    prompts = _medians((entry.request_class, entry.prompt_tokens) for entry in entries)
    ended = [entry for entry in entries if entry.outcome is Outcome.OK and entry.completion_tokens]
    outputs = _medians((entry.request_class, entry.completion_tokens) for entry in ended)
    used = _medians(
        (entry.request_class, (entry.completion_tokens or 0) / entry.max_tokens) for entry in ended if entry.max_tokens
    )
    per_token = _median_or(
        (
            entry.prefix_characters / entry.prompt_tokens
            for entry in ended
            if entry.prefix_characters and entry.prompt_tokens
        ),
        _CHARACTERS_PER_TOKEN,
    )
    requests = [
        RecordedRequest(
            number,
            entry.arrived,
            entry.prompt_tokens or round(prompts[entry.request_class]),
            _output(entry, outputs, used),
            entry.request_class,
            entry.stream,
            Endpoint.CHAT_COMPLETIONS if entry.route == CHAT else Endpoint.COMPLETIONS,
            entry.prefix_hashes or (),
        )
        for number, entry in enumerate(entries)
    ]
    return RecordedTraffic(
        requests,
        {
            number: Latencies(from_milliseconds(entry.ttft_ms), from_milliseconds(entry.tpot_ms))
            for number, entry in enumerate(entries)
            if entry.outcome is Outcome.OK
        },
        attainments(Counter((entry.request_class, goodput(entry.slo.values())) for entry in entries)),
        sum(entry.outcome is not Outcome.OK or not entry.prompt_tokens for entry in entries),
        per_token,
        max(entry.e2e_ms for entry in entries) / 1000,
        _most_open(entries),
        attainments(
            Counter(
                ((entry.request_class, slo), goodput([verdict]))
                for entry in entries
                for slo, verdict in entry.slo.items()
            )
        ),
    )


def _load_run(path: Path) -> list[Record] | None:
    """The requests of a load run that were sent; None for another file."""
    try:
        with path.open("rb") as file:
            msgspec.json.decode(file.readline(), type=Record)
    except (OSError, msgspec.DecodeError):
        return None
    return [each for each in read_record_file(path) if each.outcome is not ClientOutcome.NOT_SENT]


def _entry(record: Record) -> LogEntry:
    """What a sidecar would have logged; latencies count from the due time."""
    return LogEntry(
        time=datetime.fromtimestamp(record.due, UTC),
        request_class=record.request_class,
        route=record.endpoint,
        stream=record.stream,
        outcome=record.outcome.sidecar_outcome or Outcome.CLIENT_ABORT,
        prompt_tokens=record.prompt_tokens or record.asked_prompt_tokens,
        completion_tokens=record.completion_tokens,
        max_tokens=record.max_tokens,
        ttft_ms=_milliseconds(record.ttft),
        tpot_ms=_milliseconds(record.tpot),
        e2e_ms=1000 * (record.closed - record.due),
        slo=record.slo,
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _median_or(values: Iterable[float], default: float) -> float:
    found = [*values]
    return median(found) if found else default


def attainments(counts: Counter[tuple[Key, bool | None]]) -> dict[Key, Attainment]:
    """The attainment of each class, or class and SLO, from its number of good, bad and other requests."""
    return {
        key: Attainment(counts[key, True] + counts[key, False], counts[key, True])
        for key in sorted({key for key, good in counts if good is not None})
    }


def _most_open(entries: Sequence[LogEntry]) -> int:
    """Ends before begins at the same time."""
    changes = [(entry.arrived, 1) for entry in entries]
    changes += [(entry.arrived + entry.e2e_ms / 1000, -1) for entry in entries]
    return max(accumulate(change for _, change in sorted(changes)))


def _is_replayed(entry: LogEntry) -> bool:
    served = entry.outcome not in _NOT_SERVED and entry.refused is None
    return served and entry.route in {CHAT, COMPLETIONS} and entry.request_class != WARM_UP


def _medians(values: Iterable[tuple[str, float | None]]) -> Mapping[str, float]:
    """The median of each class; of all classes for one without a value."""
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in values:
        if value:
            found[name].append(value)
    whole = median([value for each in found.values() for value in each] or [1])
    return defaultdict(lambda: whole, {name: median(each) for name, each in found.items()})


def _output(entry: LogEntry, lengths: Mapping[str, float], used: Mapping[str, float]) -> int:
    """The length of the whole answer.

    For one that did not end, what arrived, or if that is more, the share of its `max_tokens` that answers of its class
    have used; without `max_tokens`, the median length.
    """
    arrived, name = entry.completion_tokens or 0, entry.request_class
    if entry.outcome is Outcome.OK and arrived:
        return arrived
    expected = lengths[name] if entry.max_tokens is None else used[name] * entry.max_tokens
    return max(1, arrived, round(expected))
