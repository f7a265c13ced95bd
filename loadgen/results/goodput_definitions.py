"""The goodput of one run by the definitions of five load generators, which count different requests.

The definitions were read in the sources of vllm bench serve 0.33, guidellm 0.8, aiperf 0.13 and inference-perf 0.6.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exporters.vocabulary.slo_file import Measure
from loadgen.results.record import ClientOutcome, Objective, Record, elapsed

VLLM = "vllm bench serve"

_JUDGED = (Measure.TTFT, Measure.TPOT, Measure.E2E)
"""The signals that all of them know."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Goodput by one definition: `good` of `of` requests, and `good` per second where this is how it is stated."""

    tool: str
    definition: str
    good: int
    of: int
    per_second: float | None = None

    @property
    def share(self) -> float | None:
        return self.good / self.of if self.of else None


def by_definition(records: Sequence[Record], slos: Iterable[Objective], seconds: float) -> list[Goodput]:
    """The goodput of a run of `seconds` by each definition, each with the same SLOs on TTFT, TPOT and E2E."""
    limits = {
        slo.name: (Measure(slo.signal), slo.threshold)
        for slo in slos
        if slo.signal in _JUDGED and slo.threshold is not None
    }

    def conditions(record: Record) -> list[tuple[Measure, float]]:
        return [limits[slo] for slo in record.slo if slo in limits]

    def conforms(record: Record, values: Mapping[Measure, float | None]) -> bool:
        """Whether the request meets its SLOs; one whose value is unknown counts as met."""
        return all((value := values[measure]) is None or value <= limit for measure, limit in conditions(record))

    ok = [record for record in records if record.outcome is ClientOutcome.OK]
    failed = len(records) - len(ok)
    judged = [record for record in records if record.good is not None]
    good = sum(record.good is True for record in judged)
    vllm = sum(conforms(record, vllm_values(record)) for record in ok)
    measurable = [
        record for record in ok if all(sent_values(record)[measure] is not None for measure, _ in conditions(record))
    ]
    conforming = sum(conforms(record, sent_values(record)) for record in measurable)
    lenient = sum(conforms(record, sent_values(record)) for record in ok)
    return [
        Goodput("vllm-slo", "good / judged: failures are bad, latencies from the intended time", good, len(judged)),
        Goodput(
            "vllm-slo", "good / offered: requests without a verdict and those not sent count too", good, len(records)
        ),
        Goodput(
            VLLM,
            "completed requests that meet the SLOs, per second: from sending, failures only lower the rate",
            vllm,
            len(ok),
            vllm / seconds if seconds else None,
        ),
        Goodput(
            "guidellm",
            "conforming / (measurable + errors): from sending, requests that lack a figure are left out",
            conforming,
            len(measurable) + failed,
        ),
        Goodput("aiperf", "good / (ok + errors): from sending", lenient, len(ok) + failed),
        Goodput("inference-perf", "good / successful: from sending, failures are left out", lenient, len(ok)),
    ]


def vllm_values(record: Record) -> dict[Measure, float | None]:
    """`vllm bench serve`'s values: from sending, by chunks with a choice, also the empty first and last ones."""
    return {
        Measure.TTFT: elapsed(record.sent, record.first_choice),
        Measure.TPOT: record.tpot_vllm,
        Measure.E2E: elapsed(record.sent, record.last_choice),
    }


def sent_values(record: Record) -> dict[Measure, float | None]:
    """Values from sending, by chunks with output."""
    return {
        Measure.TTFT: record.ttft_sent,
        Measure.TPOT: record.tpot,
        Measure.E2E: record.e2e_sent,
    }
