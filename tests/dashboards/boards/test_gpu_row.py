"""The row GPU shows what DCGM's exporter exposes; the page is written from its documentation, not recorded."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from dashboards.boards.engine import BOARD
from dashboards.boards.engine_only import BOARD as ENGINE_ONLY
from exporters.vocabulary.signals import GPU_SIGNALS, GPU_THROTTLE_REASONS
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.support.promtool import ROOT, Case, Pace, Promtool

DOCUMENTED = ROOT / "tests/contract/dcgm/documented.prom"
SPEC = load(SHIPPED)


def families() -> list[Metric]:
    return [*text_string_to_metric_families(DOCUMENTED.read_text(encoding="utf-8"))]


def panels(board: Any = BOARD) -> Iterator[dict[str, Any]]:
    """The panels with a query of DCGM."""
    for panel in json.loads(board.render(SPEC))["panels"]:
        if any("DCGM_" in target["expr"] for target in panel.get("targets", ())):
            yield panel


def results() -> Iterator[tuple[str, str, int]]:
    """Each query with its legend and the number of its series on the documented page: two GPUs, two MIG instances."""
    per_instance = {"GPU memory in use": 3, "GPU activity": 3, "GPUs": 3}
    for panel in panels():
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5m")
            yield f"{panel['title']}: {target['legendFormat']}", query, per_instance.get(panel["title"], 2)


def test_the_declared_series_are_those_of_the_exporter() -> None:
    found = {family.samples[0].name.removesuffix("_total"): family for family in families()}
    # the name before DCGM 4
    assert {signal.name for signal in GPU_SIGNALS} - {GPU_THROTTLE_REASONS.name} == set(found)
    for signal in GPU_SIGNALS:
        if signal is not GPU_THROTTLE_REASONS:
            assert found[signal.name].type == signal.kind.value, signal.name
    labels = {name for family in found.values() for sample in family.samples for name in sample.labels}
    assert set(map(str, GPU_SIGNALS[0].labels)) <= labels


def test_every_query_has_a_line_for_each_gpu_or_mig_instance(promtool: Promtool) -> None:
    pace = Pace(SPEC)
    series = {
        line.rsplit(" ", 1)[0]: f"{line.rsplit(' ', 1)[1]}+0x40"
        for line in DOCUMENTED.read_text(encoding="utf-8").splitlines()
        if not line.startswith("#")
    }
    case = Case(SPEC, series, pace.step)
    assert len([*results()]) == 14
    for _, query, lines in results():
        case.expect(300.0, f"count({query})", {"{}": lines})
    promtool.test([case])


@pytest.mark.parametrize("panel", [*panels()], ids=lambda panel: panel["title"])
def test_a_panel_without_data_says_what_is_missing_and_how_to_check(panel: dict[str, Any]) -> None:
    assert "Prometheus scrapes no DCGM exporter" in panel["description"]
    assert "curl HOST:9400/metrics" in panel["description"]
    assert panel["fieldConfig"]["defaults"]["noValue"].startswith("no ")


def test_the_dashboard_without_a_sidecar_has_the_same_row() -> None:
    assert [panel["title"] for panel in panels(ENGINE_ONLY)] == [panel["title"] for panel in panels()]
