"""`vllm-slo alerts check` marks each mistake in its line, and warns about a valid file that is probably unintended."""

import json
from pathlib import Path

import pytest

from compose.cli import main
from exporters.vocabulary.slo_file import SHIPPED
from tests.support.slo_files import MINIMAL


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, so that files have short names."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(folder: Path, text: str, *flags: str) -> int:
    (folder / "slos.yaml").write_text(text, encoding="utf-8")
    return main(["alerts", "check", "--slos", "slos.yaml", *flags])


def test_the_shipped_file_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "check", "--strict", "--retention", "31d"]) == 0
    assert capsys.readouterr().out == (
        f"{SHIPPED}: OK: 30d over 4 classes: ttft (ttft within 5s for 95 %), itl (itl_p95 within 250ms for 95 %), "
        "availability (availability for 99.5 %)\n"
    )


def test_every_mistake_is_marked_in_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MINIMAL.replace("period:", "periods:").replace("95%", "100%").replace("name: long", "name: 長い")
    assert check(folder, text) == 2
    out, err = capsys.readouterr()
    assert err == ""
    assert (
        out
        == """\
slos.yaml:1:1: mistake: the key period is missing
  1 | version: 1
    | ^

slos.yaml:2:1: mistake: periods: unknown key
  2 | periods: 30d
    | ^^^^^^^
    = did you mean 'period'?

slos.yaml:6:12: mistake: classes[1].name: '長い' is not a valid name
  6 |   - {name: 長い}
    |            ^^^^
    = use lower-case letters, digits, - and _, starting with a letter

slos.yaml:8:76: mistake: slos[0].objective: 100% leaves no error budget, so the burn rate is undefined
  8 |   - {name: ttft, classes: [short], signal: ttft, threshold: 5s, objective: 100%}
    |                                                                            ^^^^
    = write at most 99.9%

"""
    )


@pytest.mark.parametrize(
    "text,output",
    [
        pytest.param(
            "version: 1 # [b]\x1b[31m\n",
            "slos.yaml:1:1: mistake: invalid YAML: unacceptable character #x001b: special characters are not allowed\n"
            "  1 | version: 1 # [b]\N{REPLACEMENT CHARACTER}[31m\n"
            "    | ^\n\n",
            id="a terminal escape is replaced, and markup is not interpreted",
        ),
        pytest.param(
            "version: [1\n",
            "slos.yaml:2:1: mistake: invalid YAML: while parsing a flow sequence, expected ',' or ']', but got "
            "'<stream end>'\n\n",
            id="a mistake after the last line shows no line",
        ),
        pytest.param(
            MINIMAL.replace("{name: long}", '{name: long, prompt_tokens: "<\t512", max_tokens: 8}'),
            "slos.yaml:6:54: mistake: classes[1].max_tokens: '8' is not a valid bound\n"
            '  6 |   - {name: long, prompt_tokens: "<        512", max_tokens: 8}\n'
            "    |                                                             ^\n"
            '    = write a comparison in quotes, such as "<512" or ">=2048"\n\n',
            id="a tab has the same width above the caret",
        ),
    ],
)
def test_the_caret_is_under_the_mistake_for_any_characters(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, output: str
) -> None:
    assert check(folder, text) == 2
    assert capsys.readouterr().out == output


WARNINGS = [
    pytest.param(
        "{name: long}",
        '{name: long, prompt_tokens: ">8", max_tokens: ">8"}\n  - {name: late, max_tokens: "<=100"}',
        """\
slos.yaml:7:12: warning: classes[2].name: every request that fits 'late' fits 'short' before it, so \
only the header x-request-class can select it
  7 |   - {name: late, max_tokens: "<=100"}
    |            ^^^^
    = move it up, or narrow the earlier bounds
""",
        id="a class shadowed by an earlier one",
    ),
    pytest.param(
        "{name: long}",
        '{name: long}\n  - {name: late, prompt_tokens: ">100"}',
        """\
slos.yaml:7:12: warning: classes[2].name: every request that fits 'late' fits 'short' or 'long' before \
it, so only the header x-request-class can select it
  7 |   - {name: late, prompt_tokens: ">100"}
    |            ^^^^
    = move it up, or narrow the earlier bounds
""",
        id="a class shadowed by two together",
    ),
    pytest.param(
        "{name: long}",
        '{name: long, prompt_tokens: "<0"}',
        """\
slos.yaml:6:12: warning: classes[1].name: no request has such a size, so only the header x-request-class can select it
  6 |   - {name: long, prompt_tokens: "<0"}
    |            ^^^^
    = widen its bounds
""",
        id="a class that nothing matches",
    ),
    pytest.param(
        "{name: long}",
        "{name: long}\n  - {name: vectors, route: embeddings}",
        """\
slos.yaml:7:12: warning: classes[2].name: every request that fits 'vectors' fits 'short' before it, so only the header \
x-request-class can select it
  7 |   - {name: vectors, route: embeddings}
    |            ^^^^^^^
    = move it up, or narrow the earlier bounds
""",
        id="a class of a route after one of all routes",
    ),
    pytest.param(
        "{name: long}",
        '{name: long, route: embeddings, max_tokens: ">8"}',
        """\
slos.yaml:6:12: warning: classes[1].name: no request has such a size, so only the header x-request-class can select it
  6 |   - {name: long, route: embeddings, max_tokens: ">8"}
    |            ^^^^
    = widen its bounds
""",
        id="a class with completions of a route without",
    ),
    pytest.param(
        "classes: [short]",
        "classes: [short, other]",
        """\
slos.yaml:8:35: warning: slos[0].classes[1]: every size of request fits one of the classes, so only the header \
x-request-class can select it
  8 |   - {name: ttft, classes: [short, other], signal: ttft, threshold: 5s, objective: 95%}
    |                                   ^^^^^
    = remove 'other'
""",
        id="an SLO on other, which no request matches",
    ),
    pytest.param(
        "period: 30d",
        "period: 90d",
        """\
slos.yaml:2:9: warning: period: is longer than the retention of 30d, so Prometheus drops bad events and overstates \
the budget left
  2 | period: 90d
    |         ^^^
    = use a period of at most 30d, or a retention of 90d
""",
        id="a period longer than the retention",
    ),
]


