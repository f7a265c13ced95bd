"""`vllm-slo doctor`: its flags, exit status and output."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from alerts.rule_file import render
from compose.cli import main
from compose.doctor.finding import Place, Unread
from compose.doctor.prometheus_reading import read_prometheus
from compose.doctor.rule_difference import rendered
from compose.lab.rewrite_config import COMPOSE_DIRECTORY
from compose.programs.tools import Tools
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.compose import golden_texts
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_lab_ports, free_port
from tests.support.prometheus_process import prometheus
from tests.support.sidecar_process import SLOS, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import wait_until

LAB = COMPOSE_DIRECTORY / "slos.yaml"


@pytest.fixture
def flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Ports on which nothing listens, and no programs on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path))
    ports = free_lab_ports()
    names = ("engine", "relay", "sidecar", "prometheus", "alertmanager", "webhook", "load", "grafana", "traces")
    return ["doctor", "--format", "json", "--ports", ",".join(f"{name}={getattr(ports, name)}" for name in names)]


def findings(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, str]]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {check.pop("check"): check for check in document["checks"]}


def test_without_a_server_only_the_machine_is_checked_and_nothing_fails(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(flags) == 0
    states = {name: finding["state"] for name, finding in findings(capsys).items()}
    assert states["ports"] == "ok"
    machine = {"descriptors", "processes", "memory", "ports"}
    assert {state for name, state in states.items() if name not in machine} == {"not checked"}


def test_a_named_server_that_does_not_respond_fails(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert main([*flags, "--upstream", url, "--sidecar", url, "--prometheus", url]) == 1
    found = findings(capsys)
    assert {name for name, finding in found.items() if finding["state"] == "failed"} == {
        "engine metrics",
        "sidecar",
        "prometheus",
    }
    assert found["scrape interval"]["found"] == f"{url}: connection refused"


def test_the_sidecar_s_environment_names_its_engine_and_its_log(
    flags: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("VLLM_SLO_UPSTREAM", url)
    monkeypatch.setenv("VLLM_SLO_REQUEST_LOG", str(tmp_path / "requests.jsonl"))
    monkeypatch.setenv("VLLM_SLO_REQUEST_LOG_TOTAL", "1MiB")
    assert main(flags) == 1
    found = findings(capsys)
    assert found["engine metrics"]["looked_at"] == url
    assert found["request log"]["state"] == "ok"


@pytest.mark.slow
def test_a_rule_file_is_compared_by_its_content(
    flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """How the rules of another file differ depends on both files, and is left out."""
    assert main(["alerts", "render", "--format", "prometheusrule", "--out", str(tmp_path)]) == 0
    capsys.readouterr()
    for name, slos in (("lab", LAB), ("shipped", SHIPPED)):
        (tmp_path / f"{name}.yaml").write_text(render(load(slos)))
    found, other = {}, ["--slos", str(LAB)]
    for name, extra in (("lab", []), ("shipped", []), ("prometheusrule", []), ("shipped", other)):
        file = str(tmp_path / f"{name}.yaml")
        status = main([*flags, "--rules", file, *extra])
        finding = findings(capsys)["rule file"]
        assert finding["looked_at"] == file
        text = finding["found"].partition(": ")[0]
        found[f"{name}, {'the other SLO file' if extra else 'no SLO file'}"] = f"{status}: {finding['state']}: {text}"
    places = {str(LAB): "LAB", **{f"all {len(rendered(load(each)))} ": "all " for each in (LAB, SHIPPED)}}
    golden_texts.assert_golden(__file__, "rule file", found, places)


REFUSED = {
    "no URL": "--upstream localhost:8000",
    "credentials": "--sidecar http://a:b@localhost:9464",
    "no clients": "--clients 0",
    "no size": "--request-log-total 8GB",
    "another file": "--rules {folder}/list",
    "no token": "--engine-token-file {folder}/list",
}


def test_wrong_usage_is_refused(flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """`test_bad_input.py` has files that cannot be read."""
    (tmp_path / "list").write_text("- a\n- b\n")
    found = {}
    for case, words in REFUSED.items():
        assert main([*flags, *words.format(folder=tmp_path).split()]) == 2
        found[case] = capsys.readouterr().err.strip()
    engine = "http://127.0.0.1:" + flags[-1].partition("engine=")[2].partition(",")[0]
    golden_texts.assert_golden(__file__, "refusals", found, {engine: "ENGINE", str(tmp_path): "FOLDER"})


async def test_the_token_is_sent_to_the_engine(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    async with serving(Engine()) as engine:
        words = ["--upstream", engine.url, "--send-request", "--engine-token-file", str(tmp_path / "token")]
        await asyncio.to_thread(main, [*flags, *words])
    assert [head["authorization"] for head in engine.heads] == ["Bearer secret"]


async def test_a_running_sidecar_engine_and_prometheus_are_checked(
    tools: Tools, flags: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The scrape interval of this Prometheus is another one than the SLO file's."""
    slos, rules = tmp_path / "doctor.yaml", tmp_path / "rules.yaml"
    slos.write_text(SLOS)
    rules.write_text(render(load(slos)))
    async with (
        simulator() as engine,
        sidecar(tmp_path, engine) as running,
        prometheus(tools.prometheus, tmp_path, running.metrics_port, job="vllm-slo-sidecar", rules=rules) as url,
    ):
        words = ["--upstream", engine, "--sidecar", running.pages, "--prometheus", url, "--slos", str(slos)]

        def is_scraped() -> bool:
            active = read_prometheus(Place(url, "--prometheus", named=True)).targets
            return not isinstance(active, Unread) and any(each["health"] == "up" for each in active)

        await asyncio.to_thread(wait_until, is_scraped)
        status = await asyncio.to_thread(main, [*flags, *words, "--send-request", "--request-log", str(running.log)])
    found = findings(capsys)
    assert status == 1
    states = {name: finding["state"] for name, finding in found.items()}
    del states["config revisions"]  # ok if a scrape has followed the request
    del states["scrape targets"]  # failed where the last scrape has timed out, on a busy machine
    expected = {"descriptors", "request log", "clocks", "sidecar", "engine metrics", "engine exposure", "cached tokens"}
    expected |= {"engine times", "upstream", "ports", "processes", "memory"}
    expected |= {"prometheus", "target names", "rules", "exemplars", "histograms", "labels"}
    assert {name for name, state in states.items() if state == "ok"} == expected
    assert {name for name, state in states.items() if state == "failed"} == {"scrape interval"}
    assert found["scrape interval"]["found"] == "1s, and the SLO file has 200ms"
    assert found["clocks"]["found"] == "agree: engine, sidecar, Prometheus"
