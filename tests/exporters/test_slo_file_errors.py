"""A wrong SLO file is refused with every mistake at once, each with its place, its reason and what would work."""

import subprocess
import sys
from pathlib import Path

import pytest

from exporters.errors import UsageError
from exporters.slos import load, loads
from exporters.yaml_reader import FileError

GOOD = """\
version: 1
period: 30d
scrape_interval: 15s
classes:
  - {name: short, max_tokens: "<=512"}
  - {name: long}
slos:
  - {name: ttft, classes: [short], signal: ttft, threshold: 5s, objective: 95%}
"""


def refusal(text: str) -> str:
    with pytest.raises(FileError) as caught:
        loads(text, "slos.yaml")
    return str(caught.value)


def test_the_file_that_the_others_are_made_from_is_good() -> None:
    assert [slo.name for slo in loads(GOOD).slos] == ["ttft"]


MISTAKES = [
    pytest.param(
        "version: 1",
        "version: 2",
        "slos.yaml:1:10: version: '2' is not known to this release; write 1",
        id="unknown version",
    ),
    pytest.param(
        "period: 30d",
        "period: month",
        "slos.yaml:2:9: period: 'month' is no duration; write a number with a unit, such as 250ms, 5s, 1m, 12h or 30d",
        id="no duration",
    ),
    pytest.param(
        "period: 30d",
        "period: 1d",
        "slos.yaml:2:9: period: is too short for scrapes every 15 s: the fastest burn window would be 10 s and must "
        "hold 4 scrapes; use a period of at least 144h or a scrape_interval of at most 2.5s",
        id="period too short for its scrapes",
    ),
    pytest.param(
        "scrape_interval: 15s",
        "scrape_intervall: 15s",
        "slos.yaml:3:1: scrape_intervall: unknown key; did you mean 'scrape_interval'?",
        id="unknown key",
    ),
    pytest.param(
        "scrape_interval: 15s",
        "period: 15d",
        "slos.yaml:3:1: period: is given twice; keep one",
        id="key given twice",
    ),
    pytest.param(
        'max_tokens: "<=512"',
        'max_tokens: "512"',
        "slos.yaml:5:31: classes[0].max_tokens: '512' is no bound; write a comparison in quotes, such as \"<512\" or "
        '">=2048"',
        id="no bound",
    ),
    pytest.param(
        "{name: long}",
        "{name: other}",
        "slos.yaml:6:12: classes[1].name: 'other' is the class of requests that fit no other; choose another name",
        id="reserved class",
    ),
    pytest.param(
        "{name: long}",
        "{name: short}",
        "slos.yaml:6:12: classes[1].name: 'short' is the name of an earlier class; names must differ",
        id="class named twice",
    ),
    pytest.param(
        "{name: long}",
        "{name: Long Ones}",
        "slos.yaml:6:12: classes[1].name: 'Long Ones' is no name; use lower-case letters, digits, - and _, beginning "
        "with a letter",
        id="no name",
    ),
    pytest.param(
        "classes: [short]",
        "classes: [shrot]",
        "slos.yaml:8:28: slos[0].classes[0]: no class is called 'shrot'; did you mean 'short'?",
        id="unknown class",
    ),
    pytest.param(
        "signal: ttft",
        "signal: tft",
        "slos.yaml:8:44: slos[0].signal: 'tft' is unknown; did you mean 'ttft'?",
        id="unknown signal",
    ),
    pytest.param(
        "threshold: 5s, ",
        "",
        "slos.yaml:8:5: slos[0]: threshold is missing: ttft is judged against a time; write one, such as threshold: 5s",
        id="no threshold",
    ),
    pytest.param(
        "signal: ttft",
        "signal: availability",
        "slos.yaml:8:69: slos[0].threshold: availability has no threshold; remove it or choose a latency signal",
        id="threshold for availability",
    ),
    pytest.param(
        "objective: 95%",
        "objective: 100%",
        "slos.yaml:8:76: slos[0].objective: 100% leaves no error budget, so its burn rate is undefined; the nearest "
        "that works is 99.9%",
        id="objective of 100 %",
    ),
    pytest.param(
        "objective: 95%",
        "objective: 0%",
        "slos.yaml:8:76: slos[0].objective: 0% can never be missed; write a share above 0%, such as 95%",
        id="objective of 0 %",
    ),
    pytest.param(
        "objective: 95%",
        "objective: 0.95",
        "slos.yaml:8:76: slos[0].objective: '0.95' is no share; write a percentage, such as 99.5%",
        id="objective that is no percentage",
    ),
    pytest.param(
        "slos:\n",
        "alerting: {min_bad: few}\nslos:\n",
        "slos.yaml:7:21: alerting.min_bad: expected a whole number of at least 1, found 'few'",
        id="no number",
    ),
    pytest.param(
        "slos:\n",
        "alerting: {cold_start: soon}\nslos:\n",
        "slos.yaml:7:24: alerting.cold_start: 'soon' is no duration; write a number with a unit, such as 250ms, 5s, "
        "1m, 12h or 30d",
        id="cold start that is no duration",
    ),
    pytest.param(
        "slos:\n",
        "alerting: {per_tenant: true}\nslos:\n",
        "slos.yaml:7:11: alerting: per_tenant has no tenant to tell apart; name some in tenants.allow or write false",
        id="rules per tenant without tenants",
    ),
    pytest.param(
        "slos:\n",
        "source: vllm\nslos:\n",
        "slos.yaml:7:9: source: 'vllm' is unknown; known: sidecar, engine",
        id="unknown source",
    ),
    pytest.param(
        "slos:\n",
        "engine: {version: latest}\nslos:\n",
        "slos.yaml:7:19: engine.version: 'latest' is no release of vLLM; write its number, such as 0.25 or v0.25.1",
        id="no release of vLLM",
    ),
    pytest.param(
        "slos:\n",
        "trust_request_start: maybe\nslos:\n",
        "slos.yaml:7:22: trust_request_start: expected true or false, found 'maybe'",
        id="no boolean",
    ),
]


