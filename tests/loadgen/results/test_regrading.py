"""Stored records judged by another SLO file have the verdicts of a run with that file."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.cli import main
from exporters.vocabulary import slo_file
from exporters.vocabulary.signals import Outcome, Verdict
from loadgen.client.completion import CompletionResponse
from loadgen.results.record import ClientOutcome, Objective, Record, objectives, rule_of_run
from loadgen.results.regrading import regrade
from tests.loadgen.load_records import graded, planned, record, run, write_run

HEAD = "version: 1\nperiod: 30d\nscrape_interval: 15s\n"
# Thresholds are not multiples of a millisecond, so that rounded sums of times decide nothing.
MANY = slo_file.loads(
    HEAD
    + """\
first_token_timeout: 2s
classes: [{name: siso, route: chat_completions}, {name: others}]
slos:
  - {name: ttft, classes: [siso], signal: ttft, threshold: 1500.5ms, objective: 95%, rejected: exclude}
  - {name: answer, classes: [siso], signal: ttft_answer, threshold: 1700.5ms, objective: 95%, unary: e2e}
  - {name: fast, classes: [siso], signal: itl_p95, threshold: 50.5ms, objective: 95%}
  - {name: slow, classes: [siso], signal: itl_p95, threshold: 250.5ms, objective: 95%}
  - {name: tpot, classes: [siso], signal: tpot, threshold: 100.5ms, objective: 95%}
  - {name: e2e, classes: [siso], signal: e2e, threshold: 4000.5ms, objective: 95%}
  - {name: queue, classes: [siso], signal: queue, threshold: 100.5ms, objective: 95%}
  - {name: availability, classes: [siso], signal: availability, objective: 99.5%}
"""
)
OTHER = slo_file.loads(
    HEAD
    + """\
classes: [{name: siso}]
slos: [{name: e2e, classes: [siso], signal: e2e, threshold: 1s, objective: 95%}]
"""
)
MAX_TOKENS = 60
times = st.integers(1, 3000).map(lambda milliseconds: milliseconds / 1000)
gaps = st.lists(st.one_of(st.integers(1, 40), st.integers(30, 400)), max_size=MAX_TOKENS - 1)


def judged_by(spec: slo_file.SloFile, outcome: ClientOutcome, response: CompletionResponse, *, stream: bool) -> Record:
    request, last = planned(due=10.0, max_tokens=MAX_TOKENS, stream=stream), response.last or 1012.0
    return graded(request, response, spec, dispatched=1010.0, sent=1010.0, closed=last + 0.001, outcome=outcome)


def without(verdicts: Mapping[str, Verdict], names: AbstractSet[str]) -> dict[str, Verdict]:
    return {name: verdict for name, verdict in verdicts.items() if name not in names}


@given(
    outcome=st.sampled_from(ClientOutcome),
    stream=st.booleans(),
    first=st.none() | times,
    thinking=st.none() | times,
    milliseconds=gaps,
    queue=st.none() | times,
)
def test_the_verdicts_are_those_of_a_run_with_the_other_file(
    outcome: ClientOutcome,
    stream: bool,
    first: float | None,
    thinking: float | None,
    milliseconds: list[int],
    queue: float | None,
) -> None:
    response = CompletionResponse(queue=queue)
    if stream and first is not None:
        response.first = 1010.0 + first
        response.gaps.extend(each / 1000 for each in milliseconds)
        response.last = response.first + sum(response.gaps)
        response.answer = None if thinking is None else response.first + thinking
        response.completion_tokens = len(milliseconds) + 1
    expected = judged_by(MANY, outcome, response, stream=stream)
    found = regrade(judged_by(OTHER, outcome, response, stream=stream), MANY)
    # Without a failure of the engine, such a request has a verdict on its gaps only if it was certain before the end.
    unfailed = outcome.sidecar_outcome in {Outcome.CLIENT_ABORT, Outcome.CLIENT_ERROR, Outcome.REJECTED}
    if not unfailed:
        assert found == expected
    gaps = {"fast", "slow"}
    assert all(found.slo.get(name, Verdict.BAD) in {Verdict.BAD, Verdict.ABANDONED} for name in gaps if unfailed)
    assert without(found.slo, gaps) == without(expected.slo, gaps)


@pytest.mark.parametrize(
    "endpoint, name",
    [
        pytest.param("/v1/chat/completions", "siso", id="chat"),
        pytest.param("/v1/completions", "others", id="completions"),
    ],
)
def test_a_class_that_the_other_file_does_not_know_is_classified_by_its_endpoint(endpoint: str, name: str) -> None:
    known = bool(regrade(record(request_class="unknown", endpoint=endpoint, e2e=1.0), MANY).slo)
    assert known is bool(MANY.slos_of(name))


AVAILABILITY = """\
first_token_timeout: {timeout}
classes: [{{name: siso}}]
slos: [{{name: availability, classes: [siso], signal: availability, objective: 99%}}]
"""


@pytest.mark.parametrize(
    "timeout, rule, judged, bad",
    [
        pytest.param("5s", "first-token timeout of 5s", 3, 2, id="a first token after 9 s, and none in 20 s"),
        pytest.param("10s", "first-token timeout of 10s", 3, 1, id="no first token in 20 s"),
        pytest.param("none", "no first-token timeout", 2, 0, id="none: the client's end leaves it without a verdict"),
    ],
)
def test_a_stored_run_is_reported_by_another_rule(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], timeout: str, rule: str, judged: int, bad: int
) -> None:
    requests = [
        record(phase="calm", ttft=0.2, e2e=1.0),
        record(phase="calm", ttft=9.0, e2e=10.0),
        record(phase="busy", outcome=ClientOutcome.TIMEOUT, closed=21.0),
    ]
    write_run(tmp_path, run(rule=rule_of_run(MANY), experiment="seed-000", configuration="prefix"), requests)
    path = tmp_path / "other.yaml"
    path.write_text(HEAD + AVAILABILITY.format(timeout=timeout))
    again = f"stored requests judged again by {path}, {rule}"
    page = tmp_path / "page.html"
    flags = ["load", "report", str(tmp_path), "--slos", str(path)]
    assert main([*flags, "--format", "json", "--html", str(page)]) == 0
    stated = msgspec.json.decode(capsys.readouterr().out)
    assert stated["rule"] == again
    assert stated["total"]["slos"] == {"availability": {"events": judged, "bad": bad}}
    assert again in page.read_text()
    assert main(flags) == 0
    _, *lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["experiment: seed-000", "configuration: prefix", f"SLO rule: {again}"]


def test_without_a_file_the_verdicts_are_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = record(phase="calm", slo={"ttft": Verdict.BAD}, good=False)
    write_run(tmp_path, run(rule=rule_of_run(MANY)), [bad])
    assert main(["load", "report", str(tmp_path), "--format", "json"]) == 0
    stated = msgspec.json.decode(capsys.readouterr().out)
    assert stated["rule"] == "verdicts of the run, first-token timeout of 2s"
    assert stated["total"]["slos"] == {"ttft": {"events": 1, "bad": 1}}


def test_the_objectives_of_a_run_are_those_of_its_file() -> None:
    assert objectives(OTHER) == [Objective("e2e", "e2e", 1.0, 0.95)]
