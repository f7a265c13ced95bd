"""TLS towards clients and the engine, with certificates of a test authority."""

import asyncio
import signal
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest

from compose.cli import main
from compose.rolling_update.pod_manifest import SCRIPTS
from exporters.configuration.tls import Certificate
from tests.exporters.configuration.certificates import Authority, authority, needs_openssl
from tests.faults.sidecar_state import kill_exporter, kill_relay
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import PATIENCE, QUICK_RESTARTS, RUN, START, Running, sidecar
from tests.support.waiting import HANG, until

pytestmark = [needs_openssl, pytest.mark.slow]

EXPIRY = "llm_sidecar_certificate_expiry_timestamp_seconds{}"
RELOADED = "llm_sidecar_certificate_last_reload_successful{}"
BODY = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    return authority(tmp_path / "ours")


def tls_flags(certificate: Certificate) -> list[str]:
    return ["--tls-cert", certificate.cert, "--tls-key", certificate.key]


def served(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    return context


def read(path: str) -> str:
    return Path(path).read_text()


def write(path: str, text: str) -> None:
    Path(path).write_text(text)


def enddate(certificate: Certificate) -> float:
    """The end of a certificate as the openssl program shows it."""
    words = ["openssl", "x509", "-noout", "-enddate", "-in", certificate.cert]
    output = subprocess.run(words, check=True, capture_output=True, text=True, timeout=HANG).stdout
    return ssl.cert_time_to_seconds(output.strip().removeprefix("notAfter="))


def trusting(ours: Authority) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=PATIENCE, connector=aiohttp.TCPConnector(ssl=ours.client()))


async def shown(port: int, ours: Authority) -> bytes:
    """The server certificate of a new connection, in DER."""
    async with asyncio.timeout(HANG):
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=ours.client())
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    assert isinstance(certificate, bytes)
    return certificate


async def shows_certificate(port: int, ours: Authority, certificate: Certificate) -> None:
    """Wait for the relay, which gets the certificate after the exporter."""

    async def shows() -> bool:
        return await shown(port, ours) == der(certificate)

    await until(shows)


def der(certificate: Certificate) -> bytes:
    return ssl.PEM_cert_to_DER_cert(Path(certificate.cert).read_text())


@pytest.mark.parametrize(
    "days", [pytest.param(30, id="UTCTime"), pytest.param(20_000, id="GeneralizedTime, after 2049")]
)
@pytest.mark.parametrize("algorithm", ["ec", "rsa:2048"])
def test_the_expiry_is_the_one_that_openssl_shows(ours: Authority, days: int, algorithm: str) -> None:
    certificate = ours.issue("leaf", days=days, algorithm=algorithm)
    assert certificate.read().expiry == enddate(certificate)


def test_the_expiry_of_a_chain_is_that_of_its_first_certificate(ours: Authority) -> None:
    leaf = ours.issue("leaf", days=3)
    with Path(leaf.cert).open("a") as chain:
        chain.write(Path(ours.ca).read_text())
    assert leaf.read().expiry == enddate(leaf) < enddate(Certificate(cert=ours.ca, key=""))


async def test_clients_are_served_with_tls_and_their_aborts_are_detected(tmp_path: Path, ours: Authority) -> None:
    leaf = ours.issue("leaf")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *tls_flags(leaf)) as running:
        assert (await running.samples())[EXPIRY] == enddate(leaf)
        url = f"https://127.0.0.1:{running.port}/v1/chat/completions"
        async with trusting(ours) as session:
            async with session.post(url, json=BODY, headers={"x-request-id": "whole"}) as response:
                assert (await response.json())["choices"][0]["message"] == {"content": "hi"}
            async with session.post(url, json={**BODY, "stream": True}, headers={"x-request-id": "left"}) as stream:
                await stream.content.readuntil(b"\n\n")
        await running.logs("whole", "left")
        assert [line["outcome"] for line in running.lines()] == ["ok", "client_abort"]
        with pytest.raises(aiohttp.ClientError):
            await running.ask("without TLS")
        assert await running.stop() == 0
        assert running.log_lines() == [
            (
                f"INFO supervisor: relaying 127.0.0.1:{running.port} (TLS) -> {engine.url}, "
                f"metrics on 127.0.0.1:{running.metrics_port}/metrics"
            ),
            "INFO supervisor: SIGTERM: /readyz fails, no new connections after 0 s, open requests have 15 s more",
            "INFO supervisor: drained",
        ]


async def test_the_metrics_port_alone_can_use_tls_also_after_a_reload_and_for_the_scripts_of_the_pod(
    tmp_path: Path, ours: Authority
) -> None:
    leaf, token = ours.issue("leaf"), tmp_path / "token"
    token.write_text("t0ken")
    flags = (*tls_flags(leaf), "--tls-port", "metrics", "--admin-token-file", str(token))
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *flags) as running, trusting(ours) as session:
        assert await running.ask("without TLS") == 200
        async with session.get(f"{running.pages}/metrics") as response:
            assert f"{EXPIRY[:-2]} " in await response.text()
        ours.issue("leaf", days=90)
        await _reload(running, f"INFO supervisor: certificate reloaded, it expires on {_utc(enddate(leaf))} UTC")
        await shows_certificate(running.metrics_port, ours, leaf)
        for script, *words in (("livez.py", running.pages), ("drain.py", f"{HANG}", running.pages, str(token))):
            process = await asyncio.create_subprocess_exec(sys.executable, "-I", str(SCRIPTS / script), *words)
            assert await process.wait() == 0
        assert await running.stop() == 0


