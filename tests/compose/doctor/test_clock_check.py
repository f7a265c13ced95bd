"""The drift of clocks, which is never larger than what the responses prove."""

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.doctor.clock_check import clocks, proven_drift, query_offset
from compose.doctor.finding import Finding, State, Unread
from compose.doctor.http_fetch import Response
from compose.doctor.prometheus_reading import ServerTime

NOW = 1_795_448_000.0
LOOKED_AT = "Date headers and time() of Prometheus, against the clock of this machine"
COST = (
    "log, spans and series of one request have different times, config changes are drawn at the wrong moment, and "
    "waits from x-request-start are wrong"
)
FIX = "timedatectl set-ntp true, on each machine"


def dated(date: str | None, sent_at: float = NOW, received_at: float = NOW + 0.01) -> Response:
    return Response(200, "", date, sent_at, received_at)


@given(
    st.floats(-1e4, 1e4),
    st.floats(0, 2),
    st.floats(0, 2),
    st.floats(0, 1),
    st.floats(0, 0.999),
)
def test_a_date_header_proves_no_more_drift_than_there_is(
    drift: float, there: float, back: float, age: float, fraction: float
) -> None:
    """`age` is the time since the server wrote the header, which it may keep for a second."""
    sent_at = NOW + fraction
    written = int(sent_at + there - age + drift)
    proven = clocks({"engine": dated(formatdate(written, usegmt=True), sent_at, sent_at + there + back)})
    if abs(drift) < 0.5:
        assert proven.state is State.OK
    if proven.state is not State.OK:
        shown = float(proven.found.split("at least ")[1].split(" s ")[0])
        assert shown <= abs(drift) + 0.051
        assert ("ahead" in proven.found) == (drift > 0)


@given(st.floats(-1e4, 1e4), st.floats(0, 2), st.floats(0, 2))
def test_the_time_of_a_query_is_between_its_request_and_its_response(drift: float, there: float, back: float) -> None:
    least, greatest = query_offset(ServerTime(NOW + there + drift, NOW, NOW + there + back))
    assert least - 1e-6 <= drift <= greatest + 1e-6
    assert abs(proven_drift((least, greatest))) <= abs(drift) + 1e-6


@pytest.mark.parametrize(
    "drift,expected",
    [
        pytest.param(0.0, Finding(State.OK, LOOKED_AT, "agree: Prometheus"), id="same"),
        pytest.param(-0.4, Finding(State.OK, LOOKED_AT, "agree: Prometheus"), id="less than half a second"),
        pytest.param(
            -7.0,
            Finding(State.WARNING, LOOKED_AT, "differ: Prometheus is at least 7.0 s behind", COST, FIX),
            id="behind",
        ),
        pytest.param(
            45.0,
            Finding(State.FAILED, LOOKED_AT, "differ: Prometheus is at least 45.0 s ahead", COST, FIX),
            id="far ahead",
        ),
    ],
)
def test_a_drift_costs_the_order_of_events(drift: float, expected: Finding) -> None:
    assert clocks({"Prometheus": ServerTime(NOW + drift, NOW, NOW)}) == expected


def test_a_clock_that_was_not_read_is_named() -> None:
    refused = Unread("http://127.0.0.1:9464: connection refused")
    date = formatdate(NOW, usegmt=True)
    assert clocks({"engine": dated(None), "sidecar": refused, "gateway": dated("yesterday")}) == Finding(
        State.NOT_CHECKED,
        LOOKED_AT,
        "not read: engine, sidecar, gateway",
        fix="start the services, or set their URLs",
    )
    assert clocks({"engine": dated(date), "sidecar": refused, "p": ServerTime(NOW + 9, NOW, NOW)}).found == (
        "agree: engine; differ: p is at least 9.0 s ahead; not read: sidecar"
    )
