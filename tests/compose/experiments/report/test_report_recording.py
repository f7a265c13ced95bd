"""One recording of an H200, judged by two rules."""

from pathlib import Path

import pytest

from compose.experiments.report.conclusions import conclusions
from compose.experiments.report.contents import facts
from compose.experiments.report.estimates import value
from compose.experiments.report.groups import Experiment, Group, read_groups
from compose.experiments.report.metrics import COMPLETION, ENGINE, GOODPUT, JUDGED, METRICS, ReportMetric
from compose.experiments.setup import experiment_file
from compose.experiments.setup.cell_store import Metric
from exporters.vocabulary.slo_file import SHIPPED
from loadgen.results.summary import TOTAL
from tests.compose.experiments.report.report_folders import RECORDINGS, figure, unpack
from tests.support.markdown_tables import DOCS, table_rows

SEED_RULE = RECORDINGS / "seed_rule.yaml"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("h200", tmp_path_factory.mktemp("h200") / "out")


def percents(experiment: Experiment, metric: ReportMetric) -> dict[str, int]:
    """The metric of the first configuration in percent, by class."""
    base = next(iter(experiment))
    found = {name: value(metric, base, name) for name in experiment.classes}
    return {name: round(each.pooled * 100) for name, each in found.items() if each is not None}


@pytest.mark.parametrize(
    "rule, offered, judged, timeout",
    [
        pytest.param(
            SHIPPED,
            {"siso": 11, "silo": 34, "liso": 8, "lilo": 30},
            {"siso": 11, "silo": 34, "liso": 8, "lilo": 30},
            "1m; a request without a first token by then is bad for tpot, itl_p95, decode and availability",
            id="60 s to the first token",
        ),
        pytest.param(
            SEED_RULE,
            {"siso": 11, "silo": 71, "liso": 8, "lilo": 69},
            # Requests that the client ended have no verdict, so all that were judged are good.
            {"siso": 11, "silo": 100, "liso": 8, "lilo": 100},
            "none",
            id="no first-token timeout",
        ),
    ],
)
def test_the_rule_decides_the_goodput_of_the_same_requests(
    recording: Path, rule: Path, offered: dict[str, int], judged: dict[str, int], timeout: str
) -> None:
    experiment = read_groups(recording, rule)
    assert percents(experiment, GOODPUT) == offered
    assert percents(experiment, JUDGED) == judged
    stated = facts(experiment)
    assert stated["SLO rule"] == f"stored requests judged again by {rule}"
    assert stated["first-token timeout"] == timeout


def test_a_difference_of_three_points_is_not_stated(recording: Path) -> None:
    assert [str(each) for each in conclusions(read_groups(recording, SEED_RULE))] == [
        (
            "nochunk: no difference of goodput shown for siso (0), silo (-2.74), liso (0), lilo (-2.56), all (-0.828); "
            "output tokens/s 1,977, base 2,103."
        )
    ]


def test_completion_and_the_figures_of_the_engine_are_those_of_the_recording(recording: Path) -> None:
    base = next(iter(read_groups(recording, SHIPPED)))
    assert figure(COMPLETION, base) == pytest.approx(546 / 725)
    figures = {metric.name: value(metric, base) for metric in ENGINE}
    assert {name: each.pooled for name, each in figures.items() if each is not None} == {
        "output_tokens": 430_554,
        "preemptions": 406,
        "kv_capacity_tokens": 56_992,
        "kv_usage_max": 1.0,
        "kv_usage_mean": 0.9571,
        "waiting_max": 644,
        "waiting_mean": 356.44,
        "running_max": 60,
    }


TTFT_THRESHOLD = 5.0  # seconds, of siso and liso


def from_the_sending(group: Group, name: str) -> int:
    """Percent of the offered requests of a class with a first token in time, counted from the sending."""
    (repeat,) = group.repeats
    mine = [record for record in repeat.records if record.request_class == name]
    fast = [record for record in mine if record.ttft_sent is not None and record.ttft_sent <= TTFT_THRESHOLD]
    return round(100 * len(fast) / len(mine))


def text(group: Group, metric: ReportMetric, name: str = TOTAL) -> str:
    return metric.unit.text(figure(metric, group, name))


def measured(seed: str, directory: Path) -> Experiment:
    """The recording of an experiment on a GPU, judged by the rule of its file."""
    rule = directory / "rule.yaml"
    rule.write_text(experiment_file.load(experiment_file.find(seed)).slos)
    return read_groups(unpack(f"h200-{seed}", directory / "out"), rule)


def test_the_docs_have_the_figures_of_seed_000_on_a_gpu(tmp_path: Path) -> None:
    (groups,) = measured("seed-000", tmp_path).groups.values()
    rows = table_rows(DOCS / "design" / "seed-000.md", "On a GPU")
    for name in ("siso", "silo", "liso", "lilo"):
        for cell, group in zip(rows[name][1:3], groups, strict=True):
            assert float(cell.split()[0]) == round(float(text(group, GOODPUT, name).split()[0]))
    for name in ("siso", "liso"):
        assert rows[name][3:] == [str(from_the_sending(group, name)) for group in groups]
    for row, metric in (
        ("output tokens/s", Metric.OUTPUT_TOKENS_PER_SECOND),
        ("TTFT p50", Metric.TTFT_P50),
        ("preemptions (source)", Metric.PREEMPTIONS),
    ):
        cells = [cell.split(" (")[0] for cell in rows[row][1:]]
        assert cells == [text(group, METRICS[metric]) for group in groups]
    assert rows["prefix cache hits"][2] == text(groups[1], METRICS[Metric.HIT_RATIO])


def test_the_docs_have_the_figures_of_seed_004_on_a_gpu(tmp_path: Path) -> None:
    rows = table_rows(DOCS / "design" / "seed-004.md", "In real time, and on a GPU")
    (running,) = (metric for metric in ENGINE if metric.name == "running_max")
    levels = measured("seed-004-single", tmp_path).groups
    assert [level.rate for level in levels] == [1.0, 1.5, 2.0, 2.5]
    for (level, groups), summary in zip(levels.items(), rows["H200"][1:], strict=True):
        base, *not_run = groups
        assert not any(group.repeats for group in not_run)
        metrics = (
            GOODPUT,
            METRICS[Metric.TTFT_P50],
            METRICS[Metric.TTFT_P99],
            METRICS[Metric.TPOT_P50],
            METRICS[Metric.TPOT_P99],
            METRICS[Metric.OUTPUT_TOKENS_PER_SECOND],
            running,
        )
        assert rows[f"{level.rate}/s"][1:] == [text(base, metric) for metric in metrics]
        ttft, tpot = (figure(METRICS[metric], base) for metric in (Metric.TTFT_P99, Metric.TPOT_P99))
        assert summary == f"{ttft:.2f} s, {1000 * tpot:.0f} ms"
        assert text(base, METRICS[Metric.PREEMPTIONS]) == "0"
