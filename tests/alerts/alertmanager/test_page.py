"""A burn in the real lab, from the engine to the webhook: the complete page, and its resolution."""

import asyncio
import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from compose.lab.run_directory import RunDirectory
from compose.lab.running import Lab, running
from compose.lab.services import LabConfig
from compose.lab.webhook import Notification
from compose.programs.tools import Tools
from exporters.vocabulary import slo_file
from tests.alerts.alertmanager.live_alertmanager import ROOT
from tests.alerts.alertmanager.offered_load import offered
from tests.support.ports import free_lab_ports

# A burn from the start on may page before the budget is recorded.
SUMMARY = re.compile(
    r"siso on \S+: (?P<share>\d+) % of requests miss TTFT 500 ms(, budget (spent|gone in \d+ [dhms]))?"
)
DESCRIPTION = re.compile(
    r"(?P<share>\d+) % of siso( \([^)]*\))? requests to \S+ miss TTFT 500 ms \(objective 95 %\)\."
    r"( (Budget left: \d+ % of 12 h, gone in \d+ [dhms]|The budget of 12 h is spent \d+\.\d times)\.)?"
    r" Worst replicas: 127\.0\.0\.1:\d+ \d+ %\."
    r"( Tier fast-page: over 72 % in 1 m\.)?( Tier slow-page: over 30 % in 6 m\.)? Look first at the oldest wait\."
)


async def arrives(lab: Lab, status: str) -> Notification:
    # An idle machine needs a minute: windows, evaluation, grouping.
    async with asyncio.timeout(300):
        while True:
            for each in lab.notifications.received:
                if each.status == status and each.has(alertname="LLMErrorBudgetBurn", severity="page", slo="ttft"):
                    return each
            await asyncio.sleep(0.2)


@pytest.mark.long
async def test_a_burn_pages_with_all_annotations_and_resolves_when_it_ends(tools: Tools, tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "compose/slos.yaml").read_text().replace("threshold: 5s", "threshold: 500ms"))
    spec = slo_file.load(path)
    config = LabConfig(
        directory=RunDirectory(tmp_path / "run"), ports=free_lab_ports(), slos=path, simulator=("--max-num-seqs", "1")
    )
    async with running(config, spec, tools, print, print) as lab, offered(lab):
        page = await lab.processes.during(arrives(lab, "firing"))
        model = page.labels["model"]
        expected = {"severity": "page", "alert_source": "vllm-slo", "slo": "ttft", "class": "siso"}
        assert page.receiver == "page"
        assert page.labels == {"alertname": "LLMErrorBudgetBurn", "model": model, **expected}
        assert page.annotations.keys() >= {"summary", "description", "runbook", "dashboard_url"}
        summary = SUMMARY.fullmatch(page.annotations["summary"])
        description = DESCRIPTION.fullmatch(page.annotations["description"])
        assert summary, page.annotations["summary"]
        assert description, page.annotations["description"]
        assert summary["share"] == description["share"]
        assert int(summary["share"]) > 30
        assert page.annotations["runbook"] == "vllm-slo alerts runbook LLMErrorBudgetBurn"
        dashboard = urlsplit(page.annotations["dashboard_url"])
        assert dashboard.path == "/d/vllm-slo-objective"
        assert parse_qs(dashboard.query).items() >= {"var-class": ["siso"], "var-model": [model]}.items()

        flip = {"max_num_seqs": 256}
        async with lab.http.post(config.upstream + "/simulator/config", json=flip) as response:
            assert response.status == 200
        ended = await lab.processes.during(arrives(lab, "resolved"))
        for text in ("summary", "description"):  # it is recorded by now
            assert "budget " in ended.annotations[text].lower()
        assert (ended.labels, ended.receiver, ended.started) == (page.labels, "page", page.started)
