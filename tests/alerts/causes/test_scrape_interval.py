"""A target that is scraped at another interval than the file states raises a ticket; a gap does not."""

from dataclasses import replace

import pytest

from exporters.vocabulary.slo_file import load
from tests.alerts.firing import firing
from tests.support.promtool import ROOT, Case, Promtool

ALERT = "LLMScrapeIntervalMismatch"
SPEC = load(ROOT / "alerts/slos.yaml")


def target(name: str, values: str) -> dict[str, str]:
    return {f'up{{job="vllm-slo-sidecar",instance="{name}"}}': values}


def scraped_every(seconds: float, series: dict[str, str]) -> Case:
    """The rules are those of the file, which says 15 s; they are evaluated each minute."""
    return Case(replace(SPEC, scrape_interval=seconds), series, 60.0, sidecar_is_up=False)


@pytest.mark.parametrize("seconds", [5.0, 10.0, 30.0, 60.0, 120.0])
def test_another_interval_raises_a_ticket(promtool: Promtool, seconds: float) -> None:
    n = round(2400 / seconds)
    wrong = scraped_every(seconds, target("wrong", f"1x{n}"))
    fires = {'{instance="wrong",job="vllm-slo-sidecar",severity="ticket"}': 1.0}
    wrong.expect_silent(540, ALERT).expect(2000, firing(ALERT, "instance, job, severity"), fires)
    wrong.expect_alert(
        2000,
        ALERT,
        {"severity": "ticket", "alert_source": "vllm-slo", "job": "vllm-slo-sidecar", "instance": "wrong"},
        {
            "summary": f"Prometheus scrapes wrong every {text(seconds)}, not every 15s",
            "description": f"The target wrong of the job vllm-slo-sidecar was scraped every {text(seconds)} in the "
            "last 10m. The rules were rendered for 15s (`scrape_interval` in the SLO file), so counts of a step are "
            "less accurate, and alerts on targets that are down or stalled are late or silent. Look first at "
            "`scrape_interval` of this job in Prometheus.",
            "runbook": f"vllm-slo alerts runbook {ALERT}",
        },
    )
    promtool.test([scraped_every(15, {}), wrong])


def text(seconds: float) -> str:
    return f"{seconds // 60:.0f}m 0s" if seconds >= 60 else f"{seconds:.0f}s"


def test_a_corrected_interval_ends_the_ticket(promtool: Promtool) -> None:
    rare = "1 _x3 " * 30
    corrected = scraped_every(15, target("s:1", f"{rare} 1x80"))
    corrected.expect(1800, firing(ALERT, "instance"), {'{instance="s:1"}': 1})
    promtool.test([corrected.expect_silent(1800 + 600, ALERT)])


def test_a_target_that_comes_and_goes_fails_or_is_new_raises_no_ticket(promtool: Promtool) -> None:
    """Three minutes up and three minutes away, a crash loop without data, and a pod of five minutes."""
    series = (
        target("comes and goes", "1x12 _x12 " * 20) | target("fails", "0x480") | target("lost some", "1x5 _ 1 " * 60)
    )
    series |= target("new", "_x400 1x20")
    case = scraped_every(15, series)
    for at in range(600, 7200, 60):
        case.expect_silent(at, ALERT)
    promtool.test([case])
