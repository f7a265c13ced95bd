"""Alertmanager's webhook requests and their notifications, also in the process of `vllm-slo webhook`."""

import json
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from compose.cli import main
from compose.lab.ports import HOST
from compose.lab.services import OURS
from compose.lab.webhook import Notification, NotificationStore, PayloadError, parse_notifications, serve
from tests.support.ports import busy_port, free_lab_ports
from tests.support.waiting import HANG, wait_until

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


def received(url: str, *flags: str) -> str:
    """Start a webhook, send it a page and stop it; its log."""
    command = [*OURS, "webhook", "--listen", url.removeprefix("http://"), *flags]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert wait_until(lambda: is_up(url + "/healthz"))
            request = urllib.request.Request(url + "/page", data=delivery(ALERT))
            with urllib.request.urlopen(request, timeout=HANG) as response:
                assert response.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=HANG)
    assert process.returncode == 0
    return log


def is_up(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except OSError:
        return False


@pytest.mark.slow
def test_a_page_is_a_line_of_the_log_and_a_line_of_the_file(tmp_path: Path) -> None:
    url, file = free_lab_ports().url("webhook"), tmp_path / "pages.jsonl"
    log = received(url, "--out", str(file))
    assert f" INFO webhook: waiting for notifications at {url}\n" in log
    assert " INFO webhook: page firing " in log
    assert log.endswith("LLMErrorBudgetBurn ttft/siso - siso burns\n")
    (line,) = file.read_text().splitlines()
    assert json.loads(line)["labels"] == ALERT["labels"]


def test_a_wrong_address_a_busy_port_and_a_missing_folder_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "missing" / "pages.jsonl"
    with busy_port() as port:
        refused = {
            ("here",): "--listen: 'here' is not a valid address; write HOST:PORT, such as 127.0.0.1:8001",
            ("127.0.0.1:0", "--out", str(file)): f"--out {file}: no such file or directory",
            (f"127.0.0.1:{port}",): f"--listen: cannot listen on 127.0.0.1:{port}: address already in use",
        }
        for words, message in refused.items():
            assert main(["webhook", "--listen", *words]) == 2
            assert capsys.readouterr().err == f"vllm-slo: {message}\n"
