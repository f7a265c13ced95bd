"""`vllm-slo alerts check` warns of SLOs that contradict each other or the hardware, and names other programs' files."""

import json
from pathlib import Path

import pytest

from compose.cli import main
from exporters.vocabulary.slo_file import SHIPPED
from tests.support.slo_files import ENGINE_ONLY, MINIMAL

AVAILABILITY = "  - {name: availability, classes: [short], signal: availability, objective: 99%}\n"
PREFILL = "as an idle engine can prefill at most 1000 tokens/s without prefix cache hits"


def check(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, list[str]]:
    """The exit status with --strict, and the findings as `level: path: problem; hint`."""
    path = tmp_path / "slos.yaml"
    path.write_text(text, encoding="utf-8")
    status = main(["alerts", "check", "--slos", str(path), "--format", "json", "--strict", *flags])
    found = json.loads(capsys.readouterr().out)
    return status, [
        f"{each['level']}: {each['path']}: {'; '.join(filter(None, (each['problem'], each['hint'])))}" for each in found
    ]


@pytest.fixture
def roofline(tmp_path: Path) -> str:
    """1,000 prompt tokens/s, and a KV cache of 50,000 tokens."""
    path = tmp_path / "roofline.json"
    rates = {"prefill_tokens_per_second": 1000, "decode_tokens_per_second": {"1": 34}, "kv_tokens": 50_000}
    path.write_text(json.dumps(rates), encoding="utf-8")
    return str(path)


def test_a_first_token_timeout_below_a_ttft_threshold_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: 3s") + AVAILABILITY
    assert check(tmp_path, text, capsys) == (
        1,
        [
            (
                "warning: slos[0].threshold: 5s is longer than first_token_timeout, so a first token after 3s is good "
                "for ttft and bad for availability; use a first_token_timeout of at least 5s"
            )
        ],
    )


def test_no_first_token_timeout_is_a_warning_if_an_slo_needs_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: none")
    assert check(tmp_path, text, capsys) == (0, [])
    assert check(tmp_path, text + AVAILABILITY, capsys) == (
        1,
        [
            (
                "warning: first_token_timeout: without a first-token timeout, an engine that hangs uses no error "
                "budget of availability: a request that the client ends before its first token is abandoned; write a "
                "duration, such as 60s"
            )
        ],
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: 5s") + AVAILABILITY, id="equal times"
        ),
        pytest.param(
            MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: 3s"), id="no SLO awaits a first token"
        ),
        pytest.param(
            MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: 3s")
            + AVAILABILITY.replace("[short]", "[long]"),
            id="only an SLO of another class awaits a first token",
        ),
        pytest.param(
            MINIMAL.replace("period: 30d", "period: 30d\nfirst_token_timeout: 3s").replace(
                "signal: ttft", "signal: ttft_answer"
            )
            + AVAILABILITY,
            id="an answer may come long after the first token",
        ),
        pytest.param(
            ENGINE_ONLY.replace("period: 30d", "period: 30d\nfirst_token_timeout: 500ms"), id="vLLM has no such timeout"
        ),
    ],
)
def test_a_first_token_timeout_that_contradicts_no_slo_raises_no_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    assert check(tmp_path, text, capsys) == (0, [])


