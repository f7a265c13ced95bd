"""The jobs of the SLO file select the targets in rules and dashboards."""

import re
from dataclasses import replace

import pytest

from alerts.plan import Plan
from alerts.rule_file import render
from alerts.scrape_jobs import targets_up
from dashboards.boards.registry import BOARDS
from exporters.vocabulary.slo_file import SHIPPED, SloFile, Source, load, loads
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Promtool, constant
from tests.support.slo_files import MINIMAL

JOB = re.compile(r'job=~?"([^"]*)"')


@pytest.mark.parametrize(
    "text,selector",
    [
        pytest.param("", 'up{job="vllm-slo-sidecar"}', id="default"),
        pytest.param("scrape_job: inference/sidecar\n", 'up{job="inference/sidecar"}', id="a PodMonitor"),
        pytest.param("scrape_job: [a.b/c, d]\n", r'up{job=~"a\\.b/c|d"}', id="several"),
        pytest.param("source: engine\nengine: {job: x}\n", 'up{job="x"}', id="without a sidecar"),
    ],
)
def test_the_rules_select_the_jobs_of_the_file(text: str, selector: str) -> None:
    spec = loads(MINIMAL + text)
    assert str(targets_up(Plan.of(spec))) == selector
    assert selector in render(spec)
    assert {*JOB.findall(render(spec))} == {*JOB.findall(selector)}


def test_the_dashboards_select_the_jobs_of_the_file() -> None:
    spec = replace(load(SHIPPED), scrape_job=("a.b/c", "d"))
    jobs = [name for board in BOARDS for name in re.findall(r'job=~?\\"(.*?)\\"', board.render(spec))]
    assert jobs
    assert {*jobs} == {r"a\\\\.b/c|d"}


def test_a_sidecar_of_each_job_pages_when_it_is_down(promtool: Promtool) -> None:
    spec: SloFile = replace(load(ROOT / "compose/slos.yaml"), scrape_job=("ns/a", "ns.b"))
    assert spec.source is Source.SIDECAR
    up = {f'up{{job="{job}",instance="{job}"}}': constant(0, 60) for job in ("ns/a", "ns.b", "nsxb", "other")}
    case = Case(spec, up, spec.scrape_interval, sidecar_is_up=False)
    down = {'{instance="ns/a"}': 1.0, '{instance="ns.b"}': 1.0}
    promtool.test([case.expect(30 * spec.scrape_interval, firing("LLMSidecarDown", "instance", severity="page"), down)])
