"""The rolling error rate and the burn rates of a run follow from the requests in each window."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.cli import main
from compose.experiments.grades.error_windows import chosen, moments, page_tiers, times
from exporters.text.errors import UsageError
from exporters.text.yaml_reader import parse_yaml
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Verdict
from loadgen.results.record import ClientOutcome, Record
from tests.compose.experiments.toy_experiment import write_experiment
from tests.loadgen.load_records import record

FILE = slo_file.load(slo_file.SHIPPED)
SLO = chosen(FILE, "availability")
PAGES = page_tiers(FILE, SLO)
HOUR = 3600.0


@st.composite
def records(draw: st.DrawFn) -> Record:
    outcome = draw(st.sampled_from([ClientOutcome.OK, ClientOutcome.UPSTREAM_ERROR, ClientOutcome.TIMEOUT]))
    verdict = draw(st.none() | st.sampled_from([Verdict.GOOD, Verdict.BAD, Verdict.ABANDONED]))
    closed = draw(st.integers(0, 8 * 3600))
    return record(closed=float(closed), outcome=outcome, slo={} if verdict is None else {"availability": verdict})


@pytest.mark.slow
@given(st.lists(records(), max_size=30), st.integers(1, 8 * 3600))
def test_a_window_has_the_requests_that_ended_after_its_start_and_up_to_its_end(sent: list[Record], at: int) -> None:
    (found,) = moments(sent, SLO, PAGES, rolling=900.0, times=[at])
    ended = [each.outcome is not ClientOutcome.OK for each in sent if at - 900 < each.closed <= at]
    assert found.errors == (sum(ended) / len(ended) if ended else None)
    firing = []
    for tier, burn in zip(PAGES, found.burns, strict=True):
        rates: list[float | None] = []
        for window in (tier.long, tier.short):
            verdicts = [each.slo.get("availability") for each in sent if at - window < each.closed <= at]
            good, bad = verdicts.count(Verdict.GOOD), verdicts.count(Verdict.BAD)
            rates.append(bad / (good + bad) / 0.005 if good + bad else None)
        assert [burn.long, burn.short] == pytest.approx(rates)
        firing.append(all(rate is not None and rate >= tier.factor for rate in rates))
    assert [burn.fires for burn in found.burns] == firing


def test_a_page_ends_with_the_short_window_and_a_rolling_rate_with_its_own() -> None:
    failed = {"outcome": ClientOutcome.UPSTREAM_ERROR, "slo": {"availability": Verdict.BAD}}
    sent = [
        record(
            closed=float(at), **(failed if 2 * HOUR < at <= 2 * HOUR + 300 else {"slo": {"availability": Verdict.GOOD}})
        )
        for at in range(10, 3 * 3600, 10)
    ]
    found = {each.at: each for each in moments(sent, SLO, PAGES, rolling=900.0, times=times(2 * HOUR, 300, 2.5 * HOUR))}
    assert [(at - 2 * HOUR, round(each.errors or 0, 2), each.pages) for at, each in found.items()] == [
        (0, 0, ""),
        (300, 0.33, "1h / 5m, 6h / 30m"),  # 6 h have only the two hours of the run
        (600, 0.33, "6h / 30m"),
        (900, 0.33, "6h / 30m"),
        (1200, 0, "6h / 30m"),
        (1500, 0, "6h / 30m"),
        (1800, 0, "6h / 30m"),
    ]


@pytest.mark.parametrize(
    "since, every, until, expected",
    [(0, 5, 12, [5, 10]), (5, 5, 10, [5, 10]), (6, 5, 20, [10, 15, 20]), (30, 5, 20, []), (0, 60, 20, [])],
)
def test_rows_are_multiples_of_their_interval_within_the_run(
    since: float, every: float, until: float, expected: list[float]
) -> None:
    assert times(since, every, until) == expected


def test_the_first_slo_on_availability_is_the_default_and_others_can_be_named() -> None:
    assert chosen(FILE, None).name == "availability"
    assert chosen(FILE, "ttft").name == "ttft"
    with pytest.raises(UsageError) as unknown:
        chosen(FILE, "availabilty")
    assert str(unknown.value) == "--slo: 'availabilty' is not an SLO of the experiment; did you mean 'availability'?"
    text = "version: 1\nperiod: 30d\nclasses: [{name: a}]\n"
    text += "slos: [{name: t, classes: [a], signal: ttft, threshold: 1s, objective: 95%}]\n"
    with pytest.raises(UsageError) as missing:
        chosen(slo_file.parse(parse_yaml(text, "slos")), None)
    assert str(missing.value) == "--slo: no SLO of the experiment is on availability; name one of t"


def test_the_command_prints_a_table_of_each_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    main(["experiment", "run", str(write_experiment(tmp_path)), "--virtual", "--out", str(out)])
    capsys.readouterr()
    assert main(["experiment", "windows", str(out), "--every", "2s", "--rolling", "4s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.strip() for line in lines if ":" in line] == [
        "base, repeat 1: availability",
        "prefix, repeat 1: availability",
    ]
    assert ["2s", "0%", *4 * ["0.0"]] in [line.split() for line in lines]