@pytest.mark.parametrize("right,wrong,message", MISTAKES)
def test_a_mistake_is_told_with_place_reason_and_what_would_work(right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    assert refusal(GOOD.replace(right, wrong, 1)) == message


def test_every_mistake_is_told_in_one_run() -> None:
    text = """\
version: 2
periods: 30d
classes:
  - {name: short, max_tokens: 512}
slos:
  - {name: ttft, classes: [short, long], signal: ttft, objective: 100%}
  - {name: ttft, classes: [short], signal: tpot, threshold: soon, objective: 95%}
"""
    lines = refusal(text).splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        "slos.yaml:1:1",
        "slos.yaml:1:10",
        "slos.yaml:2:1",
        "slos.yaml:4:31",
        "slos.yaml:6:5",
        "slos.yaml:6:35",
        "slos.yaml:6:67",
        "slos.yaml:7:12",
        "slos.yaml:7:61",
    ]
    assert lines[0] == "slos.yaml:1:1: the key period is missing"
    assert lines[5] == "slos.yaml:6:35: slos[0].classes[1]: no class is called 'long'; known: short, other"


def test_a_period_that_is_too_short_is_told_beside_other_mistakes() -> None:
    lines = refusal(GOOD.replace("version: 1", "version: 2").replace("period: 30d", "period: 1d")).splitlines()
    assert [line.split(": ")[1] for line in lines] == ["version", "period"]


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("", "slos.yaml:1:1: expected a mapping with ", id="empty"),
        pytest.param("- a\n", "slos.yaml:1:1: expected a mapping with ", id="a list"),
        pytest.param("a: [1\n", "slos.yaml:2:1: is no YAML: ", id="no YAML"),
        pytest.param("a: \x00\n", "slos.yaml:1:1: is no YAML: ", id="a zero byte"),
        pytest.param(
            "[" * 5000, "slos.yaml:1:1: is no YAML of a sane depth: too many [ or { inside others", id="too deep"
        ),
    ],
)
def test_a_file_that_is_something_else_is_said_to_be(text: str, message: str) -> None:
    assert refusal(text).startswith(message)


@pytest.mark.parametrize("command", [["alerts", "explain"], ["sidecar", "--upstream", "http://127.0.0.1:1", "--slos"]])
def test_a_command_given_a_bad_file_says_so_and_exits_with_2(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text(GOOD.replace("95%", "100%"))
    main = "import sys; from compose.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", main, *command, str(path)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"vllm-slo: {path}:8:76: slos[0].objective: 100% leaves no error budget")
    assert "Traceback" not in done.stderr


def test_a_file_that_is_not_there_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml: cannot be read: no such file or directory$"):
        load(tmp_path / "nowhere.yaml")
