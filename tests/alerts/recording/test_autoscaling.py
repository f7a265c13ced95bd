"""The series for autoscalers: latencies and waits over the thresholds of their SLOs."""

import pytest

from alerts.plan import Plan
from alerts.recording.autoscaling import autoscaling_group
from alerts.rule_file import rules
from alerts.rules.groups import to_yaml
from compose.cli import main
from exporters.text.units import number
from exporters.vocabulary.slo_file import Latency, SloFile, loads
from tests.support.promtool import Case, Pace, Promtool, constant, counter

P90, WAIT = "llm_slo:signal:p90_threshold_ratio", "llm_slo:oldest_wait:threshold_ratio"
LABELS = 'model="org/m",class="siso"'
OF_TTFT = '{model="org/m",class="siso",slo="ttft"}'


def first_tokens(pace: Pace, within: float, late: float, instance: str = "s:1") -> dict[str, str]:
    """First tokens per scrape within the threshold, and after it but within twice the threshold, for six steps."""
    limit = threshold(pace.spec)
    counts = {number(limit): within, number(2 * limit): within + late, "+Inf": within + late}
    return {
        f'llm_time_to_first_token_seconds_bucket{{{LABELS},instance="{instance}",le="{le}"}}': counter(
            (growth, pace.scrapes(6))
        )
        for le, growth in counts.items()
    }


def threshold(spec: SloFile) -> float:
    (seconds,) = {slo.sli.threshold for slo in spec.slos if slo.name == "ttft" and isinstance(slo.sli, Latency)}
    return seconds


def test_the_ratio_is_1_if_a_tenth_of_all_requests_misses_the_threshold(promtool: Promtool, pace: Pace) -> None:
    series = first_tokens(pace, 90, 0, "a") | first_tokens(pace, 0, 10, "b")
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(5), f"round({P90}, 0.001)", {OF_TTFT: 1})
    promtool.test([case], autoscaling=True)


def test_without_requests_the_latency_is_absent_and_the_wait_is_0(promtool: Promtool, pace: Pace) -> None:
    waits = {f"llm_oldest_wait_seconds{{{LABELS}}}": constant(0, pace.scrapes(6))}
    case = Case(pace.spec, first_tokens(pace, 0, 0) | waits, pace.step)
    case.expect(pace.seconds(5), P90, {}).expect(pace.seconds(5), WAIT, {f"{WAIT}{OF_TTFT}": 0})
    promtool.test([case], autoscaling=True)


def test_the_oldest_wait_is_that_of_the_worst_sidecar(promtool: Promtool, pace: Pace) -> None:
    limit, n = threshold(pace.spec), pace.scrapes(6)
    series = {
        f'llm_oldest_wait_seconds{{{LABELS},instance="a"}}': constant(0, n),
        f'llm_oldest_wait_seconds{{{LABELS},instance="b"}}': constant(3 * limit, n),
        # Not in a class of the SLO on TTFT.
        'llm_oldest_wait_seconds{model="org/m",class="lilo"}': constant(9 * limit, n),
    }
    case = Case(pace.spec, series, pace.step).expect(pace.seconds(5), WAIT, {f"{WAIT}{OF_TTFT}": 3})
    promtool.test([case], autoscaling=True)


def test_autoscaling_only_adds_a_group(promtool: Promtool, spec: SloFile) -> None:
    assert rules(spec, autoscaling=True) == (*rules(spec), autoscaling_group(Plan.of(spec)))
    promtool.check(to_yaml(rules(spec, autoscaling=True)))


@pytest.mark.parametrize(
    "signal, histogram",
    [
        ("ttft", "llm_time_to_first_token_seconds_bucket"),
        ("ttft_answer", "llm_time_to_first_answer_token_seconds_bucket"),
        ("tpot", "llm_time_per_output_token_seconds_bucket"),
        ("e2e", "llm_request_duration_seconds_bucket"),
        ("queue", "llm_request_queue_seconds_bucket"),
        ("prefill", "llm_request_prefill_seconds_bucket"),
        ("decode", "llm_request_decode_seconds_bucket"),
        pytest.param("itl_p95", None, id="gaps are not requests"),
        pytest.param("availability", None, id="no threshold"),
    ],
)
def test_each_signal_is_read_from_its_histogram(signal: str, histogram: str | None) -> None:
    limit = "" if signal == "availability" else " threshold: 2s,"
    spec = loads(
        "version: 1\nperiod: 30d\nclasses: [{name: chat}]\n"
        f"slos: [{{name: s, classes: [chat], signal: {signal},{limit} objective: 99%}}]\n"
    )
    text = to_yaml([autoscaling_group(Plan.of(spec))])
    assert (P90 in text, WAIT in text) == (histogram is not None, signal == "ttft")
    if histogram is not None:
        assert f'{histogram}{{class=~"chat"}}[5m]' in text


def test_without_a_sidecar_there_is_nothing_to_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "render", "--autoscaling", "--source", "engine", "--out", "-"]) == 2
    message = "--autoscaling: needs the series of the sidecar; remove it, or use --source sidecar"
    assert capsys.readouterr() == ("", f"vllm-slo: {message}\n")
