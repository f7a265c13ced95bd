"""`vllm-slo alerts runbook` prints the runbook of an alert."""

import pytest

from compose.cli import main
from exporters.vocabulary.alert_names import AlertName
from tests.support.runbook_queries import FOLDER


@pytest.mark.parametrize("name", [*AlertName, "oncall"])
def test_the_command_prints_the_runbook_of_an_alert(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "runbook", name]) == 0
    assert capsys.readouterr().out == (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def test_without_a_name_the_command_lists_all_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "runbook"]) == 0
    assert capsys.readouterr().out.splitlines() == [*AlertName, "oncall"]


@pytest.mark.parametrize("name", ["LLMSidecarDwon", "../runbooks/LLMSidecarDown"])
def test_an_unknown_name_gets_a_near_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "runbook", name]) == 2
    assert capsys.readouterr() == (
        "",
        f"vllm-slo: {name}: there is no alert of this name; did you mean 'LLMSidecarDown'?\n",
    )
