"""The figures of a request log are those of the requests that the sidecar logged."""

import math
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from exporters.analysis.compare.request_log_source import RequestLogSource
from exporters.analysis.estimates.figures import (
    ALL_CLASSES,
    CACHE_HITS,
    CLIENT_ERRORS,
    COMPLETED,
    E2E,
    GOODPUT,
    ITL,
    OFFERED,
    OUTPUT_TOKENS,
    TPOT,
    TTFT,
    attainment,
)
from exporters.analysis.estimates.windows import Change, Window
from exporters.records.messages import Finished
from exporters.text.errors import UsageError
from exporters.vocabulary.signals import Outcome, Verdict
from exporters.vocabulary.slo_file import Latency, Measure, Slo
from tests.exporters.analysis.compare.sample_logs import CHANGE, SPEC, request, seeded, write

LEAD = 30.0


def log_of(folder: Path, records: Iterable[Finished], changed_at: float | None = CHANGE) -> RequestLogSource:
    return RequestLogSource([write(folder / "requests.jsonl", records, changed_at)], SPEC)


def every(seconds: float, since: float, until: float, **fields: object) -> list[Finished]:
    """Requests of 250 ms at a constant interval."""
    count = int((until - since) / seconds)
    return [request(time=since + index * seconds, **({"e2e": 0.25} | fields)) for index in range(count)]


def test_each_figure_is_calculated_from_the_lines(tmp_path: Path) -> None:
    """100 s with one request per second: every fourth misses its SLO, every tenth is a client error."""
    records = [
        request(
            time=CHANGE + number,
            e2e=0.5,
            ttft=(number + 1) / 1000,
            tpot=0.02,
            itl_p95=0.03,
            prompt_tokens=100,
            completion_tokens=10,
            cached_tokens=25,
            outcome=Outcome.CLIENT_ERROR if number % 10 == 9 else Outcome.OK,
            slo={
                "ttft": Verdict.BAD if number % 4 == 0 else Verdict.GOOD,
                "availability": Verdict.ABANDONED if number < 20 else Verdict.GOOD,
            },
        )
        for number in range(100)
    ]
    records.append(request(time=CHANGE + 50, request_class="warm-up", e2e=9.0))
    by_class = log_of(tmp_path, records, changed_at=None).measurements(Window(CHANGE, CHANGE + 100), LEAD)
    assert set(by_class) == {ALL_CLASSES, "siso"}
    measurements = by_class["siso"]
    values = {
        figure: measurement.estimate.value
        for figure, measurement in measurements.items()
        if measurement.estimate is not None
    }
    assert values == {
        OFFERED: 1.0,
        COMPLETED: pytest.approx(0.9),
        attainment("ttft"): 0.75,
        attainment("availability"): 1.0,
        GOODPUT: 0.75,
        TTFT[0]: 0.049,  # without the 10 client errors
        TTFT[1]: 0.095,
        E2E[0]: 0.5,
        E2E[1]: 0.5,
        TPOT[0]: 0.02,
        TPOT[1]: 0.02,
        ITL: 0.03,
        CLIENT_ERRORS: 0.1,
        OUTPUT_TOKENS: pytest.approx(10.0),
        CACHE_HITS: 0.25,
    }
    assert measurements[attainment("availability")].events == 80


def test_ttft_covers_streams_without_a_first_token_but_no_unary_requests_and_no_client_errors(tmp_path: Path) -> None:
    """A failed or aborted stream without a token is slower than any other, however early it ended."""
    failed = {"outcome": Outcome.UPSTREAM_ERROR, "wait_at_least": 0.25}
    aborted = {"outcome": Outcome.CLIENT_ABORT, "wait_at_least": 0.2}
    records = [
        *every(1, CHANGE, CHANGE + 40, ttft=0.1),
        *every(1, CHANGE + 0.3, CHANGE + 20, **aborted),
        *every(1, CHANGE + 0.6, CHANGE + 40, **failed),
        *every(1, CHANGE, CHANGE + 5, outcome=Outcome.CLIENT_ERROR),
        *every(1, CHANGE, CHANGE + 5, stream=False),
    ]
    measured = log_of(tmp_path, records, None).measurements(Window(CHANGE, CHANGE + 100), LEAD)["siso"]
    p50, p95 = (measured[figure].estimate for figure in TTFT)
    assert p50 is not None
    assert p95 is not None
    assert (measured[TTFT[0]].events, p50.value, p95.value) == (98, math.inf, math.inf)


