"""A planned change: `vllm-slo flip --maintenance` silences our alerts in a real Alertmanager, and marks the change."""

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from compose.cli import main
from compose.programs.tools import Tools
from exporters.sidecar.silence import ALERTS
from exporters.vocabulary.alert_names import AlertName
from tests.alerts.alertmanager.live_alertmanager import WEBHOOKS, Alertmanager, Labels, running
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_port
from tests.support.sidecar_process import run_command, sidecar
from tests.support.waiting import wait_until

ENGINE, MODEL = "10.0.0.1:8000", "org/model-7b"
BURN = {"alertname": "LLMErrorBudgetBurn", "severity": "page", "model": MODEL, "slo": "ttft", "class": "siso"}
DOWN = {"alertname": "LLMEngineDown", "severity": "page", "instance": "s:1", "engine": ENGINE}
CACHE = {"alertname": "LLMKVCacheFull", "severity": "ticket", "instance": "s:1", "engine": ENGINE, "model": MODEL}
OTHER_MODEL = BURN | {"model": "org/other"}
OTHER_ENGINE = DOWN | {"engine": "10.0.0.11:8000"}
OTHER_ENGINE_OF_MODEL = CACHE | {"engine": "10.0.0.11:8000"}
WATCHDOG = {"alertname": "VLLMSLOWatchdog", "severity": "none"}
FOREIGN = {"alertname": "NodeDown", "severity": "page", "model": MODEL, "engine": ENGINE}
ALL = (BURN, DOWN, CACHE, OTHER_MODEL, OTHER_ENGINE, OTHER_ENGINE_OF_MODEL, WATCHDOG, FOREIGN)


