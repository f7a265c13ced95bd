"""A sweep searches the largest rate of each cell of a grid, ends bad cells early, and ranks the cells."""

from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.report.found_rates import FoundRate, found_rates, ranking
from compose.experiments.report.groups import read_groups
from compose.experiments.setup import experiment_file
from loadgen.search.attainment import Attainment, Tally, Verdicts
from loadgen.search.rate_search import Answer, Finding, Limits, search
from tests.compose.experiments.toy_experiment import HEAD, mistakes, write_experiment
from tests.compose.golden_texts import assert_golden
from tests.support.markdown_tables import DOCS, tables

SEARCH = "find_max: {lowest: 1, highest: 64, requests: 100}\n"
CONFIGURATIONS = HEAD[HEAD.index("configurations:") :]


def swept(text: str) -> str:
    return HEAD.replace(CONFIGURATIONS, text)


def test_each_combination_is_a_configuration_with_the_default_flags(tmp_path: Path) -> None:
    head = swept("sweep: {max-num-seqs: [64, 32], enable-prefix-caching: [true]}\n")
    experiment = experiment_file.load(write_experiment(tmp_path, head=head, more=SEARCH))
    assert {name: (each.preset, each.flags) for name, each in experiment.configurations.items()} == {
        f"max-num-seqs={seqs}_enable-prefix-caching=true": (
            "toy",
            {"enable-prefix-caching": "true", "max-num-seqs": seqs},
        )
        for seqs in ("64", "32")
    }
    assert experiment.swept


def test_mistakes_are_reported(tmp_path: Path) -> None:
    values = "sweep: {max_num_seqs: [1, 1], speculative-config: ['{}'], block-size: []}\n"
    cases = {
        "values": (swept(values), SEARCH),
        "no flag": (swept("sweep: {}\n"), SEARCH),
        "no search": (swept("sweep: {max-num-seqs: [1]}\n"), ""),
        "both": (HEAD + "sweep: {max-num-seqs: [1]}\n", SEARCH),
        "neither": (swept(""), SEARCH),
    }
    found = {
        name: "\n".join(mistakes(write_experiment(tmp_path, head=head, more=more)))
        for name, (head, more) in cases.items()
    }
    assert_golden(__file__, "mistakes of a sweep", found)


@pytest.mark.parametrize("largest", [0.7, 2.0, 3.9, 4.1, 7.0, 30.0])
def test_a_search_with_a_rate_to_beat_ends_as_soon_as_it_misses_it(largest: float) -> None:
    probed: list[float] = []

    def probe(rate: float) -> Verdicts:
        probed.append(rate)
        result = Attainment.MET if rate <= largest else Attainment.MISSED
        return Verdicts([Tally("chat", "ttft", 0.95, 100, 0, 0.0, 1.0, result)])

    limits, to_beat = Limits(2.0, 0.5, 16.0, 0.1), 4.0
    found = search(probe, limits, to_beat)
    assert probed[0] == to_beat
    if largest < to_beat:
        assert (probed, found.finding, found.high) == ([to_beat], Finding.BEATEN, to_beat)
    else:
        assert found == search(probe, Limits(to_beat, 0.5, 16.0, 0.1))


def rate(configuration: str, repeat: int, low: float | None, high: float | None) -> FoundRate:
    return FoundRate(configuration, repeat, {}, Answer(Finding.BETWEEN, low, high, ()), [])


def test_configurations_whose_intervals_overlap_share_a_place() -> None:
    cases: dict[str, dict[str, list[tuple[float | None, float | None]]]] = {
        "disjoint": {"a": [(1, 2)], "b": [(2, 3)], "c": [(None, 1)]},
        "overlapping": {"a": [(1, 3)], "b": [(2, None)], "c": [(None, None)]},
        "better in each repeat": {"a": [(1, 2), (3, 4)], "b": [(2, 3), (4, 5)]},
        "better in one repeat only": {"a": [(1, 2), (4, 5)], "b": [(2, 3), (3, 4)]},
    }
    ranked = {}
    for name, intervals in cases.items():
        found = [
            rate(configuration, repeat, *ends)
            for configuration, repeats in intervals.items()
            for repeat, ends in enumerate(repeats, start=1)
        ]
        places = (f"{each.place}. {each.configuration}, {each.text}: {each.result}" for each in ranking(found))
        ranked[name] = "; ".join(places)
    assert_golden(__file__, "ranking", ranked)


@pytest.mark.long
def test_the_page_has_the_ranking_of_the_shipped_sweep(tmp_path: Path) -> None:
    assert main(["experiment", "run", "seed-004-sweep", "--virtual", "--out", str(tmp_path)]) == 0
    found = found_rates(read_groups(tmp_path, None))
    ranked = [[str(each.place), each.configuration, each.text, each.result] for each in ranking(found)]
    assert tables(DOCS / "design" / "seed-004.md", "A grid of flags")[0][1:] == ranked
    ended_early = [each for each in found if each.answer.low is None]
    assert [len(each.probes) for each in ended_early] == [1] * 4