async def test_sighup_reloads_a_renewed_certificate_and_keeps_the_old_one_if_it_is_invalid(
    tmp_path: Path, ours: Authority
) -> None:
    leaf = ours.issue("leaf")
    before = der(leaf)
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *tls_flags(leaf)) as running:
        assert await shown(running.port, ours) == before
        relay = running.relay
        url = f"https://127.0.0.1:{running.port}/v1/chat/completions"
        async with (
            trusting(ours) as session,
            session.post(url, json={**BODY, "stream": True}) as stream,
        ):
            await stream.content.readuntil(b"\n\n")

            key = read(leaf.key)
            ours.issue("leaf", days=90)
            renewed_key = read(leaf.key)
            write(leaf.key, key)  # as during a renewal
            refusal = f"--tls-key: {leaf.key} does not match the certificate in {leaf.cert}"
            assert (await running.samples())[RELOADED] == 1
            await _reload(running, f"ERROR supervisor: {refusal}; keeping the old certificate")
            await running.shows(RELOADED, 0)
            assert await shown(running.port, ours) == before
            assert (await running.samples())[EXPIRY] != enddate(leaf)

            write(leaf.key, renewed_key)
            await _reload(running, f"INFO supervisor: certificate reloaded, it expires on {_utc(enddate(leaf))} UTC")
            await running.shows(EXPIRY, enddate(leaf))
            await running.shows(RELOADED, 1)
            await shows_certificate(running.port, ours, leaf)
            assert der(leaf) != before

            engine.may_finish.set()
            assert (await stream.content.read()).endswith(b"data: [DONE]\n\n")
        assert running.relay == relay


async def _reload(running: Running, line: str) -> None:
    running.process.send_signal(signal.SIGHUP)
    await running.logs_line(line)


def _utc(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


async def test_children_that_restart_while_a_file_is_invalid_use_the_last_valid_certificate(
    tmp_path: Path, ours: Authority
) -> None:
    """Its key is readable by others, which is warned about."""
    leaf = ours.issue("leaf")
    (ours.folder / "leaf.key").chmod(0o644)
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, *tls_flags(leaf), code=START + QUICK_RESTARTS + RUN) as running,
    ):
        assert running.log_lines()[0] == (
            f"WARNING supervisor: --tls-key: {leaf.key} is readable by all users; run: chmod o-r {leaf.key}"
        )
        ours.issue("leaf", days=90)
        renewed, expiry = der(leaf), enddate(leaf)
        await _reload(running, f"INFO supervisor: certificate reloaded, it expires on {_utc(expiry)} UTC")
        await shows_certificate(running.port, ours, leaf)
        write(leaf.key, "")
        await kill_relay(running)
        await running.logs_line(
            f"WARNING supervisor: --tls-key: {leaf.key} {NO_KEY}; relay-0 starts with the last valid certificate"
        )
        await kill_exporter(running)
        assert await shown(running.port, ours) == renewed
        await running.shows(EXPIRY, expiry)
        ours.issue("leaf", days=60)
        await _reload(running, f"INFO supervisor: certificate reloaded, it expires on {_utc(enddate(leaf))} UTC")
        await shows_certificate(running.port, ours, leaf)


def test_a_key_is_in_no_text_and_no_file(ours: Authority) -> None:
    leaf = ours.issue("leaf")
    secret = read(leaf.key)
    certificate = leaf.read()
    assert repr(certificate.key) == f"PemFile({leaf.key!r})"
    assert secret.splitlines()[1] not in repr(certificate)
    with certificate.key.in_memory() as path:
        assert str(Path(path).readlink()).startswith("/memfd:")
        assert read(path) == secret
    assert not Path(path).exists()


async def test_an_engine_with_a_private_authority_is_reached_also_after_restarts_with_an_invalid_file(
    tmp_path: Path, ours: Authority
) -> None:
    engine = Engine(tls=served(ours.issue("engine")))
    code = START + QUICK_RESTARTS + RUN
    async with serving(engine), sidecar(tmp_path, engine.url, "--upstream-ca", ours.ca, code=code) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("before") == 200
        assert "WARNING" not in running.stderr.read_text()
        write(ours.ca, "")
        await kill_relay(running)
        await kill_exporter(running)
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200


async def test_an_engine_with_the_certificate_of_another_host_is_not_reached(tmp_path: Path, ours: Authority) -> None:
    engine = Engine(tls=served(ours.issue("engine", address="127.0.0.2")))
    async with serving(engine), sidecar(tmp_path, engine.url, "--upstream-ca", ours.ca) as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 0)
        async with running.session.post(running.completions, json=BODY) as response:
            error = (await response.json())["error"]
    assert (response.status, error["code"]) == (502, "upstream_unreachable")
    reason = "its certificate is not trusted: IP address mismatch, certificate is not valid for '127.0.0.1'"
    assert error["message"] == f"vllm-slo: the engine at 127.0.0.1:{engine.port} cannot be reached: {reason}"


