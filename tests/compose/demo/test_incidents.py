"""An incident is a group that goes from nothing firing to firing."""

import pytest

from compose.demo.incidents import IncidentCount, count_incidents
from compose.lab.webhook import Notification


def notification(at: float, status: str = "firing", receiver: str = "page", **labels: str) -> Notification:
    return Notification(
        arrived_at=at, receiver=receiver, status=status, labels=labels, annotations={}, started="", fingerprint=""
    )


@pytest.mark.parametrize(
    "arrivals, expected",
    [
        pytest.param([], IncidentCount(0, 0), id="nothing"),
        pytest.param([notification(1, model="m")], IncidentCount(1, 0), id="one"),
        pytest.param([notification(1, model="m"), notification(1, model="m", slo="x")], IncidentCount(1, 0), id="two"),
        pytest.param([notification(1, model="m"), notification(1, model="n")], IncidentCount(2, 0), id="two models"),
        pytest.param(
            [notification(1, model="m"), notification(2, model="m", slo="x"), notification(9, "resolved", model="m")],
            IncidentCount(1, 2),
            id="joined and partly resolved",
        ),
        pytest.param(
            [notification(1, model="m"), notification(2, "resolved", model="m"), notification(3, model="m")],
            IncidentCount(2, 1),
            id="opened again",
        ),
        pytest.param([notification(1, receiver="ticket")], IncidentCount(0, 0), id="another receiver"),
    ],
)
def test_incidents_are_counted_by_group(arrivals: list[Notification], expected: IncidentCount) -> None:
    assert count_incidents(arrivals, "page") == expected


def test_the_groups_are_those_of_alertmanager() -> None:
    arrivals = [notification(1, model="m", alertname="a"), notification(1, model="m", alertname="b")]
    assert count_incidents(arrivals, "page", ["alertname", "model"]) == IncidentCount(2, 0)