@pytest.mark.parametrize("right,wrong,output", WARNINGS)
def test_a_warning_fails_the_check_only_with_strict(
    folder: Path, capsys: pytest.CaptureFixture[str], right: str, wrong: str, output: str
) -> None:
    text = MINIMAL.replace(right, wrong, 1)
    assert check(folder, text, "--retention", "30d") == 0
    head, _, last = capsys.readouterr().out.rstrip("\n").rpartition("\n")
    assert head == output
    assert last.startswith("slos.yaml: OK: ")
    assert check(folder, text, "--retention", "30d", "--strict") == 1


@pytest.mark.parametrize(
    "first,second",
    [
        pytest.param('prompt_tokens: "<512"', 'prompt_tokens: ">=512"', id="halves"),
        pytest.param('prompt_tokens: "<=511"', 'prompt_tokens: "<512"', id="a quarter of a token between them"),
        pytest.param('max_tokens: "<=511"', 'max_tokens: "<=512"', id="a token between them"),
        pytest.param('max_tokens: "<=511"', 'prompt_tokens: "<9"', id="one bound each"),
    ],
)
def test_a_class_that_some_sizes_match_raises_no_warning(
    folder: Path, capsys: pytest.CaptureFixture[str], first: str, second: str
) -> None:
    text = MINIMAL.replace('max_tokens: "<=512"', first).replace("{name: long}", f"{{name: long, {second}}}")
    assert check(folder, text, "--strict") == 0
    assert "warning" not in capsys.readouterr().out


def test_max_tokens_are_whole_numbers(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MINIMAL.replace("{name: long}", '{name: long, max_tokens: ">=513"}').replace("[short]", "[other]")
    assert check(folder, text, "--strict") == 1
    assert "slos.yaml:8:28: warning: slos[0].classes[0]: every size of request fits" in capsys.readouterr().out


def test_a_note_says_that_rules_do_not_see_external_labels(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = MINIMAL.replace("slos:\n", "group_by: [cluster, namespace]\nslos:\n").replace("95%", "99.5%")
    assert check(folder, text, "--strict") == 0
    assert capsys.readouterr().out.startswith(
        """\
slos.yaml:7:11: note: group_by: rules do not see external labels of Prometheus, so targets need cluster, namespace as \
labels of their own
  7 | group_by: [cluster, namespace]
    |           ^^^^^^^^^^^^^^^^^^^^
    = set them by relabel_configs, or evaluate the rules where remote_write has added them
"""
    )


def test_a_rescaled_tier_is_a_note_which_passes_with_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(folder, MINIMAL.replace("95%", "90%"), "--strict") == 0
    assert (
        capsys.readouterr().out
        == """\
slos.yaml:8:76: note: slos[0].objective: slo ttft, tier fast-page: a burn rate of 14.4 would need 144 % bad events, \
which is impossible
  8 |   - {name: ttft, classes: [short], signal: ttft, threshold: 5s, objective: 90%}
    |                                                                            ^^^
    = rescaled to 9, which needs 90 %

slos.yaml: OK: 30d over 2 classes: ttft (ttft within 5s for 90 %)
"""
    )


def test_json_has_the_same_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = MINIMAL.replace("period: 30d\n", "").replace("95%", "0%")
    assert check(folder, wrong, "--format", "json") == 2
    assert json.loads(capsys.readouterr().out) == [
        {
            "file": "slos.yaml",
            "line": 1,
            "column": 1,
            "path": "",
            "level": "mistake",
            "problem": "the key period is missing",
            "hint": None,
        },
        {
            "file": "slos.yaml",
            "line": 7,
            "column": 76,
            "path": "slos[0].objective",
            "level": "mistake",
            "problem": "0% is always met",
            "hint": "write a percentage above 0%, such as 95%",
        },
    ]
    assert check(folder, MINIMAL, "--format", "json", "--strict", "--retention", "15d") == 1
    assert [(each["level"], each["path"]) for each in json.loads(capsys.readouterr().out)] == [("warning", "period")]
    assert check(folder, MINIMAL, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("retention", ["15", "0s", "a while"])
def test_an_invalid_retention_is_rejected(folder: Path, capsys: pytest.CaptureFixture[str], retention: str) -> None:
    assert check(folder, MINIMAL, "--retention", retention) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: --retention: {retention!r} is not a valid duration; "
        "write a number with a unit, such as 15d or 52w\n"
    )


def test_a_missing_file_is_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["alerts", "check", "--slos", "nowhere.yaml", "--format", "json"]) == 2
    assert capsys.readouterr() == ("", "vllm-slo: nowhere.yaml: cannot be read: no such file or directory\n")
