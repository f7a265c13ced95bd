"""Tickets on GPUs: a GPU that protects itself, and an Xid error of the hardware."""

import pytest

from alerts.causes.gpu import APPLICATION_XIDS
from alerts.plan import Plan
from exporters.vocabulary.slo_file import SloFile
from tests.alerts.firing import firing
from tests.support.promtool import Case, Pace, Promtool, constant

THROTTLED, XID = "LLMGPUThrottled", "LLMGPUXidError"
REASONS, OLD_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"
IDLE, CLOCK_SETTING, POWER_LIMIT, SLOWDOWN, SYNC_BOOST = 1, 2, 4, 8, 16
SOFTWARE_THERMAL, HARDWARE_THERMAL, POWER_BRAKE, DISPLAY = 32, 64, 128, 256


def on_gpu(series: str, gpu: str) -> str:
    return f'{series}{{Hostname="node-a",gpu="{gpu}",modelName="H100",instance="node-a:9400"}}'


def gauge(pace: Pace, *phases: tuple[float, float]) -> str:
    """A phase is steps and the value."""
    return " ".join(constant(value, pace.scrapes(steps) - 1) for steps, value in phases)


def tickets(alert: str) -> str:
    return firing(alert, "gpu", severity="ticket")


@pytest.mark.parametrize("series", [REASONS, OLD_REASONS])
@pytest.mark.parametrize(
    "reasons,fires",
    [
        pytest.param(SLOWDOWN, True, id="hardware slowdown"),
        pytest.param(SOFTWARE_THERMAL, True, id="software thermal slowdown"),
        pytest.param(
            SLOWDOWN + HARDWARE_THERMAL + POWER_LIMIT, True, id="hardware thermal slowdown at the power limit"
        ),
        pytest.param(POWER_BRAKE, True, id="power brake"),
        pytest.param(POWER_LIMIT, False, id="power limit"),
        pytest.param(IDLE + CLOCK_SETTING + SYNC_BOOST + DISPLAY, False, id="idle, settings, sync boost and display"),
    ],
)
def test_a_gpu_that_protects_itself_raises_a_ticket_until_it_no_longer_does(
    promtool: Promtool, pace: Pace, series: str, reasons: int, fires: bool
) -> None:
    values = {
        on_gpu(series, "0"): gauge(pace, (4, POWER_LIMIT), (4, reasons), (6, IDLE)),
        on_gpu(series, "1"): gauge(pace, (14, POWER_LIMIT)),
    }
    case = Case(pace.spec, values, pace.step).expect(pace.seconds(4), tickets(THROTTLED), {})
    case.expect(pace.seconds(7), tickets(THROTTLED), {'{gpu="0"}': 1} if fires else {})
    promtool.test([case.expect(pace.seconds(13), tickets(THROTTLED), {})])


def test_a_moment_at_a_reduced_clock_raises_no_ticket(promtool: Promtool, pace: Pace) -> None:
    moment = f"{gauge(pace, (4, 0))} {SLOWDOWN} {gauge(pace, (4, 0))}"
    case = Case(pace.spec, {on_gpu(REASONS, "0"): moment}, pace.step)
    promtool.test([case.expect_silent(pace.seconds(4.5)).expect_silent(pace.seconds(6))])


def test_an_xid_error_of_the_hardware_raises_a_ticket_for_a_day(promtool: Promtool, pace: Pace) -> None:
    """The series keeps the error; those of programs are no faults of the GPU."""
    day = Plan.of(pace.spec).day / pace.step
    values = {
        on_gpu("DCGM_FI_DEV_XID_ERRORS", "0"): gauge(pace, (4, 0), (day + 6, 79)),
        **{
            on_gpu("DCGM_FI_DEV_XID_ERRORS", f"program {xid}"): gauge(pace, (4, 0), (day + 6, xid))
            for xid in APPLICATION_XIDS
        },
        on_gpu("DCGM_FI_DEV_XID_ERRORS", "healthy"): gauge(pace, (day + 10, 0)),
    }
    case = Case(pace.spec, values, pace.step).expect(pace.seconds(3), tickets(XID), {})
    case.expect(pace.seconds(6), tickets(XID), {'{gpu="0"}': 1})
    promtool.test([case.expect(pace.seconds(day + 8), tickets(XID), {})])


def test_gpus_without_these_series_raise_no_ticket(promtool: Promtool, spec: SloFile) -> None:
    """The default CSV file of DCGM's exporter has no reasons; many hosts have no exporter."""
    pace = Pace(spec)
    values = {on_gpu("DCGM_FI_DEV_GPU_TEMP", "0"): gauge(pace, (10, 99))}
    promtool.test([Case(spec, values, pace.step).expect_silent(pace.seconds(10))])
