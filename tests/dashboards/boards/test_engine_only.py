"""The dashboard of engines without a sidecar, on a Prometheus that scrapes a simulated engine and has its rules."""

import asyncio
import json
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from alerts.rule_file import render
from compose.cli import main
from compose.programs.tools import Tools
from dashboards.boards.engine_only import BOARD
from dashboards.live.audit import Finding, audit
from dashboards.live.reader import MAY_BE_EMPTY, TimeRange, checks_of, panels_of
from exporters.analysis.prometheus_api import Prometheus, PrometheusError
from exporters.vocabulary.slo_file import SloFile, loads
from tests.contract.expositions import VLLM_VERSIONS, vllm
from tests.dashboards.dashboard_files import SHIPPED_SLOS, page_of, panel
from tests.support.prometheus_process import prometheus
from tests.support.simulator import simulator
from tests.support.slo_files import ENGINE_ONLY
from tests.support.steady_client import SteadyClient
from tests.support.waiting import wait_until

QUICK = loads(ENGINE_ONLY.replace("period: 30d", "period: 12h\nscrape_interval: 1s"))
"""Its rules have results after a few seconds."""


@pytest.mark.long
async def test_every_query_has_data_or_is_declared_to_be_empty(tools: Tools, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(render(QUICK))
    checks, failing = [*checks_of(page_of(BOARD, QUICK))], list[Finding]()

    def is_complete(url: str) -> bool:
        now = time.time()
        try:
            findings = audit(checks, Prometheus(url), TimeRange(now - 60, now, 1.0))
        except PrometheusError:  # it is starting
            return False
        failing[:] = [each for each in findings if each.fails(strict=False)]
        return not failing

    async with (
        simulator() as engine,
        prometheus(tools.prometheus, tmp_path, int(engine.rpartition(":")[2]), job="vllm", rules=rules) as url,
    ):
        with SteadyClient(engine, "tiny"):
            await asyncio.to_thread(wait_until, lambda: is_complete(url))
    assert failing == []


def of_release(version: str) -> SloFile:
    return replace(SHIPPED_SLOS, engine=replace(SHIPPED_SLOS.engine, version=version))


def histograms(version: str) -> set[str]:
    """The histograms of vLLM that the dashboard for a release reads."""
    found = re.findall(
        r'__name__=\\"(vllm[^"]+)_bucket\\"', json.dumps(page_of(BOARD, of_release(version))).replace("=~", "=")
    )
    return {name.replace("[:_]", ":") for name in found}


@pytest.mark.parametrize("version", VLLM_VERSIONS)
def test_the_dashboard_reads_the_histograms_that_the_release_has(version: str) -> None:
    exposed = set(re.findall(r"^# TYPE (\S+) histogram$", vllm(version), re.MULTILINE))
    read = histograms(version)
    assert 6 <= len(read) <= 7
    assert read <= exposed


def test_the_lines_of_panels_fill_the_width_in_releases_with_and_without_a_time_per_output_token() -> None:
    assert len(histograms("0.10.2")) + 1 == len(histograms("0.11.0"))
    for version in ("0.10.2", "0.11.0"):
        widths: dict[int, int] = {}
        for each in page_of(BOARD, of_release(version))["panels"]:
            widths[each["gridPos"]["y"]] = widths.get(each["gridPos"]["y"], 0) + each["gridPos"]["w"]
        assert set(widths.values()) == {24}


def test_what_vllm_does_not_count_is_on_the_dashboard_with_the_reason() -> None:
    content = panel(page_of(BOARD), "Needs the sidecar")["options"]["content"]
    assert (
        "| Classes, tenants and routes | vLLM counts all requests of a model together; their class is `all` |"
        in content
    )
    assert "| Requests that were rejected, aborted, cut by a timeout or never answered | " in content
    assert "- SLO *itl*: vLLM counts token gaps of all requests together, so itl_p95 is left out; use tpot" in content
    assert "- SLO *availability*: vLLM counts only requests that finish" in content
    assert "SLO *ttft*" not in content  # 5 s is a bound
    adjusted = panel(page_of(BOARD, loads(ENGINE_ONLY.replace("30s", "32s"))), "Needs the sidecar")
    assert "- SLO *e2e*: 32s is not a bound of vllm:e2e_request_latency_seconds" in adjusted["options"]["content"]


def test_no_panel_claims_a_sidecar() -> None:
    for each in panels_of(page_of(BOARD)["panels"]):
        if each["type"] not in ("row", "text"):
            assert "sidecar" not in each["description"].lower().partition(MAY_BE_EMPTY)[0], each["title"]


def rendered(folder: Path) -> dict[str, Any]:
    (path,) = folder.iterdir()
    assert path.name == "slo-engine-only.json"
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize("flags", [["--source", "engine"], []], ids=["flag", "file"])
def test_the_source_selects_the_dashboard_as_it_selects_the_rules(flags: list[str], tmp_path: Path) -> None:
    slos, out = tmp_path / "slos.yaml", tmp_path / "out"
    slos.write_text(ENGINE_ONLY.replace("source: engine\n", "") if flags else ENGINE_ONLY)
    command = ["dashboards", "render", "--slos", str(slos), "--vllm-version", "0.10.2", "--out", str(out), *flags]
    assert main(command) == 0
    assert rendered(out) == page_of(
        BOARD, replace(loads(ENGINE_ONLY), engine=replace(SHIPPED_SLOS.engine, version="0.10.2"))
    )


def test_a_configmap_has_the_dashboard(tmp_path: Path) -> None:
    flags = ["--source", "engine", "--format", "configmap", "--out", str(tmp_path)]
    assert main(["dashboards", "render", *flags]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["slo-engine-only.yaml"]


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(
            ["--source", "engine", "--vllm-version", "x"],
            "--vllm-version: 'x' is not a release of vLLM; write its number, such as 0.25",
            id="no release",
        ),
        pytest.param(
            ["--source", "engine", "--vllm-version", "0.5"],
            "engine: the bounds of vLLM 0.5 are not known; the oldest known release is 0.6.6",
            id="too old",
        ),
        pytest.param(
            ["--source", "engine", "--loki", "{app='x'}".replace("'", '"')],
            "--loki: needs the request log of the sidecar; remove it, or use --source sidecar",
            id="a log of the sidecar",
        ),
    ],
)
def test_what_the_dashboard_cannot_have_is_refused(
    flags: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "render", "--out", str(tmp_path), *flags]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"
