"""The fit of an engine's speed to a request log; `simulate --calibrate` and `whatif --calibrate` share it."""

import sys
from dataclasses import replace

from compose.simulator.engine.preset_file import Calibration
from compose.whatif.calibration import Speed, calibrate, residuals
from compose.whatif.combinations import Combination
from compose.whatif.prediction import replay
from compose.whatif.recorded_traffic import RecordedTraffic
from exporters.text.errors import UsageError
from exporters.vocabulary.slo_file import SloFile
from loadgen.results.record import Record

UNGRADED = SloFile(version=1, period=1.0, classes=(), slos=())


def fit_log(recorded: Combination, traffic: RecordedTraffic, timeout: float) -> tuple[Speed, Calibration]:
    """The speed that the log shows of the recorded settings; prints each speed tried, and the errors that remain.

    Raises:
        UsageError: the log has no latencies.
    """
    if not any(each.ttft or each.tpot for each in traffic.measured.values()):
        raise UsageError("--calibrate: the request log has no TTFT or TPOT; give a log of streams that ended")

    def at(speed: Speed) -> list[Record]:
        print(f"memory x {speed.memory:.2f}, arithmetic x {speed.compute:.2f}", file=sys.stderr)
        return replay(replace(recorded, preset=speed.of(recorded.preset)), traffic, UNGRADED, timeout)[0]

    speed = calibrate(at, traffic.measured)
    records = at(speed)
    left = residuals(records, traffic.measured)
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


def _spelled(error: float | None) -> str:
    return "not in the log" if error is None else f"{error:.1%}"
