"""The drift of clocks, which is never larger than what the responses prove."""

from email.utils import formatdate

from hypothesis import given
from hypothesis import strategies as st

from compose.doctor.clock_check import clocks, proven_drift, query_offset
from compose.doctor.finding import State, Unread
from compose.doctor.http_fetch import Response
from compose.doctor.prometheus_reading import ServerTime
from tests.compose.doctor.golden_findings import assert_golden

NOW = 1_795_448_000.0


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


def test_clocks() -> None:
    drifts = {"same": 0.0, "less than half a second": -0.4, "behind": -7.0, "far ahead": 45.0}
    found = {name: clocks({"Prometheus": ServerTime(NOW + drift, NOW, NOW)}) for name, drift in drifts.items()}
    refused, date = Unread("http://127.0.0.1:9464: connection refused"), formatdate(NOW, usegmt=True)
    found["none is read"] = clocks({"engine": dated(None), "sidecar": refused, "gateway": dated("yesterday")})
    found["one is not read"] = clocks(
        {"engine": dated(date), "sidecar": refused, "Prometheus": ServerTime(NOW + 9, NOW, NOW)}
    )
    assert_golden("clocks", found)
