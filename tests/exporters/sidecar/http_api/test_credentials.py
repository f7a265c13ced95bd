"""Authentication of the metrics port: the file, the header, and the sidecar process."""

import base64
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from compose.cli import main
from exporters.sidecar.http_api.credentials import Credentials
from exporters.text.errors import UsageError
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import Running, children, sidecar
from tests.support.waiting import until

FILE = """
# Prometheus
bearer s3cret-token

  basic ops:pass: word #1
basic jürgen:grün
"""


def basic(user_and_password: str) -> str:
    return f"Basic {base64.b64encode(user_and_password.encode()).decode()}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "credentials"
    path.write_text(FILE)
    path.chmod(0o600)
    return path


@pytest.fixture
def credentials(path: Path) -> Credentials:
    credentials = Credentials(str(path))
    credentials.read()
    return credentials


@pytest.mark.parametrize(
    "authorization, accepted",
    [
        pytest.param("Bearer s3cret-token", True, id="a token"),
        pytest.param("bearer  s3cret-token ", True, id="the scheme in any case, with spaces"),
        pytest.param(basic("ops:pass: word #1"), True, id="a password with a colon, a space and a hash"),
        pytest.param(basic("jürgen:grün"), True, id="a password beyond ASCII"),
        pytest.param("", False, id="none"),
        pytest.param("Bearer", False, id="no value"),
        pytest.param("Bearer s3cret-toke", False, id="a shorter token"),
        pytest.param("Bearer s3cret-token2", False, id="a longer token"),
        pytest.param("Bearer S3CRET-TOKEN", False, id="a token in another case"),
        pytest.param("Basic s3cret-token", False, id="a token with another scheme"),
        pytest.param("Bearer # Prometheus", False, id="a comment"),
        pytest.param("s3cret-token", False, id="a token without a scheme"),
        pytest.param(basic("ops:"), False, id="no password"),
        pytest.param(basic("jürgen:pass: word #1"), False, id="the password of another user"),
        pytest.param("Bearer \udcff", False, id="invalid UTF-8"),
    ],
)
def test_the_credentials_in_the_file_are_accepted_and_no_others(
    credentials: Credentials, authorization: str, accepted: bool
) -> None:
    assert credentials.admit(authorization) is accepted


def test_before_the_file_is_read_all_headers_are_rejected(path: Path) -> None:
    assert not Credentials(str(path)).admit("Bearer s3cret-token")


def test_no_secret_is_in_the_repr(credentials: Credentials) -> None:
    assert "s3cret" not in repr(credentials)


def test_an_invalid_file_changes_nothing(credentials: Credentials, path: Path) -> None:
    path.write_text("bearer\n")
    with pytest.raises(UsageError):
        credentials.read()
    assert credentials.admit("Bearer s3cret-token")