@pytest.fixture(scope="module")
def alertmanager(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    with running(tmp_path_factory.mktemp("alertmanager"), tools, *WEBHOOKS) as server:
        yield server


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("t0ken\n")
    path.chmod(0o600)
    return str(path)


class Admin(BaseHTTPRequestHandler):
    """A sidecar that accepts each declaration of `a` and rejects others, and is not an Alertmanager."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        status, answer = 404, dict[str, Any]()
        if self.path == "/admin/flip":
            accepted = "a" in body["set"]
            status = 200 if accepted else 400
            answer = {"engines": {ENGINE: {"a": "flipped"}}} if accepted else {"errors": ["engine: is not known"]}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def flip(token: str) -> Iterator[list[str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Admin) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield ["flip", "--admin-token-file", token, "--sidecar", f"http://127.0.0.1:{server.server_address[1]}"]
        server.shutdown()
        thread.join()


def silences(alertmanager: Alertmanager, tools: Tools) -> list[dict[str, Any]]:
    """The silences that have not expired, as amtool prints them."""
    words = (str(tools.amtool), f"--alertmanager.url={alertmanager.url}", "silence", "query", "-o", "json")
    listed: list[dict[str, Any]] = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return listed


def expire_all(alertmanager: Alertmanager, tools: Tools) -> None:
    for each in silences(alertmanager, tools):
        url = f"{alertmanager.url}/api/v2/silence/{each['id']}"
        with urllib.request.urlopen(urllib.request.Request(url, method="DELETE"), timeout=60):
            pass


def silenced(alertmanager: Alertmanager) -> list[Labels]:
    """Not the alerts that others inhibit."""
    with urllib.request.urlopen(f"{alertmanager.url}/api/v2/alerts", timeout=60) as response:
        return [each["labels"] for each in json.load(response) if each["status"]["silencedBy"]]


@pytest.mark.parametrize(
    "words,matched",
    [
        pytest.param([], [each for each in ALL if each not in (WATCHDOG, FOREIGN)], id="all alerts of ours"),
        pytest.param(["--engine", ENGINE], [DOWN, CACHE], id="an engine"),
        pytest.param(["--model", MODEL], [BURN, CACHE, OTHER_ENGINE_OF_MODEL], id="a model"),
        pytest.param(["--engine", ENGINE, "--model", MODEL], [BURN, DOWN, CACHE], id="one engine of a model"),
    ],
)
def test_a_planned_change_silences_our_alerts_of_the_engine_and_the_model(
    alertmanager: Alertmanager,
    tools: Tools,
    flip: list[str],
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    matched: list[dict[str, str]],
) -> None:
    alertmanager.post(ALL)
    flags = ["--set", "a=b", "--note", "as agreed", "--maintenance", "20m", "--alertmanager", alertmanager.url]
    assert main([*flip, *flags, *words]) == 0
    try:
        assert wait_until(lambda: len(silenced(alertmanager)) == len(matched))
        assert all(each in matched for each in silenced(alertmanager))
        listed = silences(alertmanager, tools)
        for each in listed:
            begins, ends = (datetime.fromisoformat(each[key]) for key in ("startsAt", "endsAt"))
            assert 1199 <= (ends - begins).total_seconds() <= 1200
            assert (each["comment"], each["createdBy"]) == ("planned change of a=b: as agreed", "vllm-slo flip")
        ids = re.findall(r"\(silence (\S+)\)", out := capsys.readouterr().out)
        assert sorted(ids) == sorted(each["id"] for each in listed)
        assert out.startswith('silenced for 20m: {alertname=~"LLM.+"')
        assert out.endswith(
            f"alerts resume by themselves; to end this earlier: amtool silence expire {' '.join(ids)}\n"
            f"the error budget is still charged\n{ENGINE}: a=b: changed\n"
        )
    finally:
        expire_all(alertmanager, tools)


def test_a_silence_expires_by_itself(alertmanager: Alertmanager, tools: Tools, flip: list[str]) -> None:
    alertmanager.post([BURN])
    assert main([*flip, "--set", "a=b", "--maintenance", "2s", "--alertmanager", f"{alertmanager.url}/"]) == 0
    assert wait_until(lambda: silences(alertmanager, tools) == [])
    assert wait_until(lambda: silenced(alertmanager) == [])


def test_a_change_that_is_rejected_is_not_silenced(
    alertmanager: Alertmanager, tools: Tools, flip: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*flip, "--set", "c=d", "--maintenance", "20m", "--alertmanager", alertmanager.url]) == 2
    assert capsys.readouterr() == ("", "vllm-slo: --engine: is not known\n")
    assert silences(alertmanager, tools) == []


async def test_a_planned_change_is_marked_in_the_dashboards(
    alertmanager: Alertmanager, tools: Tools, tmp_path: Path, token: str
) -> None:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--admin-token-file", token) as started:
        name = f"127.0.0.1:{engine.port}"
        await started.shows(f"llm_engine_up{{{name}}}", 1.0)
        words = ["--set", "image=v2", "--maintenance", "20m", "--alertmanager", alertmanager.url, "--engine", name]
        status, out, errors = await run_command(
            "--sidecar", started.pages, "--admin-token-file", token, *words, subcommand="flip"
        )
        assert (status, errors) == (0, ""), out
        marks = f"llm_engine_config_change_timestamp_seconds{{{name},v2,unknown,image}}"
        assert marks in await started.samples()
    assert len(silences(alertmanager, tools)) == 1
    expire_all(alertmanager, tools)


def test_the_matcher_selects_every_alert_except_the_watchdog() -> None:
    assert {name for name in AlertName if not re.fullmatch(ALERTS, name)} == {AlertName.WATCHDOG}


WITHOUT = "or declare the change without --maintenance"
EXAMPLE = "such as http://127.0.0.1:9093"


@pytest.mark.parametrize(
    "words,message",
    [
        pytest.param(
            ["--maintenance", "20m"],
            f"--maintenance: needs Alertmanager to silence alerts; add --alertmanager URL, {EXAMPLE}",
            id="no Alertmanager",
        ),
        pytest.param(
            ["--maintenance", "20", "--alertmanager", "http://h:9093"],
            "--maintenance: '20' is not a valid duration; write a number with a unit, such as 20m or 1h",
            id="no duration",
        ),
        pytest.param(
            ["--maintenance", "20m", "--alertmanager", "h:9093"],
            f"--alertmanager: 'h:9093' is not a valid URL; write http://host:port, {EXAMPLE}",
            id="no URL",
        ),
        pytest.param(
            ["--alertmanager", "http://h:9093"],
            "--alertmanager: only a planned change is silenced; add --maintenance TIME, such as 20m",
            id="an Alertmanager without a time",
        ),
        pytest.param(
            ["--model", "org/m"],
            "--model: only a planned change is silenced; add --maintenance TIME, such as 20m",
            id="a model without a time",
        ),
    ],
)
def test_invalid_flags_are_rejected(
    flip: list[str], capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main([*flip, "--set", "a=b", *words]) == 2
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")


def test_an_unreachable_alertmanager_declares_nothing(flip: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main([*flip, "--set", "a=b", "--maintenance", "20m", "--alertmanager", url]) == 3
    assert capsys.readouterr().err == (
        f"vllm-slo: --alertmanager: {url}: request failed: [Errno 111] Connection refused; write the URL of "
        f"Alertmanager, {EXAMPLE}, {WITHOUT}\n"
    )


def test_a_server_that_is_no_alertmanager_declares_nothing(flip: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    url = flip[-1]
    words = ["--set", "a=b", "--maintenance", "20m", "--alertmanager", url]
    assert main([*flip, *words]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --alertmanager: {url}: no silence: status 404 with '{{}}'; write the URL of Alertmanager with its "
        f"API v2, {EXAMPLE}, {WITHOUT}\n"
    )