def test_requests_across_the_edge_of_a_window(tmp_path: Path) -> None:
    """A request counts where it ends, unless it arrived before the lead."""
    records = [
        request(time=CHANGE - 31, e2e=40.0),  # arrived before the lead
        request(time=CHANGE - 29, e2e=40.0),  # arrived within the lead
        request(time=CHANGE + 10, e2e=1.0),
        request(time=CHANGE + 99, e2e=2.0),  # ends after the window
    ]
    measured = log_of(tmp_path, records, None).measurements(Window(CHANGE, CHANGE + 100), LEAD)["siso"]
    assert measured[CLIENT_ERRORS].events == 2
    assert measured[OFFERED].events == 2


HUNG = {"e2e": 200.0, "outcome": Outcome.TRUNCATED, "wait_at_least": 200.0}


@pytest.mark.parametrize(
    "fields, judged_after",
    [
        pytest.param({"slo": {"ttft": Verdict.BAD}} | HUNG, 5.0, id="no first token by the threshold"),
        pytest.param({"slo": {"availability": Verdict.BAD}} | HUNG, 60.0, id="no first token by first_token_timeout"),
        pytest.param({"slo": {"ttft": Verdict.BAD}, "e2e": 2.0}, 2.0, id="failed before its deadline"),
        pytest.param({"slo": {"ttft": Verdict.GOOD}, "ttft": 0.5, "e2e": 90.0}, 0.5, id="good at the first token"),
        pytest.param({"slo": {"answer": Verdict.BAD}, "ttft": 0.5, "e2e": 90.0}, 20.0, id="no answer by the threshold"),
        pytest.param(
            {"slo": {"answer": Verdict.GOOD}, "ttft": 0.5, "ttft_answer": 12.0, "e2e": 90.0},
            12.0,
            id="good at the answer",
        ),
        pytest.param({"slo": {"availability": Verdict.GOOD}, "ttft": 0.5, "e2e": 90.0}, 90.0, id="good at the end"),
        pytest.param({"slo": {"unheard": Verdict.BAD}, "e2e": 90.0}, 90.0, id="an SLO of another file"),
    ],
)
def test_a_verdict_counts_when_it_is_certain(tmp_path: Path, fields: dict[str, Any], judged_after: float) -> None:
    """A stalled request is bad long before it ends, as in the series."""
    answer = Slo(name="answer", classes=("siso",), sli=Latency(Measure.TTFT_ANSWER, 20.0), objective=0.95)
    spec = replace(SPEC, slos=(*SPEC.slos, answer))
    log = RequestLogSource([write(tmp_path / "requests.jsonl", [request(**({"time": CHANGE} | fields))], None)], spec)
    (name,) = fields["slo"]
    for since, events in ((-1.0, 1), (0.01, 0)):
        window = Window(CHANGE + judged_after + since, CHANGE + judged_after + since + 1.005)
        assert log.measurements(window, 1000.0)["siso"][attainment(name)].events == events


def test_a_change_is_between_the_revisions_or_up_to_one_scrape_earlier(tmp_path: Path) -> None:
    log = log_of(tmp_path, every(1, CHANGE - 5, CHANGE + 5))
    assert log.changes == [
        Change(
            CHANGE - 1 + 0.25 - SPEC.scrape_interval,
            CHANGE + 0.25,
            f"config revision {'a' * 12} -> {'b' * 12}",
        )
    ]


def test_lines_without_a_revision_are_no_change(tmp_path: Path) -> None:
    path = write(tmp_path / "requests.jsonl", every(1, CHANGE, CHANGE + 2))
    path.write_bytes(path.read_bytes().replace(b'"' + b"b" * 12 + b'"', b"null"))
    log = RequestLogSource([path], SPEC)
    assert log.changes == []
    assert log.search_scope == f"{path} (requests by config revision: unknown 2)"