MISTAKES = """\
bearer s3cret
bearer
bearer two words
bearer schlüssel
basic s3cret
basic ops:
basic :s3cret
s3cret
Bearer s3cret
"""
AFTER_BEARER = "a token is one word of printable ASCII; write 'bearer TOKEN'"
AFTER_BASIC = "user and password must not be empty; write 'basic USER:PASSWORD'"
NEITHER = "unknown scheme; write 'bearer TOKEN' or 'basic USER:PASSWORD'"


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param(
            MISTAKES.encode(),
            "\n".join(
                [*(f"FILE:{n}: {AFTER_BEARER}" for n in (2, 3, 4)), *(f"FILE:{n}: {AFTER_BASIC}" for n in (5, 6, 7))]
                + [f"FILE:{n}: {NEITHER}" for n in (8, 9)]
            ),
            id="all mistakes, without secrets",
        ),
        pytest.param(
            b"# empty\n",
            "FILE: contains no credential; write lines 'bearer TOKEN' or 'basic USER:PASSWORD'",
            id="an empty file",
        ),
        pytest.param(b"bearer \xff\n", "--metrics-auth-file: FILE is not UTF-8 text", id="not UTF-8"),
        pytest.param(None, "--metrics-auth-file: FILE cannot be read: no such file or directory", id="a missing file"),
    ],
)
def test_an_invalid_file_is_rejected(
    text: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "credentials"
    if text is not None:
        path.write_bytes(text)
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--metrics-auth-file", str(path)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message.replace('FILE', str(path))}\n"


def write(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
async def running(tmp_path: Path, path: Path) -> AsyncIterator[Running]:
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, "--metrics-auth-file", str(path)) as running:
        yield running


async def fetch(running: Running, page: str, authorization: str | None = None) -> tuple[int, list[str], str]:
    headers = {} if authorization is None else {"authorization": authorization}
    async with running.session.get(f"{running.pages}{page}", headers=headers) as response:
        text = await response.text()
        return response.status, response.headers.getall("www-authenticate", []), text if response.status == 401 else ""


@pytest.mark.slow
async def test_with_a_file_all_endpoints_but_the_probes_need_a_credential_which_sighup_reloads(
    running: Running, path: Path
) -> None:
    needs = "'Authorization: Bearer ...' or 'Authorization: Basic ...' with a credential of --metrics-auth-file"
    challenges = ['Bearer realm="vllm-slo"', 'Basic realm="vllm-slo", charset="UTF-8"']
    refused = (401, challenges, f"vllm-slo: this endpoint needs {needs}\n")
    for page in ("/metrics", "/", "/admin/flip"):
        assert await fetch(running, page) == refused
    assert await fetch(running, "/metrics", "Bearer guess") == refused
    assert await fetch(running, "/metrics", "Bearer s3cret-token") == (200, [], "")
    assert await fetch(running, "/metrics", basic("ops:pass: word #1")) == (200, [], "")
    for page in ("/healthz", "/readyz"):
        assert await fetch(running, page) == (200, [], "")
    for pid in (running.process.pid, *children(running.process.pid).values()):
        for name in ("cmdline", "environ", "comm"):
            assert b"s3cret" not in (Path("/proc") / str(pid) / name).read_bytes()
    assert "WARNING" not in running.stderr.read_text()
    assert "s3cret" not in running.stderr.read_text()
    write(path, "bearer\n")
    running.process.send_signal(signal.SIGHUP)
    await running.logs_line(f"ERROR exporter: {path}:1: {AFTER_BEARER}; ignoring this file")
    assert (await fetch(running, "/metrics", "Bearer s3cret-token"))[0] == 200
    write(path, "bearer renewed\n")
    running.process.send_signal(signal.SIGHUP)
    await until(lambda: _is_accepted(running, "Bearer renewed"))
    status, challenges, text = await fetch(running, "/metrics", "Bearer s3cret-token")
    assert (status, challenges) == (401, ['Bearer realm="vllm-slo"'])
    assert (
        text == "vllm-slo: this endpoint needs 'Authorization: Bearer ...' with a credential of --metrics-auth-file\n"
    )


async def _is_accepted(running: Running, authorization: str) -> bool:
    return (await fetch(running, "/metrics", authorization))[0] == 200


@pytest.mark.slow
async def test_readable_secrets_are_warned_about_and_an_invalid_file_at_a_restart_admits_nobody(
    tmp_path: Path, path: Path
) -> None:
    token = tmp_path / "token"
    write(token, "t0ken")
    for secret in (path, token):
        os.chmod(secret, 0o644)  # noqa: PTH101 - a synchronous call
    words = ("--metrics-auth-file", str(path), "--admin-token-file", str(token))
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words) as running:
        warning = "WARNING supervisor: {}: {} is readable by all users; run: chmod o-r {}"
        assert running.log_lines()[:2] == [warning.format(words[0], path, path), warning.format(words[2], token, token)]
        write(path, "")
        before = running.signal_exporter(signal.SIGKILL)
        assert await running.ask("meanwhile") == 200
        await running.logs("meanwhile")
        assert running.exporter not in {None, before}
        status, challenges, _ = await fetch(running, "/metrics", "Bearer s3cret-token")
        assert (status, len(challenges)) == (401, 2)
