"""Without a sidecar, each SLO is counted at a histogram bound or left out, and the limitations are stated."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.engine_only import CAVEAT, SupportedSlo, UnsupportedSlo, evaluate_slos, snap
from alerts.rule_file import render, rules
from alerts.rules.groups import Alert, Recording
from compose.cli import main
from exporters.engines.vllm_buckets import NEWEST, OLDEST, order
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, Latency, Measure, Slo, load, loads
from tests.support.slo_files import ENGINE_ONLY, engine_only

SPEC = loads(ENGINE_ONLY)


@given(
    st.sampled_from([Measure.TTFT, Measure.TPOT, Measure.E2E, Measure.QUEUE]),
    st.sampled_from([OLDEST, "0.8.5", "0.11", NEWEST, "0.99"]),
    st.floats(0.0005, 3000).map(lambda seconds: round(seconds, 4)),
)
def test_a_threshold_is_counted_at_the_nearest_bound_of_its_release(
    measure: Measure, version: str, threshold: float
) -> None:
    slo = Slo(name="x", classes=("short", "long"), sli=Latency(measure, threshold), objective=0.95)
    match evaluate_slos(replace(engine_only(version), slos=(slo,))):
        case (SupportedSlo(_, histogram, bound),):
            assert bound in histogram.bounds
            assert all(abs(bound - threshold) <= abs(other - threshold) + 1e-9 for other in histogram.bounds)
            assert snap(bound, histogram.bounds) == bound
        case (UnsupportedSlo(_, key, note),) if key == "threshold":
            side, nearest = re.search(r" is (below|above) every .* ([\d.]+)s$", note).groups()  # type: ignore[union-attr]
            assert threshold < float(nearest) if side == "below" else threshold > float(nearest)
        case (UnsupportedSlo(_, key),):
            assert (key, measure, order(version) < (0, 11, 0)) == ("signal", Measure.TPOT, True)


def test_of_two_equally_near_bounds_the_stricter_is_used() -> None:
    assert snap(0.25, (0.1, 0.2, 0.3)) == 0.2
    assert snap(0.26, (0.1, 0.2, 0.3)) == 0.3


SNAPPED = "{name: ttft, classes: [short, long], signal: ttft, threshold: 1s, objective: 95%}"
DECISIONS = [
    pytest.param(
        "threshold: 1s",
        "threshold: 4s",
        "slos.yaml:8:67: note: slos[0].threshold: 4s is not a bound of vllm:time_to_first_token_seconds, whose "
        "nearest are 2.5s and 5s = counted at 5s",
        id="between two bounds",
    ),
    pytest.param(
        "signal: ttft, threshold: 1s",
        "signal: queue, threshold: 50ms",
        "slos.yaml:8:68: warning: slos[0].threshold: 0.05s is below every bound of vllm:request_queue_time_seconds, "
        "so the SLO is left out = the nearest bound is 0.3s",
        id="below all bounds",
    ),
    pytest.param(
        "signal: ttft, threshold: 1s",
        "signal: ttft, threshold: 1h",
        "slos.yaml:8:67: warning: slos[0].threshold: 3600s is above every bound of vllm:time_to_first_token_seconds, "
        "so the SLO is left out = the nearest bound is 2560s",
        id="above all bounds",
    ),
    pytest.param(
        "signal: ttft, threshold: 1s",
        "signal: itl_p95, threshold: 250ms",
        "slos.yaml:8:50: warning: slos[0].signal: vLLM counts token gaps of all requests together, so itl_p95 is left "
        "out = use tpot, which it counts per request",
        id="gaps of one request",
    ),
    pytest.param(
        "signal: ttft, threshold: 1s",
        "signal: ttft_answer, threshold: 1s",
        "slos.yaml:8:50: warning: slos[0].signal: vLLM does not distinguish reasoning from the answer in its "
        "histograms, so ttft_answer is left out = use ttft, or run the sidecar",
        id="the first token of the answer",
    ),
    pytest.param(
        "signal: ttft, threshold: 1s",
        "signal: availability",
        "slos.yaml:8:50: warning: slos[0].signal: vLLM counts only requests that finish, so an outage would not lower "
        "availability, and it is left out = only the sidecar measures requests that are aborted, rejected or never "
        "answered",
        id="availability",
    ),
    pytest.param(
        "name: ttft, classes: [short, long]",
        "name: ttft, classes: [long]",
        "slos.yaml:8:27: note: slos[0].classes: vLLM does not distinguish classes, so requests of short are counted "
        "too",
        id="a class without an SLO",
    ),
    pytest.param(
        SNAPPED,
        SNAPPED.replace("short, long", "short") + "\n  - {name: t, classes: [long], signal: ttft, threshold: 5s, "
        "objective: 95%}",
        "slos.yaml:8:27: warning: slos[0].classes: vLLM cannot distinguish its requests from those of 't', whose "
        "objective is weaker, so it is left out = use one objective for all classes, or run the sidecar",
        id="a class with a weaker objective",
    ),
    pytest.param(
        "source: engine",
        "source: engine\ntenants: {allow: [a]}\nalerting: {per_tenant: true}",
        "slos.yaml:5:11: warning: alerting: vLLM does not distinguish tenants, so per_tenant is ignored = run the "
        "sidecar for it",
        id="tenants",
    ),
    pytest.param(
        "source: engine",
        "source: engine\nengine: {version: 0.5.4}",
        "slos.yaml:4:9: mistake: engine: the bounds of vLLM 0.5.4 are not known = the oldest known release is 0.6.6",
        id="too old",
    ),
]


@pytest.mark.parametrize("right,wrong,finding", DECISIONS)
def test_check_reports_slos_that_vllm_counts_differently_or_not_at_all(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    right: str,
    wrong: str,
    finding: str,
) -> None:
    assert right in ENGINE_ONLY
    monkeypatch.chdir(tmp_path)
    Path("slos.yaml").write_text(ENGINE_ONLY.replace(right, wrong, 1))
    code = main(["alerts", "check", "--slos", "slos.yaml"])
    findings = list(blocks(capsys.readouterr().out))
    assert finding in findings
    assert code == (2 if ": mistake: " in finding else 0)


def blocks(out: str) -> Iterator[str]:
    """Each finding as one line, its hint after an equals sign."""
    for block in out.split("\n\n"):
        first, *rest = block.splitlines() or [""]
        yield " = ".join([first, *(line.partition(" = ")[2] for line in rest if re.match(r" +=", line))])


def test_a_file_that_vllm_cannot_count_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(
        ENGINE_ONLY.replace("signal: ttft, threshold: 1s", "signal: availability").replace(
            "signal: e2e", "signal: itl_p95"
        )
    )
    assert main(["alerts", "render", "--slos", str(path), "--out", "-"]) == 2
    message = "slos: vLLM alone counts none of these; add an SLO on ttft, tpot or e2e, or run the sidecar"
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
    assert main(["alerts", "check", "--slos", str(path)]) == 2


def test_flags_select_vllm_as_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--source", "engine", "--vllm-version", "0.25.1"]
    assert main(["alerts", "render", *flags, "--out", "-"]) == 0
    text = capsys.readouterr().out
    assert text == render(replace(load(SHIPPED), source=SPEC.source, engine=engine_only("0.25.1").engine))
    assert main(["alerts", "render", *flags, "--out", "-", "--format", "prometheusrule"]) == 0
    assert "No sidecar: counted from the histograms of vLLM 0.25.1" in capsys.readouterr().out
    assert main(["alerts", "explain", *flags]) == 0
    assert "bad events: a request whose first token takes longer than 5s\n" in capsys.readouterr().out
    assert main(["alerts", "render", "--vllm-version", "newest", "--out", "-"]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --vllm-version: 'newest' is not a release of vLLM; write its number, such as 0.25\n"
    )


def test_the_comments_of_the_file_state_how_slos_are_counted_and_the_limitations() -> None:
    spec = loads(ENGINE_ONLY.replace("threshold: 1s", "threshold: 1200ms"))
    head = render(spec).partition("groups:")[0]
    assert max(map(len, head.splitlines())) <= 120
    assert (
        head
        == """\
