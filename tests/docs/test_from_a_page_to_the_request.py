"""The commands of "From a page to the request" lead from a page of a running lab to the log line of one request."""

import argparse
import contextlib
import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from compose.cli import COMMANDS
from compose.lab.ports import SERVICES, Ports
from compose.lab.services import OURS
from docs.page_pictures import PAGE, commands
from tests.support.ports import free_lab_ports
from tests.support.waiting import HANG, wait_until

ROOT = Path(__file__).parents[2]
DEFAULT = Ports()
BODY = {"model": "Qwen/Qwen2.5-14B-Instruct", "prompt": "Hello", "max_tokens": 4, "stream": True}


def page_has_arrived(notifications: Path) -> bool:
    """Other pages may arrive while the lab starts on a busy machine."""
    lines = notifications.read_text(encoding="utf-8").split("\n")[:-1] if notifications.exists() else []
    labels = [json.loads(line)["labels"] for line in lines]
    return any(each["severity"] == "page" and each.get("slo") == "ttft" for each in labels)


@dataclass(slots=True)
class Load:
    """Requests of `siso`, one after the other, that all miss their objective."""

    url: str
    sent: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        request = urllib.request.Request(self.url, json.dumps(BODY).encode(), {"content-type": "application/json"})
        while not self._stop.is_set():
            with contextlib.suppress(OSError), urllib.request.urlopen(request) as response:
                response.read()
                self.sent += 1


@contextlib.contextmanager
def lab_after_a_page(folder: Path, ports: Ports) -> Iterator[Load]:
    """The lab under load, after the first page has arrived."""
    slos, pages = folder / "slos.yaml", folder / ".lab/run/pages.jsonl"
    text = (ROOT / "compose/slos.yaml").read_text(encoding="utf-8")
    slos.write_text(text.replace("threshold: 5s", "threshold: 1ms").replace("page: 50", "page: 10"), encoding="utf-8")
    numbers = ",".join(f"{service}={getattr(ports, service)}" for service in SERVICES)
    flags = ("--no-load", "--out", ".lab/run", "--slos", str(slos), "--ports", numbers)
    with subprocess.Popen([*OURS, "up", *flags], cwd=folder, stdout=subprocess.DEVNULL) as lab:
        load = Load(f"{ports.url('relay')}/v1/completions")
        try:
            assert wait_until(lambda: lab.poll() is not None or page_has_arrived(pages))
            yield load
        finally:
            load.stop()
            lab.terminate()
    assert lab.wait(HANG) == 0


def run(lines: list[str], folder: Path) -> list[str]:
    """The output of each command, in one shell."""
    separator = "--- next ---"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = f"\necho '{separator}'\n".join(["set -e -o pipefail", *lines])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"{separator}\n")[1:]


@pytest.mark.long
@pytest.mark.skipif(not (shutil.which("curl") and shutil.which("jq")), reason="the page needs curl and jq")
def test_the_commands_of_the_page_lead_from_an_alert_to_the_log_line_of_a_request(tmp_path: Path) -> None:
    ports = free_lab_ports()
    lines = commands(PAGE.read_text(encoding="utf-8"))
    for service in SERVICES:
        lines = [line.replace(DEFAULT.address(service), ports.address(service)) for line in lines]
    with lab_after_a_page(tmp_path, ports) as load:
        outputs: list[str] = []

        def alert_is_listed() -> bool:
            outputs[:] = run(lines[:1], tmp_path)
            return "siso on Qwen2.5-14B-Instruct: " in outputs[0]

        assert wait_until(alert_is_listed)  # the alerts of a busy machine may resolve and fire again
        load.stop()

        def stored() -> int:
            with urllib.request.urlopen(f"{ports.url('traces')}/api/traces?slo=ttft&verdict=bad&limit=1") as response:
                return int(json.load(response)["found"])

        assert wait_until(lambda: stored() >= load.sent)
        outputs += run(lines[1:], tmp_path)

    def output(words: str) -> str:
        (text,) = (text for line, text in zip(lines, outputs, strict=True) if words in line)
        return text

    assert "/d/vllm-slo-objective?viewPanel=" in output("api/v2/alerts")
    assert "incident/slo-overview.html" in output("dashboards preview")
    seconds, trace = output("| .value, .labels").split()
    assert re.fullmatch("[0-9a-f]{32}", trace)
    assert output("/api/traces/$TRACE").startswith("text_completion Qwen/Qwen2.5-14B-Instruct\t")
    assert "\nqueue\t" in output("/api/traces/$TRACE")
    assert len(output("sort=slowest").splitlines()) == 5
    line = json.loads(output("--columns"))
    assert line["slo"]["ttft"] == "bad"
    assert line["ttft_ms"] == pytest.approx(float(seconds) * 1000, abs=0.001)
    assert re.search(rf"^> .* {line['request_id']} ", output("--around"), re.MULTILINE)
    assert json.loads(output("/simulator/config"))["enable_prefix_caching"] is True


def test_every_command_of_the_page_is_found() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(commands(page)) == page.count("\n    $ ")
    assert commands("a\n    $ one \\\n      two\n    output\n    $ three\n") == ["one \\\n      two", "three"]


def test_the_commands_of_vllm_slo_on_the_page_have_flags_that_exist() -> None:
    text = "\n".join(commands(PAGE.read_text(encoding="utf-8"))).replace("\\\n", " ")
    found = [shlex.split(words) for words in re.findall(r"vllm-slo ([^|)\n]*)", text)]
    assert len(found) == 4
    for name, *flags in found:
        parser = argparse.ArgumentParser()
        importlib.import_module(COMMANDS[name][0]).configure(parser)
        parser.parse_args(flags)