@pytest.mark.parametrize(
    "bound,signal,finding",
    [
        pytest.param(
            '"<6001"',
            "ttft",
            f"warning: slos[0].threshold: a prompt of short over 5,000 tokens misses 5s, {PREFILL}; use a threshold of "
            "at least 6s, or prompt_tokens of at most 5000",
            id="the longest prompt of a class",
        ),
        pytest.param('"<=5000"', "ttft", None, id="the longest prompt just in time"),
        pytest.param('"<=5001"', "prefill", "; use a threshold of at least 5s1ms, or prompt", id="an SLO on prefill"),
        pytest.param('"<=5001"', "e2e", None, id="an SLO on another signal"),
        pytest.param(
            '">5000"',
            "ttft_answer",
            f"warning: slos[0].threshold: a prompt of short over 5,000 tokens misses 5s, {PREFILL}; use a threshold of "
            "at least 5s1ms",
            id="every prompt of a class",
        ),
        pytest.param(
            '">=512"',
            "ttft",
            f"note: slos[0].threshold: a prompt of short over 5,000 tokens misses 5s, {PREFILL}",
            id="a note for a class that does not bound its prompts",
        ),
    ],
)
def test_a_threshold_below_the_prefill_time_of_the_longest_prompt(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    roofline: str,
    bound: str,
    signal: str,
    finding: str | None,
) -> None:
    text = MINIMAL.replace('max_tokens: "<=512"', f"prompt_tokens: {bound}").replace(
        "signal: ttft", f"signal: {signal}"
    )
    assert check(tmp_path, text, capsys) == (0, [])
    status, found = check(tmp_path, text, capsys, "--roofline", roofline)
    assert status == int(any(each.startswith("warning: ") for each in found))
    assert len(found) == (0 if finding is None else 1)
    assert all(finding in each for each in found if finding)


def test_the_length_of_a_prompt_is_bounded_by_the_kv_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], roofline: str
) -> None:
    text = MINIMAL.replace("threshold: 5s", "threshold: 50s")
    assert check(tmp_path, text, capsys, "--roofline", roofline) == (0, [])
    assert check(tmp_path, text.replace("50s", "49s"), capsys, "--roofline", roofline)[1] != []


@pytest.mark.parametrize(
    "objective,hint",
    [
        pytest.param("0.95", "95%", id="a share"),
        pytest.param("0.999", "99.9%", id="a share of three digits"),
        pytest.param("99.5", "99.5%", id="a percentage without its sign"),
        pytest.param("1", "one such as 99.5%", id="one, a share or a percentage"),
        pytest.param("250", "one such as 99.5%", id="no percentage"),
        pytest.param("high", "one such as 99.5%", id="no number"),
    ],
)
def test_an_objective_without_a_percent_sign_is_answered_with_the_percentage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], objective: str, hint: str
) -> None:
    assert check(tmp_path, MINIMAL.replace("objective: 95%", f"objective: {objective}"), capsys) == (
        2,
        [f"mistake: slos[0].objective: '{objective}' is not a valid percentage; write {hint}"],
    )


OPENSLO = """\
apiVersion: openslo/v1
kind: Service
metadata: {name: chat}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat-availability}
spec:
  objectives: [{target: 0.995}]
"""
SLOTH = """\
# chat
version: "prometheus/v1"
service: chat
slos: [{name: requests-availability, objective: 99.9}]
"""
SLOTH_OPERATOR = """\
apiVersion: sloth.slok.dev/v1
kind: PrometheusServiceLevel
spec: {service: chat, slos: []}
"""


@pytest.mark.parametrize(
    "text,place,program",
    [
        pytest.param(OPENSLO, "apiVersion", "OpenSLO", id="OpenSLO, several documents"),
        pytest.param(SLOTH, "version", "Sloth", id="Sloth"),
        pytest.param(SLOTH_OPERATOR, "apiVersion", "Sloth", id="Sloth's operator"),
    ],
)
def test_the_files_of_other_programs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, place: str, program: str
) -> None:
    assert check(tmp_path, text, capsys) == (
        2,
        [
            (
                f"mistake: {place}: this is an SLO file of {program}, which has queries instead of classes and "
                "signals; write each of its objectives as an entry of slos, starting from a copy of alerts/slos.yaml, "
                "as in docs/slo-file.md"
            )
        ],
    )
    assert main(["alerts", "render", "--slos", str(tmp_path / "slos.yaml"), "--out", "-"]) == 2
    assert f"slos.yaml:{1 + (text == SLOTH)}:1: {place}: this is an SLO file" in capsys.readouterr().err


def test_the_shipped_file_contradicts_nothing_on_the_hardware_of_the_lab(capsys: pytest.CaptureFixture[str]) -> None:
    lab = SHIPPED.parents[1] / "compose/simulator/roofline.json"
    assert main(["alerts", "check", "--strict", "--roofline", str(lab)]) == 0
    assert "note: slos[0].threshold: a prompt of liso over 65,079 tokens misses 5s" in capsys.readouterr().out
