"""A warm engine is reported to the sidecar; what prevents it is said."""

from pathlib import Path

import pytest

from compose.cli import main
from exporters.text.errors import UsageError
from loadgen.warm_up.ready_report import Sidecar
from tests.loadgen.canned_server import canned_server, http
from tests.support.ports import free_port


@pytest.fixture
def token(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("t0ken-of-the-admin\n")
    return str(path)


def test_the_report_has_the_token(token: str) -> None:
    with canned_server(http("200 OK", '{"engines":["gpu-0:8000"]}')) as (url, heads):
        Sidecar.parse(url, token).report_warm()
    assert heads[0].startswith("POST /admin/warm HTTP/1.1\r\n")
    assert "authorization: Bearer t0ken-of-the-admin" in heads[0]


@pytest.mark.parametrize(
    "status, message",
    [
        (
            "401 Unauthorized",
            "--admin-token-file: the sidecar rejected the token; use the file of its --admin-token-file",
        ),
        ("404 Not Found", "--sidecar: URL has no /admin/warm; start the sidecar with --admin-token-file FILE"),
        ("500 Error", "--sidecar: URL is not a sidecar: it responded 500 with ''"),
    ],
)
def test_a_report_that_is_not_accepted_is_refused(status: str, message: str, token: str) -> None:
    with canned_server(http(status, "")) as (url, _), pytest.raises(UsageError) as refusal:
        Sidecar.parse(url, token).report_warm()
    assert str(refusal.value) == message.replace("URL", url)


def test_a_sidecar_that_does_not_respond_is_named(token: str) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UsageError) as refusal:
        Sidecar.parse(url, token).report_warm()
    assert (refusal.value.exit_status, str(refusal.value)) == (
        3,
        f"--sidecar: {url}: request failed: [Errno 111] Connection refused",
    )


def test_the_token_is_checked_before_the_warm_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["load", "warm-up", "--target", "http://127.0.0.1:1", "--ready"]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: --ready: needs the admin token of the sidecar; add --admin-token-file FILE\n"
    )
