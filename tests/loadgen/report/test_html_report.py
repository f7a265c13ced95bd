"""The HTML report has the figures of the summary, needs no other file, and stays small."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.cli import main
from exporters.vocabulary.signals import Verdict
from loadgen.report.bins import LENGTH_BINS, length_bins
from loadgen.report.page import render_page
from loadgen.report.plot_area import linear, logarithmic, plain
from loadgen.report.tables import format_percent, format_seconds
from loadgen.results.record import ClientOutcome, Objective, Record, Run
from loadgen.results.summary import summarise
from loadgen.schedule.phases import Steady
from tests.loadgen.html_document import HtmlDocument, Node
from tests.loadgen.load_records import record, run, write_run
from tests.loadgen.report.sample_records import CLASSES, sample

RUN = run(
    classes=[*CLASSES],
    shares={"siso": 0.5, "lilo": 0.5},
    phases=[Steady("calm", 10, 4), Steady("busy", 20, 8)],
    seconds=30.0,
    start=1_790_000_000.0,
    versions={"python": "3.11"},
)


def page(records: Sequence[Record], of: Run = RUN) -> Node:
    return HtmlDocument.parse(render_page(of, summarise(of, records), records)).root


def figure(root: Node, title: str) -> Node:
    return next(node for node in root.all("figure") if node.all("h3")[0].text == title)


def numbers_of(marks: Sequence[Node], pattern: str) -> list[list[int]]:
    """The numbers in the tooltips of marks."""
    texts = [mark.all("title")[0].text for mark in marks]
    return [[int(number) for number in found.groups()] for text in texts if (found := re.search(pattern, text))]


def totals(rows: Sequence[Sequence[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


ONE_CLASS = run(phases=[Steady("steady", 1, 4)])


@pytest.mark.parametrize(
    "records, of",
    [
        pytest.param([], RUN, id="no request"),
        pytest.param([], run(seconds=0.0), id="ended at once"),
        pytest.param([record()], ONE_CLASS, id="one request"),
        pytest.param([record(outcome=ClientOutcome.NOT_SENT, sent=None)], ONE_CLASS, id="one that was not sent"),
        pytest.param([record(stream=False, e2e=1.0)] * 3, ONE_CLASS, id="no stream"),
        pytest.param([record(due=0.0, asked_prompt_tokens=0, max_tokens=0)] * 3, ONE_CLASS, id="no tokens"),
        pytest.param(sample(40), RUN, id="a few"),
        pytest.param(sample(3000), RUN, id="many"),
    ],
)
def test_every_plot_has_a_title_axis_titles_and_a_sentence(records: list[Record], of: Run) -> None:
    figures = page(records, of).all("figure")
    with_requests = len({each.request_class for each in records})
    assert len(figures) == 2 + len(of.classes) + 1 + 1 + 1 + with_requests
    for each in figures:
        (title,), (sentence,), (plot,) = each.all("h3"), each.all("figcaption"), each.all("svg")
        assert title.text
        assert sentence.text.endswith(".")
        assert plot.attributes["aria-label"] == title.text
        assert all(node.text for node in plot.all("text", "title"))
        assert len(plot.all("text", "title")) == (1 if title.text.startswith("Mean time") else 2)
        for mark in (*plot.all("rect"), *plot.all("circle"), *plot.all("text")):
            places = [float(mark.attributes[name]) for name in ("x", "cx", "y", "cy") if name in mark.attributes]
            assert all(0 <= place <= 600 for place in places)


def test_the_table_of_classes_has_the_figures_of_the_summary() -> None:
    records = sample(1000)
    result = summarise(RUN, records)
    rows = page(records).all("table")[0].rows()
    assert [row[0] for row in rows] == ["class", "siso", "lilo", "all"]
    for row, of in zip(rows[1:], (*result.classes, result.total), strict=True):
        cells = dict(zip(rows[0], row, strict=True))
        assert (cells["offered"], cells["ok"]) == (str(of.offered), str(of.ok))
        assert cells["good/judged"] == format_percent(of.goodput)
        assert cells["good/offered"] == format_percent(of.good / of.offered)
        for name, values in (("TTFT", of.ttft), ("E2E", of.e2e), ("TPOT", of.tpot)):
            assert cells[f"{name} p50"] == format_seconds(values.p50)
            assert (values.p99, cells[f"{name} p99"]) == (math.inf, "∞")
        assert cells["output tokens/s"] == f"{of.completion_tokens / RUN.seconds:.1f}"
        assert cells["prompt tokens"] == str(of.prompt_tokens)


def test_the_heatmaps_and_bars_count_each_offered_request_once() -> None:
    records = sample(1000)
    root, result = page(records), summarise(RUN, records)
    for row in result.classes:
        cells = figure(root, f"Failures of {row.name} by length").all("rect", "cell")
        assert totals(numbers_of(cells, r": (\d+) requests, (\d+) failed")) == [row.offered, row.offered - row.ok]
        assert len(cells) > 100
    bars = figure(root, "Completed and failed by prompt length")
    pattern = r"(\d+) completed, (\d+) failed"
    assert totals(numbers_of(bars.all("rect", "ok"), pattern))[0] == result.total.ok
    assert totals(numbers_of(bars.all("rect", "failed"), pattern))[1] == result.total.offered - result.total.ok


@pytest.mark.parametrize(
    "failed, of, step",
    [(0, 100, "h0"), (1, 100, "h1"), (20, 100, "h2"), (21, 100, "h3"), (99, 100, "h4"), (100, 100, "h5")],
)
def test_the_colour_of_a_cell_is_the_share_that_failed(failed: int, of: int, step: str) -> None:
    records = [record(outcome=ClientOutcome.TIMEOUT)] * failed + [record()] * (of - failed)
    (cell,) = page(records, ONE_CLASS).all("rect", "cell")
    assert cell.attributes["class"] == f"cell {step}"


def test_the_plots_over_time_count_each_request_at_its_due_time() -> None:
    records = sample(1000)
    root, total = page(records), summarise(RUN, records).total
    pattern = r"(\d+) offered .* (\d+) ok, (\d+) good of (\d+) judged .* (\d+) output tokens"
    expected = [total.offered, total.ok, total.good, total.judged, total.completion_tokens]
    for title in ("Goodput and throughput over time", "Output throughput over time"):
        plot = figure(root, title)
        assert totals(numbers_of(plot.all("rect", "hit"), pattern)) == expected
        assert [node.text for node in plot.all("text", "phase-name")] == ["calm", "busy"]
    late = [record(due=29.9, good=True, max_tokens=7, completion_tokens=7)]
    (only,) = figure(page(late), "Goodput and throughput over time").all("rect", "hit")
    assert only.all("title")[0].text == (
        "due 29.5 s to 30 s: 1 offered (2/s), 1 ok, 1 good of 1 judged (100 %), 7 output tokens (14/s)"
    )


def test_the_stable_window_of_a_phase_is_marked_and_has_a_table_of_its_own() -> None:
    steady = [record(number=n, due=n / 8, first=n / 8 + 0.1, closed=n / 8 + 0.2) for n in range(400)]
    of = run(phases=[Steady("steady", 50, 8)], seconds=50.0)
    window, root = summarise(of, steady).stable["steady"], page(steady, of)
    plot = figure(root, "Goodput and throughput over time")
    left_out = format_percent(window.left_out)
    assert [mark.all("title")[0].text for mark in plot.all("rect", "stable")] == [
        f"stable window of steady: from {window.steady.start:.0f} s, {left_out} of its requests left out"
    ]
    assert plot.all("li")[-1].text == "stable window"
    tables = {each.all("caption")[0].text: each.rows() for each in root.all("table") if each.all("caption")}
    rows = tables["steady, stable window"]
    assert [row[:2] for row in rows[1:]] == [[each.name, str(each.offered)] for each in window.rows]
    assert tables["steady state"][1:] == [["steady", "steady", format_seconds(window.steady.start), left_out]]


def test_the_dots_of_the_ttft_curves_are_the_percentiles_of_the_summary() -> None:
    records = sample(1000)
    root, result = page(records), summarise(RUN, records)
    for row in (*result.classes, result.total):
        plot = figure(root, f"TTFT of {row.name}: from due and from sent")
        due = [dot.all("title")[0].text for dot in plot.all("circle", "from-due")]
        assert due == [f"TTFT from due p50: {format_seconds(row.ttft.p50)}"]  # the others are infinite
        assert len(plot.all("circle", "from-sent")) == 1
    assert [each.attributes.get("checked") for each in root.all("input")] == [None, None, ""]


def test_a_curve_ends_at_the_share_of_streams_with_a_first_token() -> None:
    records = [record(ttft=0.1 * number, ttft_sent=0.05 * number) for number in range(1, 4)] + [record()]
    plot = figure(page(records, ONE_CLASS), "TTFT of siso: from due and from sent")
    tops = [
        min(float(top) for top in re.findall(r"V([\d.]+)", line.attributes["d"])) for line in plot.all("path", "line")
    ]
    labels = {node.text: float(node.attributes["y"]) - 4 for node in plot.all("text")}
    assert tops == [pytest.approx(labels["100 %"] + (labels["0 %"] - labels["100 %"]) / 4, abs=0.1)] * 2


def test_the_stages_are_means_over_the_streams_that_ended_ok() -> None:
    times = {"due": 1.0, "dispatched": 1.1, "sent": 1.3, "queue": 0.4, "first": 2.0, "last": 5.0}
    records = [
        record(**times),
        record(**times | {"first": 3.0}),
        record(**times | {"outcome": ClientOutcome.TRUNCATED}),
    ]
    plot = figure(page(records, ONE_CLASS), "Mean time by stage")
    assert plot.all("table")[0].rows()[:2] == [
        ["class", "send lag", "wait for a slot", "engine queue", "to first token", "decoding"],
        ["siso", "100 ms", "200 ms", "400 ms", "800 ms", "2.5 s"],
    ]
    assert [node.text for node in plot.all("title")][:2] == ["siso, send lag: 100 ms", "siso, wait for a slot: 200 ms"]


def test_streams_without_a_queue_time_are_left_out_of_the_stages_if_others_have_one() -> None:
    times = {"dispatched": 1.0, "sent": 1.0, "first": 2.0, "last": 3.0}
    records = [record(**times, queue=0.5), record(**times | {"last": 9.0})]
    row = figure(page(records, ONE_CLASS), "Mean time by stage").all("table")[0].rows()[1]
    assert row == ["siso", "0.00 ms", "0.00 ms", "500 ms", "500 ms", "1 s"]
    without = figure(page(records[1:], ONE_CLASS), "Mean time by stage").all("table")[0].rows()[1]
    assert without == ["siso", "0.00 ms", "0.00 ms", "0.00 ms", "1 s", "7 s"]


def test_an_invalid_run_says_so_in_every_title() -> None:
    root = page(sample(100), run(classes=[*CLASSES], stalled=1.0, stalls=3, seconds=30.0))
    (banner,) = root.all("section", "invalid")
    assert [item.text for item in banner.all("li")] == [
        (
            "the event loop stalled 3 times, for 1.0 s in total: chunk times are late; give the load generator a core "
            "of its own"
        )
    ]
    titles = [node.text for tag in ("h1", "h3", "caption") for node in root.all(tag)]
    titles += [node.text for node in root.all("h2") if node.text != "Warnings"]
    titles += [node.attributes["aria-label"] for node in root.all("svg")] + [root.all("title")[0].text]
    assert len(titles) > 20
    assert [title for title in titles if not title.endswith("(INVALID)")] == []
    assert page(sample(100)).all("section", "invalid") == []


EVIL = "</title><script>alert(1)</script><b a='\"&"


def test_every_text_of_a_run_is_escaped() -> None:
    changes: dict[str, Any] = dict.fromkeys(("scenario", "target", "model", "schedule", "ended"), EVIL)
    of = run(
        **changes,
        classes=[EVIL],
        shares={EVIL: 1.0},
        phases=[Steady(EVIL, 2, 1)],
        versions={EVIL: EVIL},
        slos=[Objective(EVIL, "ttft", 5.0, 0.95), Objective("json", "valid_output", None, 0.99)],
        stalled=1.0,
    )
    records = [
        record(request_class=EVIL, phase=EVIL, ttft=0.1, slo={EVIL: Verdict.BAD}, good=False),
        record(request_class=EVIL, phase=EVIL, outcome=ClientOutcome.UPSTREAM_ERROR, error=EVIL),
        record(request_class=EVIL, phase=EVIL, outcome=ClientOutcome.UPSTREAM_ERROR, error="\ud800 \0"),
    ]
    text = render_page(of, summarise(of, records), records)
    assert text.encode()
    root = HtmlDocument.parse(text).root
    assert (root.all("script"), root.all("b")) == ([], [])
    assert root.all("h1")[0].text == f"Load test: {EVIL} (INVALID)"
    assert root.all("h3")[2].text == f"TTFT of {EVIL}: from due and from sent (INVALID)"
    assert [cell.text for cell in root.all("table")[-1].all("td")].count(EVIL) == 1


def test_the_page_needs_no_other_file_and_no_script() -> None:
    records = sample(100)
    text = render_page(RUN, summarise(RUN, records), records)
    assert re.findall(r"(?i)src=|href|@import|url\(|<script|<link|<iframe|<object|xlink|\son\w+=", text) == []
    (target,) = re.findall(r"https?://[^<\s\"]*", text)
    assert target == RUN.target


def test_the_size_does_not_grow_with_the_requests() -> None:
    few, many = sample(500), sample(500) * 10
    small, large = (len(render_page(RUN, summarise(RUN, each), each).encode()) for each in (few, many))
    assert large < 1.05 * small
    assert large < 100_000 + 80_000 * len(CLASSES)


def test_a_long_error_is_cut_and_the_most_frequent_are_shown() -> None:
    records = [
        record(outcome=ClientOutcome.UPSTREAM_ERROR, error=f"{number} " + "x" * 1000)
        for number in range(20)
        for _ in range(1 + number)
    ]
    rows = page(records, ONE_CLASS).all("table")[-1].rows()
    assert [row[0] for row in rows] == ["requests", *(str(count) for count in range(20, 10, -1))]
    assert {len(row[2]) for row in rows[1:]} == {300}


@given(st.lists(st.integers(0, 200_000), min_size=1))
def test_a_length_is_in_the_bin_whose_label_has_it(lengths: list[int]) -> None:
    bins = length_bins(lengths)
    for length in lengths:
        index = bins.index(length)
        assert 0 <= index < LENGTH_BINS
        first, _, last = bins.label(index).partition(" to ")
        assert int(first) <= max(1, length) <= int(last or first)


@given(st.floats(1e-4, 1e6), st.floats(1.5, 1e6))
def test_every_axis_has_between_two_and_ten_ticks_inside(low: float, factor: float) -> None:
    for axis in (logarithmic("", low, low * factor, plain), linear("", low * factor, plain)):
        assert 2 <= len(axis.ticks) <= 10
        assert all(axis.low * 0.999 <= value <= axis.high * 1.001 for value, _ in axis.ticks)


def test_the_report_of_a_folder_is_written_where_html_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = sample(20)
    page_ = tmp_path / "new" / "page.html"
    assert main(["load", "report", write_run(tmp_path, RUN, records), "--html", str(page_)]) == 0
    assert page_.read_text() == render_page(RUN, summarise(RUN, records), records)
    assert RUN.scenario in capsys.readouterr().out
