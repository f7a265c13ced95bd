"""Judges whether the load generator itself could send the load that was planned; if not, a run is invalid."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from loadgen.results.record import ClientOutcome, Record, Run

MAX_STALLED = 0.01
"""Share of the run that the event loop may be stalled."""
MIN_SENT = 0.99
"""Share of the offered requests that must be sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """The state of the load generator; times in seconds, `send_lag` is its 99th percentile.

    `cpu` is the share of one core. `coalesced` is the share of output chunks that arrived in one read with an earlier
    one, because the server sent them together or the load generator read late; their gaps are 0. `faults` make the run
    invalid.
    """

    send_lag: float | None
    stalls: int
    stalled: float
    worst_stall: float
    cpu: float
    coalesced: float
    offered: int
    sent: int
    slot_wait: float | None
    faults: tuple[str, ...]


def judge(run: Run, records: Sequence[Record], send_lag: float | None, slot_wait: float | None) -> ClientHealth:
    """The health of the client of a run; `send_lag` and `slot_wait` are 99th percentiles."""
    chunks = sum(record.chunks for record in records)
    sent = sum(record.outcome is not ClientOutcome.NOT_SENT for record in records)
    faults = find_faults(
        send_lag=send_lag,
        max_send_lag=run.max_send_lag,
        stalls=run.stalls,
        stalled=run.stalled,
        seconds=run.seconds,
        offered=len(records),
        sent=sent,
    )
    return ClientHealth(
        send_lag=send_lag,
        stalls=run.stalls,
        stalled=run.stalled,
        worst_stall=run.worst_stall,
        cpu=run.cpu_seconds / run.seconds if run.seconds else 0.0,
        coalesced=sum(record.coalesced for record in records) / chunks if chunks else 0.0,
        offered=len(records),
        sent=sent,
        slot_wait=slot_wait,
        faults=(*faults, *_lost_workers(run)),
    )


def _lost_workers(run: Run) -> Iterator[str]:
    for index, worker in enumerate(run.workers):
        if worker.lost is not None:
            yield f"worker {index} was lost after {worker.lost:.0f} s: its requests without a record count as not sent"


def find_faults(
    *,
    send_lag: float | None,
    max_send_lag: float,
    stalls: int,
    stalled: float,
    seconds: float,
    offered: int,
    sent: int,
) -> Iterator[str]:
    """What makes a run of `seconds` invalid; `stalled` in seconds, `send_lag` is the 99th percentile."""
    if send_lag is not None and send_lag > max_send_lag:
        yield (
            f"send lag p99 is {send_lag * 1000:.0f} ms, above {max_send_lag * 1000:.0f} ms: the load generator was "
            "overloaded; give it a core of its own or lower the rate"
        )
    if stalled > MAX_STALLED * seconds:
        yield (
            f"the event loop stalled {stalls} times, for {stalled:.1f} s in total: chunk times are late; give "
            "the load generator a core of its own"
        )
    if sent < MIN_SENT * offered:
        yield (
            f"{offered - sent} of {offered} requests were not sent (see `error`): the server received less "
            "load than planned"
        )
