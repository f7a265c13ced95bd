"""Replays recorded traffic with one combination of settings, in virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.simulator.engine.preset_file import Calibration
from compose.simulator.engine.step_terms import TPOT_ERROR, TTFT_ERROR
from compose.whatif.combinations import Combination
from compose.whatif.recorded_traffic import Attainment, RecordedTraffic, attainments
from exporters.vocabulary.slo_file import Latency, Measure, Slo, SloFile
from loadgen.results.record import Record
from loadgen.results.regrading import regrade
from loadgen.schedule.phases import Replay
from loadgen.schedule.traces import PHASE, TraceSchedule


@dataclass(frozen=True, slots=True)
class Errors:
    """Median relative errors of TTFT, and of all other latencies."""

    ttft: float
    tpot: float

    def replaced_by(self, found: Calibration) -> "Errors":
        """Those of a calibration, for the latencies that it had."""
        return Errors(
            self.ttft if found.ttft_error is None else found.ttft_error,
            self.tpot if found.tpot_error is None else found.tpot_error,
        )

    def of(self, measure: Measure) -> float:
        return self.ttft if measure in {Measure.TTFT, Measure.TTFT_ANSWER} else self.tpot


VALIDATED = Errors(TTFT_ERROR, TPOT_ERROR)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The attainment by class, and with all latencies longer or shorter by the median error of the validation."""

    combination: Combination
    attained: Mapping[str, Attainment]
    least: Mapping[str, Attainment]
    most: Mapping[str, Attainment]
    output_tokens: int
    seconds: float

    def interval(self, name: str) -> tuple[float, float]:
        """The least and the greatest share of good requests of a class; requests may have a verdict in one of them."""
        shares = [each[name].share for each in (self.least, self.attained, self.most) if name in each]
        return min(shares), max(shares)


def predict(
    combination: Combination, traffic: RecordedTraffic, slos: SloFile, timeout: float, errors: Errors = VALIDATED
) -> Prediction:
    """Clients end a request after `timeout` seconds."""
    records, seconds = replay(combination, traffic, slos, timeout)
    slower, faster = ([regrade(each, _scaled(slos, errors, sign)) for each in records] for sign in (1, -1))
    return Prediction(
        combination,
        _attained(records),
        _attained(slower),
        _attained(faster),
        sum(record.completion_tokens or 0 for record in records),
        seconds,
    )


def replay(
    combination: Combination, traffic: RecordedTraffic, slos: SloFile, timeout: float
) -> tuple[list[Record], float]:
    """The requests of all replicas, and the seconds until the last has ended."""
    schedule = TraceSchedule(traffic.requests, seed=0)
    load = VirtualLoad(
        schedule=schedule,
        phases=(Replay(PHASE, schedule.seconds),),
        slos=slos,
        timeout=timeout,
        timeouts={},
        max_concurrency=None,
    )
    records: list[Record] = []
    fleet = VirtualFleet(combination.flags, combination.preset, (combination.pool,))
    seconds = VirtualRun(fleet, load, lambda record, _: records.append(record), lambda *_: None).run()
    return records, seconds


def _attained(records: Sequence[Record]) -> dict[str, Attainment]:
    return attainments((record.request_class, record.good) for record in records)


def _scaled(slos: SloFile, errors: Errors, sign: int) -> SloFile:
    """Thresholds that judge a latency as the ones of the file judge one that is longer (or shorter) by its error."""

    def scaled(slo: Slo) -> Slo:
        if not isinstance(slo.sli, Latency):
            return slo
        threshold = slo.sli.threshold / (1 + sign * errors.of(slo.measure))
        return replace(slo, sli=structs.replace(slo.sli, threshold=threshold))

    return replace(slos, slos=tuple(map(scaled, slos.slos)))
