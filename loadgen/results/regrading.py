"""Judges a stored run again, by another SLO file: its records have the times that the verdicts depend on."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import structs

from exporters.vocabulary.signals import Endpoint
from exporters.vocabulary.slo_file import SloFile
from exporters.vocabulary.verdicts import EndedRequest, Ending, goodput, judge_request
from loadgen.results.record import Record, Run, objectives
from loadgen.schedule.requests import CHAT

AGAIN = "stored requests judged again by"


def regrade_run(run: Run, records: Iterable[Record], slos: SloFile, path: Path) -> tuple[Run, list[Record]]:
    """The run as if the SLO file at `path` had judged it."""
    rule = f"{AGAIN} {path}, {slos.first_token_rule}"
    return structs.replace(run, slos=objectives(slos), rule=rule), [regrade(each, slos) for each in records]


def regrade(record: Record, slos: SloFile) -> Record:
    """The record with the verdicts of another SLO file.

    They are those of a run with that file, with one exception: an `itl_p95` of a request that the client ended, or that
    the engine rejected, may be abandoned (or no event) instead of bad, or the reverse, because a record has two
    percentiles of the gaps, not the gaps.
    """
    return judged(record, slos, _gaps(record))


def judged(record: Record, slos: SloFile, gaps: Sequence[float]) -> Record:
    """The record with its verdicts, for the gaps between its chunks in seconds."""
    outcome = record.outcome.sidecar_outcome
    if outcome is None:
        return structs.replace(record, slo={}, good=None)  # not sent, so no SLO applies
    api = Endpoint.CHAT_COMPLETIONS if record.endpoint == CHAT else Endpoint.COMPLETIONS
    verdicts = judge_request(
        slos.slos_of(slos.classify(record.request_class, record.asked_prompt_tokens, record.max_tokens, api)),
        slos.first_token_timeout,
        EndedRequest(
            stream=record.stream,
            max_tokens=record.max_tokens,
            first_token=record.ttft,
            gaps=gaps,
            first_answer=record.ttft_answer,
            ending=Ending(
                at=record.closed - record.due if record.e2e is None else record.e2e,
                outcome=outcome,
                last_chunk=None if record.last is None else record.last - record.due,
                completion_tokens=record.completion_tokens,
                queue=record.queue,
                prefill=record.prefill,
                decode=record.decode,
            ),
        ),
    )
    return structs.replace(record, slo=verdicts, good=goodput(verdicts.values()))


def _gaps(record: Record) -> list[float]:
    """Gaps in seconds with the number, the sum and the 95th percentile (nearest rank) of those that were measured.

    The number of gaps above a threshold decides an `itl_p95`: for a threshold from the percentile on, it is at most
    the 20th part of them here too; below the percentile, it is the least number that has this percentile.
    """
    count = record.chunks - 1
    if count < 1 or record.itl_p95 is None or record.first is None or record.last is None:
        return []
    percentile = record.itl_p95
    late = count // 20 + 1  # gaps from the percentile on
    rest = max(0.0, record.last - record.first - late * percentile)
    if late == 1:  # the percentile is the maximum
        others = [min(percentile, rest / (count - 1))] * (count - 1) if count > 1 else []
        return [*others, percentile]
    return [0.0] * (count - late) + [percentile] * (late - 1) + [percentile + rest]