# Generated by `vllm-slo alerts render` from the SLO file. Do not edit; change the SLO file and render again.
#
# No sidecar: counted from the histograms of vLLM 0.33.0, scraped as job vllm.
# - ttft: 1.2s is not a bound of vllm:time_to_first_token_seconds, whose nearest are 1s and 2.5s; counted at 1s.
# - e2e: 30s is a bound of vllm:e2e_request_latency_seconds, so it is counted exactly.
# Limitations of the counts of vLLM:
# - No classes or tenants: each SLO counts all requests of a model, also unary, as class="all".
# - Requests that are rejected, aborted or never answered are not counted and burn no budget, except for first tokens
#   sent before. In a total outage, LLMEngineDown and LLMEngineWedged page, and no SLO does.
# - Only bounds of joint goodput: if g1 of N requests meet one SLO and g2 another, max(0, g1 + g2 - N) to min(g1, g2)
#   meet both. The bounds are recorded as shares of N: llm_goodput:requests:ratio_at_least is 1 minus the sum of all
#   error ratios, llm_goodput:requests:ratio_at_most is 1 minus the largest.
# - No alerts on rejections, client errors, lost traffic or throughput without goodput.
"""
    )


def test_burn_alerts_state_how_they_are_counted_and_the_limitations() -> None:
    spec = loads(ENGINE_ONLY.replace("threshold: 1s", "threshold: 1200ms"))
    alerts = [rule for group in rules(spec) for rule in group.rules if isinstance(rule, Alert)]
    notes = {each.slo.name: each.note for each in evaluate_slos(spec) if isinstance(each, SupportedSlo)}
    for alert in alerts:
        text = alert.annotations["description"]
        assert ("sidecar" in text or "oldest wait" in text) is False, alert.name
        if alert.name in (AlertName.BURN, AlertName.LOW_TRAFFIC):
            assert alert.annotations["note"].endswith(CAVEAT)
            assert notes.get(alert.labels.get("slo", ""), "") in alert.annotations["note"]
    assert {alert.name for alert in alerts} == {
        *("LLMErrorBudgetBurn", "LLMErrorBudgetLowTraffic", "LLMEngineDown", "LLMEngineWedged", "LLMSLOUnmeasured"),
        *("LLMEngineRestarts", "LLMQueueSaturated", "LLMKVCacheFull", "LLMPrefixCacheCollapse"),
        *("LLMReplicaOutlier", "LLMScrapeIntervalMismatch", "VLLMSLOWatchdog", "LLMGPUThrottled", "LLMGPUXidError"),
    }


def test_burn_alerts_refer_to_the_queue_of_the_engine_and_to_no_log() -> None:
    alerts = [rule for group in rules(SPEC) for rule in group.rules if isinstance(rule, Alert)]
    for name in (AlertName.BURN, AlertName.LOW_TRAFFIC):
        descriptions = [alert.annotations["description"] for alert in alerts if alert.name == name]
        assert descriptions
        assert all("Look first at the engine's queue." in text for text in descriptions)


def test_no_rule_reads_series_of_the_sidecar() -> None:
    all_rules = [rule for group in rules(SPEC) for rule in group.rules]
    recorded = {rule.series.name for rule in all_rules if isinstance(rule, Recording)}
    for rule in all_rules:
        assert set(re.findall(r"\bllm_[\w:]+", str(rule.expr))) <= recorded


@pytest.mark.slow
def test_equal_files_render_to_equal_bytes_in_every_process() -> None:
    program = "import sys; from alerts import rule_file; from exporters.vocabulary import slo_file; "
    program += "print(rule_file.render(slo_file.loads(sys.stdin.read())))"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            input=ENGINE_ONLY,
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {f"{render(SPEC)}\n"}
