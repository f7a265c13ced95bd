"""Alertmanager's webhook requests and their notifications."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from compose.lab.ports import HOST
from compose.lab.webhook import Notification, NotificationStore, PayloadError, parse_notifications, serve
from tests.support.ports import free_lab_ports

ALERT = {
    "status": "firing",
    "labels": {"alertname": "LLMErrorBudgetBurn", "class": "siso", "slo": "ttft", "severity": "page"},
    "annotations": {"summary": "siso burns"},
    "startsAt": "2026-01-31T12:00:00Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph",
    "fingerprint": "abc",
}


def delivery(*alerts: dict[str, Any], **other: Any) -> bytes:
    payload = {"version": "4", "groupKey": "{}", "receiver": "page", "status": "firing", "alerts": alerts}
    return json.dumps(payload | other).encode()


def test_a_delivery_is_read_alert_by_alert() -> None:
    resolved = ALERT | {"status": "resolved"}
    first, second = parse_notifications(delivery(ALERT, resolved), arrived_at=12.5)
    assert (first.status, second.status) == ("firing", "resolved")
    assert first.arrived_at == 12.5
    assert first.receiver == "page"
    assert first.has(**{"class": "siso", "slo": "ttft", "severity": "page"})
    assert not first.has(**{"class": "liso"})


@pytest.mark.parametrize(
    "body, message",
    [
        pytest.param(b"hello", "JSON is malformed: ", id="not JSON"),
        pytest.param(b'{"version": "4", "receiver": "page"}', "Object missing required field `alerts`", id="no alerts"),
        pytest.param(delivery(ALERT, version="5"), "version '5', expected '4'", id="another version"),
    ],
)
def test_a_body_that_is_not_a_notification_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(PayloadError) as caught:
        parse_notifications(body, arrived_at=0)
    assert str(caught.value).startswith(f"not an Alertmanager notification: {message}")


def test_an_alert_that_a_later_delivery_repeats_counts_once(tmp_path: Path) -> None:
    printed: list[Notification] = []
    notifications = NotificationStore(tmp_path / "pages.jsonl", printed.append)
    notifications.add(delivery(ALERT), 1.0)
    notifications.add(delivery(ALERT, ALERT | {"labels": {"alertname": "Other"}}), 2.0)
    notifications.add(delivery(ALERT | {"status": "resolved"}), 3.0)
    assert [(each.name, each.status, each.arrived_at) for each in printed] == [
        ("LLMErrorBudgetBurn", "firing", 1.0),
        ("Other", "firing", 2.0),
        ("LLMErrorBudgetBurn", "resolved", 3.0),
    ]
    assert notifications.received == printed
    lines = [json.loads(line) for line in (tmp_path / "pages.jsonl").read_text().splitlines()]
    assert [line["arrived"] for line in lines] == [1.0, 2.0, 3.0]


async def test_over_http_any_path_takes_a_delivery_and_refuses_the_rest(tmp_path: Path) -> None:
    notifications = NotificationStore(tmp_path / "pages.jsonl", lambda _: None)
    ports = free_lab_ports()
    async with serve(notifications, HOST, ports.webhook), aiohttp.ClientSession(ports.url("webhook")) as http:
        async with http.get("/healthz") as response:
            assert response.status == 200
        async with http.post("/page", data=delivery(ALERT)) as response:
            assert response.status == 200
        async with http.post("/page", data=b"{}") as response:
            assert response.status == 400
            assert "missing required field" in await response.text()
    assert [each.name for each in notifications.received] == ["LLMErrorBudgetBurn"]
