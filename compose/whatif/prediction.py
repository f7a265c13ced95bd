"""Replays recorded traffic with one combination of settings, in virtual time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from compose.experiments.cells.virtual_fleet import VirtualFleet
from compose.experiments.cells.virtual_run import VirtualLoad, VirtualRun
from compose.simulator.engine.preset_file import Calibration
from compose.simulator.engine.step_terms import TPOT_ERROR, TTFT_ERROR
from compose.whatif.calibration import Speed
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


VALIDATED = Errors(TTFT_ERROR, TPOT_ERROR)


@dataclass(frozen=True, slots=True)
class Prediction:
    """The attainment by class, and that of engines slower and faster by the median error of the validation."""

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
    least, most = (_by_an_engine(errors, sign, combination, traffic, slos, timeout) for sign in (-1, 1))
    return Prediction(
        combination,
        _attained(records),
        least,
        most,
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


def _by_an_engine(
    errors: Errors, sign: int, combination: Combination, traffic: RecordedTraffic, slos: SloFile, timeout: float
) -> dict[str, Attainment]:
    """The attainment of an engine that is faster (or slower) by the error of TPOT, with its shorter (or longer) queues.

    The part of the error of TTFT that this does not explain changes the thresholds of TTFT.
    """
    speed = (1 + errors.tpot) ** sign
    engine = replace(combination, preset=Speed(speed, speed).of(combination.preset))
    records, _ = replay(engine, traffic, slos, timeout)
    judged_by = _scaled(slos, ((1 + errors.ttft) / (1 + errors.tpot)) ** sign)
    return _attained([regrade(each, judged_by) for each in records])


def _attained(records: Sequence[Record]) -> dict[str, Attainment]:
    return attainments((record.request_class, record.good) for record in records)


def _scaled(slos: SloFile, factor: float) -> SloFile:
    """The file with other thresholds of TTFT."""

    def scaled(slo: Slo) -> Slo:
        if not isinstance(slo.sli, Latency) or slo.measure not in {Measure.TTFT, Measure.TTFT_ANSWER}:
            return slo
        return replace(slo, sli=structs.replace(slo.sli, threshold=slo.sli.threshold * factor))

    return replace(slos, slos=tuple(map(scaled, slos.slos)))
