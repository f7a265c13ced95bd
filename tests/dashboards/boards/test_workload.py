"""Request sizes and repeats: failed requests are included, and shares have the correct denominator."""

import pytest

from dashboards.boards.workload import BOARD
from exporters.sidecar.ingest.request_metrics import RequestMetrics
from exporters.vocabulary.signals import LENGTH_BOUNDS, LENGTHS, NO_TOKENS, SIZES, Outcome
from tests.dashboards.promql_history import assert_results, panel
from tests.support.openmetrics import whole
from tests.support.promtool import Promtool
from tests.support.sample_records import SLOS, finished

ENDED = [
    *(finished(prompt_tokens=100, completion_tokens=200) for _ in range(6)),
    finished(prompt_estimate=100.0, outcome=Outcome.REJECTED),
    finished(prompt_estimate=9000.0, outcome=Outcome.TIMEOUT_FIRST_TOKEN),
    finished(prompt_estimate=9000.0, completion_tokens=3, outcome=Outcome.CLIENT_ABORT),
    finished(prompt_tokens=9000, completion_tokens=3),
]


@pytest.fixture(scope="module")
def counted() -> dict[str, float]:
    """The counters of the sidecar after these requests."""
    series = RequestMetrics(SLOS)
    for request in ENDED:
        series.record(request)
    samples = [sample for family in whole(series.collect(0.0)) for sample in family.samples]
    return {
        f"{sample.name}{_row(**sample.labels)}": sample.value
        for sample in samples
        if "_by_size_" in sample.name or "_by_prompt_length_" in sample.name
    }


def _row(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def test_the_size_matrix_includes_failed_requests(promtool: Promtool, counted: dict[str, float]) -> None:
    cells = {("00128", "00512"): 0.6, ("00128", "none"): 0.1, ("32768", "none"): 0.1, ("32768", "00128"): 0.2}
    expected = {_row(prompt_size=prompt, completion_size=size): share for (prompt, size), share in cells.items()}
    assert_results(promtool, panel(BOARD, "Prompt and completion in range"), counted, expected)


def test_failures_are_shares_of_the_requests_of_a_prompt_size(promtool: Promtool, counted: dict[str, float]) -> None:
    cells = {
        ("00128", Outcome.REJECTED): 1 / 7,
        ("32768", Outcome.TIMEOUT_FIRST_TOKEN): 1 / 3,
        ("32768", Outcome.CLIENT_ABORT): 1 / 3,
    }
    expected = {_row(prompt_size=prompt, outcome=outcome): share for (prompt, outcome), share in cells.items()}
    assert_results(promtool, panel(BOARD, "Failures by prompt length in range"), counted, expected)


def test_the_failure_ratio_is_that_of_the_requests_of_a_prompt_length(
    promtool: Promtool, counted: dict[str, float]
) -> None:
    """A length without requests has no ratio."""
    ratios = {_row(prompt_length="000128"): 1 / 7, _row(prompt_length="012288"): 2 / 3}
    heatmap = panel(BOARD, "Failure ratio by prompt length")
    assert_results(promtool, heatmap, counted, ratios)
    assert heatmap["targets"][0]["expr"].count('class=~"$class"') == 2


def test_names_of_sizes_and_lengths_are_sorted_as_their_numbers() -> None:
    """Grafana sorts rows and columns by them."""
    assert sorted((*SIZES, NO_TOKENS)) == [*SIZES, NO_TOKENS]
    assert sorted(LENGTHS) == [*LENGTHS]
    assert [int(length) for length in LENGTHS[:-1]] == list(LENGTH_BOUNDS)


def test_tokens_saved_by_a_cache_use_the_repeats_of_each_class(promtool: Promtool) -> None:
    counters = {
        'llm_requests_total{class="siso"}': 60,
        'llm_body_repeats_total{class="siso"}': 15,
        'llm_prompt_tokens_total{class="siso"}': 6000,
        'llm_completion_tokens_total{class="siso"}': 3000,
        'llm_requests_total{class="lilo"}': 15,
        'llm_body_repeats_total{class="lilo"}': 0,
        'llm_prompt_tokens_total{class="lilo"}': 90000,
        'llm_completion_tokens_total{class="lilo"}': 30000,
        'llm_requests_total{class="other"}': 0,
    }
    saved = panel(BOARD, "Possible response cache savings")
    assert_results(promtool, saved, counters, {'{class="siso"}': 150, '{class="lilo"}': 0})
    assert_results(promtool, panel(BOARD, "Repeats in range"), counters, {"{}": 0.2})


def test_the_share_of_reasoning_is_that_of_completion_tokens_and_absent_without_any(promtool: Promtool) -> None:
    counters = {
        'llm_completion_tokens_total{class="siso",tenant="a"}': 300,
        'llm_completion_tokens_total{class="siso",tenant="b"}': 100,
        'llm_reasoning_tokens_total{class="siso",tenant="a"}': 100,
        'llm_reasoning_tokens_total{class="siso",tenant="b"}': 0,
        'llm_completion_tokens_total{class="silo"}': 50,
        'llm_reasoning_tokens_total{class="silo"}': 0,
        'llm_completion_tokens_total{class="lilo"}': 0,
        'llm_reasoning_tokens_total{class="lilo"}': 0,
    }
    share = panel(BOARD, "Reasoning tokens: share")
    assert_results(promtool, share, counters, {'{class="siso"}': 0.25, '{class="silo"}': 0})


def test_the_class_mix_adds_up_and_is_absent_without_traffic(promtool: Promtool) -> None:
    mix = panel(BOARD, "Class mix")
    both = {
        'llm_instance:requests:increase{class="siso",outcome="ok",window="15m"}': 3,
        'llm_instance:requests:increase{class="lilo",outcome="rejected",window="15m"}': 1,
    }
    assert_results(promtool, mix, both, {'{class="siso"}': 0.75, '{class="lilo"}': 0.25})
    assert_results(promtool, mix, dict.fromkeys(both, 0.0), {})


def test_requests_and_their_outcomes_are_counted_by_route(promtool: Promtool) -> None:
    growth = {
        'llm_requests_total{class="siso",route="chat_completions",outcome="ok"}': 3.0,
        'llm_requests_total{class="lilo",route="chat_completions",outcome="ok"}': 1,
        'llm_requests_total{class="siso",route="chat_completions",outcome="rejected"}': 1,
        'llm_requests_total{class="siso",route="embeddings",outcome="ok"}': 2,
        'llm_requests_total{class="siso",route="embeddings",outcome="rejected"}': 0,
    }
    rates = {'{route="chat_completions"}': round(5 / 15, 9), '{route="embeddings"}': round(2 / 15, 9)}
    assert_results(promtool, panel(BOARD, "Requests by route"), growth, rates)
    in_range = {
        '{route="chat_completions",outcome="ok"}': 80,
        '{route="chat_completions",outcome="rejected"}': 20,
        '{route="embeddings",outcome="ok"}': 40,
    }
    assert_results(promtool, panel(BOARD, "Outcomes by route in range"), growth, in_range)
