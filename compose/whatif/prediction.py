"""The attainment of recorded traffic with one combination of settings, with brackets from the validated error."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from compose.simulator.presets.preset import Preset
from compose.simulator.presets.preset_file import Calibration
from compose.simulator.presets.step_terms import DENSE_ERRORS, MIXTURE_ERRORS
from compose.whatif.calibration import Speed
from compose.whatif.combinations import Combination
from compose.whatif.recorded_traffic import Attainment, RecordedRequest, RecordedTraffic, attainments
from compose.whatif.replay import replay
from exporters.vocabulary.slo_file import Latency, Measure, Slo, SloFile
from exporters.vocabulary.verdicts import (
    ApplicableSlos,
    EndedRequest,
    applicable_slos,
    goodput,
    judge_ended,
    several_tokens,
)


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


def validated_errors(preset: Preset) -> Errors:
    """Those of the step model, for dense models or for mixtures of experts."""
    return Errors(*(MIXTURE_ERRORS if preset.expert_share else DENSE_ERRORS))


@dataclass(frozen=True, slots=True)
class Prediction:
    """The attainment by class, and that of engines slower and faster by the median error of the validation."""

    combination: Combination
    attained: Mapping[str, Attainment]
    least: Mapping[str, Attainment]
    most: Mapping[str, Attainment]
    events: Mapping[tuple[str, str], Attainment]
    output_tokens: int
    seconds: float

    def interval(self, name: str) -> tuple[float, float]:
        """The least and the greatest share of good requests of a class; requests may have a verdict in one of them."""
        shares = [each[name].share for each in (self.least, self.attained, self.most) if name in each]
        return min(shares), max(shares)


def budget_use(events: Mapping[tuple[str, str], Attainment], slos: SloFile) -> Sequence[tuple[float, str, str]]:
    """How fast each error budget is used, with class and SLO, the fastest first; 1 uses it up exactly.

    The share of bad events divided by the share that may be bad: the burn rate in "The Site Reliability Workbook",
    chapter 5.
    """
    budgets = {slo.name: slo.budget for slo in slos.slos}
    found = [((1 - each.share) / budgets[slo], name, slo) for (name, slo), each in events.items() if slo in budgets]
    return sorted(found, reverse=True)


def predict(
    combination: Combination, traffic: RecordedTraffic, slos: SloFile, timeout: float, errors: Errors
) -> Prediction:
    """Clients end a request after `timeout` seconds."""
    attained = _Attained(slos)
    seconds = replay(combination, traffic, timeout, attained.add)
    least, most = (_by_an_engine(errors, sign, combination, traffic, slos, timeout) for sign in (-1, 1))
    return Prediction(combination, attained.by_class, least, most, attained.events, attained.output_tokens, seconds)


def _by_an_engine(
    errors: Errors, sign: int, combination: Combination, traffic: RecordedTraffic, slos: SloFile, timeout: float
) -> Mapping[str, Attainment]:
    """The attainment of an engine that is faster (or slower) by the error of TPOT, with its shorter (or longer) queues.

    The part of the error of TTFT that this does not explain changes the thresholds of TTFT.
    """
    speed = (1 + errors.tpot) ** sign
    attained = _Attained(_scaled(slos, ((1 + errors.ttft) / (1 + errors.tpot)) ** sign))
    engine = replace(combination, preset=Speed(speed, speed).of(combination.preset))
    replay(engine, traffic, timeout, attained.add)
    return attained.by_class


class _Attained:
    """Counts the requests of a replay by class and goodput."""

    def __init__(self, slos: SloFile) -> None:
        self.output_tokens = 0
        self._slos = slos
        self._kinds: dict[tuple[str, bool, bool], ApplicableSlos] = {}
        self._counts: Counter[tuple[str, bool | None]] = Counter()
        self._verdicts: Counter[tuple[tuple[str, str], bool | None]] = Counter()

    @property
    def by_class(self) -> Mapping[str, Attainment]:
        return attainments(self._counts)

    @property
    def events(self) -> Mapping[tuple[str, str], Attainment]:
        """The good and bad events of each class and SLO."""
        return attainments(self._verdicts)

    def add(self, request: RecordedRequest, ended: EndedRequest) -> None:
        self.output_tokens += ended.ending.completion_tokens or 0
        name = self._slos.classify(
            request.request_class, request.prompt_tokens, request.output_tokens, request.endpoint
        )
        kind = name, ended.stream, several_tokens(ended.n, ended.max_tokens)
        applicable = self._kinds.get(kind)
        if applicable is None:
            applicable = applicable_slos(self._slos.slos_of(name), stream=kind[1], several=kind[2])
            self._kinds[kind] = applicable
        verdicts = judge_ended(applicable, self._slos.first_token_timeout, ended)
        self._counts[request.request_class, goodput(verdicts.values())] += 1
        for slo, verdict in verdicts.items():
            self._verdicts[(request.request_class, slo), goodput([verdict])] += 1


def _scaled(slos: SloFile, factor: float) -> SloFile:
    """The file with other thresholds of TTFT."""

    def scaled(slo: Slo) -> Slo:
        if not isinstance(slo.sli, Latency) or slo.measure not in {Measure.TTFT, Measure.TTFT_ANSWER}:
            return slo
        return replace(slo, sli=structs.replace(slo.sli, threshold=slo.sli.threshold * factor))

    return replace(slos, slos=tuple(map(scaled, slos.slos)))