async def test_an_unverified_engine_is_reached_with_a_warning(tmp_path: Path, ours: Authority) -> None:
    engine = Engine(tls=served(ours.issue("engine", address="127.0.0.2")))
    async with serving(engine), sidecar(tmp_path, engine.url, "--upstream-insecure") as running:
        await running.shows(f"llm_engine_up{{127.0.0.1:{engine.port}}}", 1)
        assert await running.ask("one") == 200
        assert running.log_lines()[0] == (
            "WARNING supervisor: --upstream-insecure: THE ENGINE'S CERTIFICATE IS NOT VERIFIED; "
            "a man in the middle can read all traffic"
        )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with valid and invalid certificates and keys."""
    ours = authority(tmp_path_factory.mktemp("certificates") / "ours")
    leaf = ours.issue("leaf")
    ours.issue("rsa", algorithm="rsa:2048")
    ours.issue("weak", algorithm="rsa:1024")
    (ours.folder / "leaf.der").write_bytes(der(leaf))
    (ours.folder / "corrupt.pem").write_text("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n")
    locked = ["openssl", "pkey", "-in", leaf.key, "-aes256", "-passout", "pass:secret"]
    subprocess.run([*locked, "-out", ours.folder / "locked.key"], check=True, capture_output=True, timeout=HANG)
    return ours.folder


ENGINE, TLS = "http://127.0.0.1:1", "https://127.0.0.1:1"
NO_CERTIFICATE = "contains no PEM certificate (-----BEGIN CERTIFICATE-----)"
NO_KEY = "contains no PEM private key (-----BEGIN PRIVATE KEY-----)"


@pytest.mark.parametrize(
    "words, message",
    [
        ("--tls-cert leaf.pem", "--tls-cert: needs a private key; add --tls-key FILE"),
        ("--tls-key leaf.key", "--tls-key: needs a certificate; add --tls-cert FILE"),
        ("--tls-cert x.pem --tls-key leaf.key", "--tls-cert: x.pem cannot be read: no such file or directory"),
        ("--tls-cert leaf.pem --tls-key x.key", "--tls-key: x.key cannot be read: no such file or directory"),
        ("--tls-cert . --tls-key leaf.key", "--tls-cert: . cannot be read: is a directory"),
        ("--tls-cert leaf.der --tls-key leaf.key", f"--tls-cert: leaf.der {NO_CERTIFICATE}"),
        ("--tls-cert leaf.pem --tls-key leaf.pem", f"--tls-key: leaf.pem {NO_KEY}"),
        (
            "--tls-cert leaf.pem --tls-key authority.key",
            "--tls-key: authority.key does not match the certificate in leaf.pem",
        ),
        ("--tls-cert leaf.pem --tls-key rsa.key", "--tls-key: rsa.key does not match the certificate in leaf.pem"),
        (
            "--tls-cert leaf.pem --tls-key locked.key",
            "--tls-key: locked.key has a passphrase; remove it with: openssl pkey -in locked.key",
        ),
        (
            "--tls-cert corrupt.pem --tls-key leaf.key",
            "--tls-cert: corrupt.pem with leaf.key cannot be used: one of the files is corrupt",
        ),
        (
            "--tls-cert weak.pem --tls-key weak.key",
            "--tls-cert: weak.pem with weak.key cannot be used: ee key too small",
        ),
        (f"--upstream {TLS} --upstream-ca x.pem", "--upstream-ca: x.pem cannot be read: no such file or directory"),
        (f"--upstream {TLS.upper()} --upstream-ca leaf.key", f"--upstream-ca: leaf.key {NO_CERTIFICATE}"),
        (f"--upstream {TLS} --upstream-ca leaf.key", f"--upstream-ca: leaf.key {NO_CERTIFICATE}"),
        (
            f"--upstream {TLS} --upstream-ca corrupt.pem",
            "--upstream-ca: corrupt.pem cannot be used: a certificate in it is corrupt",
        ),
        (
            "--upstream-ca authority.pem",
            f"--upstream-ca: {ENGINE} does not use TLS; write https:// or remove --upstream-ca",
        ),
        (
            "--upstream-insecure",
            f"--upstream-insecure: {ENGINE} does not use TLS; write https:// or remove --upstream-insecure",
        ),
        (
            "--tls-port both",
            "--tls-port both: needs a certificate; add --tls-cert FILE and --tls-key FILE",
        ),
        (
            f"--upstream {TLS} --upstream-insecure --upstream-ca authority.pem",
            "--upstream-insecure: conflicts with --upstream-ca; remove one of them",
        ),
    ],
)
def test_invalid_tls_flags_and_files_are_rejected(
    words: str, message: str, files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(files)
    assert main(["sidecar", "--upstream", ENGINE, *words.split()]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"
