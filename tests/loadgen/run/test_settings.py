"""The settings of a run, from flags or environment variables; invalid ones are refused before the load starts."""

import pytest

from loadgen.client.target import Target, parse
from loadgen.run import settings as run_settings
from loadgen.schedule import scenario
from loadgen.schedule.phases import Steady
from tests.loadgen.run_flags import parsed, refusal

WRITE = "write a base URL without a query, such as http://127.0.0.1:8000"
NO_TARGET = f"is not a valid URL; {WRITE}"
LOCAL = ["--target", "http://127.0.0.1:8000", "--out", "results"]


@pytest.mark.parametrize(
    "url, target",
    [
        ("http://127.0.0.1:8000", Target("127.0.0.1", 8000)),
        ("http://localhost:8000/", Target("localhost", 8000)),
        ("http://[::1]:9/v1", Target("::1", 9)),
        ("http://127.0.0.2/engine/v1/", Target("127.0.0.2", 80, path="/engine")),
    ],
)
def test_a_loopback_target_is_accepted(url: str, target: Target) -> None:
    assert parse(url, allow_remote=False) == target


def test_a_remote_target_needs_a_flag() -> None:
    assert refusal(lambda: parse("https://gpu.example:8443", allow_remote=False)) == (
        "--target: gpu.example is another machine; use 127.0.0.1, or set --allow-remote if you may load-test it"
    )
    assert str(parse("https://gpu.example:8443", allow_remote=True)) == "https://gpu.example:8443"


@pytest.mark.parametrize(
    "url, message",
    [
        ("127.0.0.1:8000", f"'127.0.0.1:8000' {NO_TARGET}"),
        ("ftp://127.0.0.1", f"'ftp://127.0.0.1' {NO_TARGET}"),
        ("http://127.0.0.1:99999", f"'http://127.0.0.1:99999' is not a valid URL: Port out of range 0-65535; {WRITE}"),
        ("http://127.0.0.1/?a=1", f"'http://127.0.0.1/?a=1' {NO_TARGET}"),
        (
            "http://127.0.0.1/a b",
            "'http://127.0.0.1/a b' contains a space or a character that is not ASCII; percent-encode it",
        ),
        (
            "http://127.0.0.1/\u00e9",
            "'http://127.0.0.1/\u00e9' contains a space or a character that is not ASCII; percent-encode it",
        ),
        ("http://me@127.0.0.1/", "a user is not supported; remove it from the URL"),
    ],
)
def test_an_invalid_base_url_is_refused(url: str, message: str) -> None:
    assert refusal(lambda: parse(url, allow_remote=False)) == f"--target: {message}"


def test_flags_change_the_scenario() -> None:
    settings = run_settings.from_arguments(
        parsed("--scenario", "demo", *LOCAL, "--seed", "7", "--duration", "2m", "--rate-scale", "0.5", "--grace", "3s")
    )
    first, second = scenario.load(scenario.find("demo")).phases
    rest = 120 - first.duration
    assert isinstance(first, Steady)
    assert isinstance(second, Steady)
    assert settings.phases == (
        Steady("baseline", first.duration, first.rate / 2),
        Steady("overload", rest, second.rate / 2),
    )
    assert (settings.seed, settings.grace, settings.check) == (7, 3, True)


def test_without_a_check_the_model_must_be_set() -> None:
    assert (
        refusal(lambda: run_settings.from_arguments(parsed("--scenario", "mixed", *LOCAL, "--no-check")))
        == "--no-check: the model is unknown without /v1/models; set --model too"
    )


@pytest.mark.parametrize(
    "text, address",
    [("127.0.0.1:9465", ("127.0.0.1", 9465)), (":9465", ("0.0.0.0", 9465)), ("[::1]:9465", ("::1", 9465))],
)
def test_the_metrics_flag_is_an_address(text: str, address: tuple[str, int]) -> None:
    assert run_settings.from_arguments(parsed("--scenario", "mixed", *LOCAL, "--metrics", text)).metrics == address


@pytest.mark.parametrize(
    "flag, value, message",
    [
        ("--duration", "5", "'5' is not a valid duration; write a number with a unit, such as 30s or 5m"),
        ("--rate-scale", "0", "invalid factor '0'; write a number above 0, such as 1.5"),
        ("--seed", "-1", "'-1' is not a whole number of at least 0"),
        ("--metrics", "9465", "'9465' is not a valid address; write HOST:PORT, such as 127.0.0.1:9465"),
    ],
)
def test_an_invalid_value_is_refused(flag: str, value: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refusal:
        parsed("--scenario", "mixed", *LOCAL, f"{flag}={value}")
    assert refusal.value.code == 2
    last_line = capsys.readouterr().err.splitlines()[-1]
    assert last_line == f"vllm-slo load run: error: argument {flag}: {message}"


def test_plain_locust_reads_the_same_flags_from_the_environment() -> None:
    environment = {
        "VLLM_SLO_SCENARIO": "demo",
        "VLLM_SLO_TARGET": "http://127.0.0.1:1",
        "VLLM_SLO_RATE_SCALE": "2",
        "VLLM_SLO_ALLOW_REMOTE": "true",
        "VLLM_SLO_NO_CHECK": "no",
    }
    settings = run_settings.from_environment(environment, "http://sidecar:8000")
    assert (settings.plan.name, str(settings.target), settings.rate_scale) == ("demo", "http://sidecar:8000", 2)
    assert settings.check


@pytest.mark.parametrize(
    "environment, message",
    [
        ({}, "no target: set VLLM_SLO_TARGET, or Locust's --host, such as http://127.0.0.1:8000"),
        (
            {"VLLM_SLO_TARGET": "http://127.0.0.1:1", "VLLM_SLO_GRACE": "x"},
            "VLLM_SLO_GRACE: 'x' is not a valid duration; write a number with a unit, such as 30s or 5m",
        ),
    ],
)
def test_an_invalid_environment_is_refused(environment: dict[str, str], message: str) -> None:
    assert refusal(lambda: run_settings.from_environment(environment, None)) == message