@pytest.mark.parametrize(
    "outcomes, outages",
    [
        pytest.param("ok ok ok", [], id="nothing wrong"),
        pytest.param("ok upstream_error ok", [], id="an error of a running engine"),
        pytest.param(
            "ok truncated upstream_unreachable upstream_unreachable ok", [(1, 3)], id="truncated, then unreachable"
        ),
        pytest.param("ok upstream_unreachable client_abort upstream_unreachable ok", [(1, 3)], id="a client abort"),
        pytest.param(
            "upstream_error timeout_first_token upstream_unreachable ok",
            [(2, 2)],
            id="a stalled engine is not a restart",
        ),
        pytest.param("upstream_unreachable ok upstream_unreachable", [(0, 0), (2, 2)], id="twice"),
    ],
)
def test_an_outage_is_a_period_without_responses(
    tmp_path: Path, outcomes: str, outages: list[tuple[float, float]]
) -> None:
    records = [request(time=CHANGE + at, e2e=0.25, outcome=Outcome(word)) for at, word in enumerate(outcomes.split())]
    assert log_of(tmp_path, records, None).outages(Window(CHANGE, CHANGE + 9)) == [
        Window(CHANGE + first + 0.25, CHANGE + last + 0.25) for first, last in outages
    ]


def test_the_coverage_ends_where_long_requests_may_be_missing(tmp_path: Path) -> None:
    short, long = every(1, CHANGE, CHANGE + 100), every(1, CHANGE, CHANGE + 100, e2e=20.0)
    coverage = log_of(tmp_path, [line for line in short + long if line.time + line.e2e <= CHANGE + 100], None).coverage
    assert (coverage.start, coverage.end) == (CHANGE, CHANGE + 80)


GARBAGE = (
    b'{"time": "2027-01-15T08:00:',
    b"nginx: 200 GET /",
    b"\xff\xfe\x00",
    b"",
    b"[]",
    b'{"time":"2027-01-15T08:00:00","class":"siso","stream":true,"outcome":"ok","e2e_ms":1}',  # no time zone
    b'{"time":"2027-01-15T08:00:00Z","class":"siso","stream":true,"outcome":"splendid","e2e_ms":1}',
    b'{"time":"2027-01-15T08:00:00Z","class":"siso","stream":true,"outcome":"ok","e2e_ms":-1}',
    b'{"time":"2027-01-15T08:00:00Z","class":"siso","stream":true,"outcome":"ok","e2e_ms":NaN}',
)


def test_invalid_lines_are_counted_and_skipped(tmp_path: Path) -> None:
    rng = seeded(3)
    path = write(tmp_path / "requests.jsonl", every(1, CHANGE - 5, CHANGE + 5))
    good = path.read_bytes().splitlines()
    mixed: list[bytes] = [*good, *GARBAGE]
    rng.shuffle(mixed)
    path.write_bytes(b"\n".join(mixed) + b"\n")
    log = RequestLogSource([path], SPEC)
    measured = log.measurements(Window(CHANGE - 5, CHANGE + 5), LEAD)["siso"]
    assert measured[OFFERED].events == len(good)
    first = next(number for number, line in enumerate(mixed, 1) if line in GARBAGE)
    (note,) = [
        note for note in log.notes(Window(CHANGE - 5, CHANGE), Window(CHANGE, CHANGE + 5)) if note.startswith(str(path))
    ]
    assert note.startswith(f"{path}: skipped lines that are not requests: {len(GARBAGE)}; the first is line {first}: ")


@pytest.mark.parametrize(
    "content, message",
    [
        pytest.param(
            b"\n".join(GARBAGE),
            f"no request in {len(GARBAGE)} lines (line 1: JSON is malformed: invalid character (byte 27)); give files "
            "that `vllm-slo sidecar --request-log FILE` has written",
            id="no request",
        ),
        pytest.param(None, "cannot be read: no such file or directory", id="missing"),
    ],
)
def test_a_file_without_requests_is_rejected(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "access.log"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as refused:
        RequestLogSource([path], SPEC)
    assert str(refused.value) == f"--request-log: {path}: {message}"


def test_omitted_figures_are_listed(tmp_path: Path) -> None:
    log = log_of(tmp_path, every(1, CHANGE - 5, CHANGE + 5, outcome=Outcome.REJECTED))
    window = Window(CHANGE - 5, CHANGE + 5)
    assert TTFT[0] not in log.measurements(window, LEAD)["siso"]
    assert (
        "Omitted, because no line has them: TTFT, TPOT, queue, cache hit ratio, attainment and goodput."
        in log.notes(window, window)
    )
