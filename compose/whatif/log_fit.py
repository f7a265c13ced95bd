"""The fit of an engine's speed to a request log; `simulate --calibrate` and `whatif --calibrate` share it."""

import sys
from dataclasses import replace

from compose.simulator.presets.preset_file import Calibration
from compose.whatif.calibration import Latencies, Speed, calibrate, residuals
from compose.whatif.combinations import Combination
from compose.whatif.recorded_traffic import RecordedRequest, RecordedTraffic
from compose.whatif.replay import replay
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome
from exporters.vocabulary.verdicts import EndedRequest


def fit_log(recorded: Combination, traffic: RecordedTraffic, timeout: float) -> tuple[Speed, Calibration]:
    """The speed that the log shows of the recorded settings; prints each speed tried, and the errors that remain.

    Raises:
        UsageError: the log has no latencies.
    """
    if not any(each.ttft or each.tpot for each in traffic.measured.values()):
        raise UsageError("--calibrate: the request log has no TTFT or TPOT; give a log of streams that ended")

    def at(speed: Speed) -> dict[int, Latencies]:
        print(f"memory x {speed.memory:.2f}, arithmetic x {speed.compute:.2f}", file=sys.stderr)
        return latencies(replace(recorded, preset=speed.of(recorded.preset)), traffic, timeout)

    speed = calibrate(at, traffic.measured)
    left = residuals(at(speed), traffic.measured)
    found = Calibration(
        requests=left.requests,
        ttft_error=left.ttft,
        tpot_error=left.tpot,
        **traffic.ranges(),
    )
    print(
        f"calibrated: memory x {speed.memory:.2f}, arithmetic x {speed.compute:.2f}; median errors of {left.requests} "
        f"requests: TTFT {_spelled(left.ttft)}, TPOT {_spelled(left.tpot)}",
        file=sys.stderr,
    )
    spans = ", ".join(f"{low} to {high} {name.replace('_', ' ')}" for name, (low, high) in found.ranges().items())
    print(f"holds for {spans}", file=sys.stderr)
    return speed, found


def latencies(combination: Combination, traffic: RecordedTraffic, timeout: float) -> dict[int, Latencies]:
    """The latencies of the requests that end in a replay, by their number."""
    found: dict[int, Latencies] = {}

    def keep(request: RecordedRequest, ended: EndedRequest) -> None:
        if ended.ending.outcome is Outcome.OK:
            found[request.number] = Latencies(ended.first_token, _tpot(ended))

    replay(combination, traffic, timeout, keep)
    return found


def _tpot(ended: EndedRequest) -> float | None:
    tokens, first, last = ended.ending.completion_tokens, ended.first_token, ended.ending.last_chunk
    return (last - first) / (tokens - 1) if tokens and tokens > 1 and first is not None and last is not None else None


def _spelled(error: float | None) -> str:
    return "not in the log" if error is None else f"{error:.1%}"
