"""The check of the target before a run says what is wrong and what to do."""

import ssl
from pathlib import Path
from typing import Any

import pytest

from exporters.text.errors import UsageError
from loadgen.client.http_client import HttpClient
from loadgen.client.target import API_KEY
from loadgen.run import preflight
from loadgen.run import settings as run_settings
from loadgen.run.store import ResultStore
from tests.exporters.configuration.certificates import authority, needs_openssl
from tests.loadgen.canned_server import canned_server, http
from tests.loadgen.run_flags import parsed, refusal

KEY = "sk-hidden-0123456789"
SKIP = "set --no-check and --model"


def find_model(url: str, *flags: str, environment: dict[str, str] | None = None) -> str:
    arguments: Any = parsed("--scenario", "mixed", "--target", url, "--out", "results", *flags)
    settings = run_settings.from_arguments(arguments, environment or {})
    return preflight.find_model(settings, HttpClient(settings.target))


@pytest.mark.parametrize(
    "response, message",
    [
        pytest.param(
            http("404 Not Found", '{"detail":"Not Found"}'),
            "/v1/models returned 404: {'detail': 'Not Found'}; check the path of the URL, or " + SKIP,
            id="wrong path",
        ),
        pytest.param(
            http("401 Unauthorized", '{"error":"Unauthorized"}'),
            "/v1/models returned 401: Unauthorized; set --api-key-file or VLLM_SLO_API_KEY",
            id="no key",
        ),
        pytest.param(
            http("403 Forbidden", ""),
            "/v1/models returned 403: no text; set --api-key-file or VLLM_SLO_API_KEY",
            id="no key and no text",
        ),
        pytest.param(
            http("503 Service Unavailable", "no\x1b[2J upstream\n"),
            f"/v1/models returned 503: no [2J upstream; wait until it is ready, or {SKIP}",
            id="not ready; its text cannot change the terminal",
        ),
        pytest.param(
            http("301 Moved Permanently", "", "location: https://127.0.0.1/v1/models"),
            "/v1/models returned 301: no text; redirects are not followed: set the URL of https://127.0.0.1/v1/models",
            id="redirect",
        ),
        pytest.param(
            http("200 OK", "<html><body>welcome</body></html>", "content-type: text/html"),
            "/v1/models is not a list of models but '<html><body>welcome</body></html>'; set the base URL of an "
            f"OpenAI-compatible API, or {SKIP}",
            id="HTML",
        ),
        pytest.param(http("200 OK", '{"data":[]}'), f"/v1/models lists no model; start it, or {SKIP}", id="no model"),
        pytest.param(
            b"\x16\x03\x01garbage\r\n\r\n",
            "not an HTTP/1.1 server: invalid HTTP: the status line is malformed; the response starts with "
            "'\\x16\\x03\\x01garbage'",
            id="garbage",
        ),
        pytest.param(b"", f"no response: the connection was closed; start it, or {SKIP}", id="closed"),
    ],
)
def test_a_target_that_cannot_be_used_is_refused(response: bytes, message: str) -> None:
    with canned_server(response) as (url, _), pytest.raises(UsageError) as refusal:
        find_model(url)
    assert str(refusal.value) == f"--target {url}: {message}"


def test_a_model_that_is_not_served_is_refused() -> None:
    with canned_server(http("200 OK", '{"data":[{"id":"m"}]}')) as (url, _), pytest.raises(UsageError) as refusal:
        find_model(url, "--model", "other")
    assert str(refusal.value) == f"--model other: not served by {url}; known: m"


def test_a_folder_that_contains_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").touch()
    arguments: Any = parsed("--scenario", "mixed", "--target", "http://127.0.0.1:1", "--out", str(tmp_path))
    assert (
        refusal(lambda: ResultStore(run_settings.from_arguments(arguments, {}), "m", "0"))
        == f"--out {tmp_path}: already contains a run; choose another folder or delete it"
    )


def test_the_api_key_comes_from_the_file_or_else_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")
    environment = {API_KEY: "sk-of-the-environment"}
    with canned_server(http("200 OK", '{"data":[{"id":"m"}]}')) as (url, heads):
        assert find_model(url, "--api-key-file", str(tmp_path / "key"), environment=environment) == "m"
        assert find_model(url, environment=environment) == "m"
        assert find_model(url, environment={API_KEY: ""}) == "m"
    sent = [[line for line in head.split("\r\n") if line.startswith("authorization")] for head in heads]
    assert sent == [[f"authorization: Bearer {KEY}"], ["authorization: Bearer sk-of-the-environment"], []]


def test_a_key_that_is_not_accepted_does_not_appear_in_the_message() -> None:
    response = http("401 Unauthorized", f'{{"error":{{"message":"Incorrect API key provided: {KEY}"}}}}')
    with canned_server(response) as (url, _), pytest.raises(UsageError) as refusal:
        find_model(url, environment={API_KEY: KEY})
    assert str(refusal.value) == (
        f"--target {url}: /v1/models returned 401: Incorrect API key provided: <API key>; the target does not accept "
        "the key of --api-key-file or VLLM_SLO_API_KEY"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        pytest.param(None, "--api-key-file: {} cannot be read: no such file or directory", id="no file"),
        pytest.param("two words", "--api-key-file: {}: a key is one word of printable ASCII", id="two words"),
        pytest.param("", "--api-key-file: {}: a key is one word of printable ASCII", id="empty"),
    ],
)
def test_an_invalid_key_file_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "key"
    if text is not None:
        path.write_text(text)
    assert refusal(lambda: find_model("http://127.0.0.1:1", "--api-key-file", str(path))) == message.format(path)


def test_an_invalid_key_in_the_environment_is_refused_without_showing_it() -> None:
    assert (
        refusal(lambda: find_model("http://127.0.0.1:1", environment={API_KEY: "se\u00a0cret"}))
        == "VLLM_SLO_API_KEY: a key is one word of printable ASCII"
    )


def test_the_settings_do_not_show_the_key() -> None:
    arguments: Any = parsed("--scenario", "mixed", "--target", "https://127.0.0.1:1", "--out", "results")
    settings = run_settings.from_arguments(arguments, {API_KEY: KEY})
    assert settings.target.api_key == KEY
    assert KEY not in repr(settings)
    assert KEY not in str(settings.target)


@pytest.mark.parametrize(
    "url, text, message",
    [
        pytest.param("https://127.0.0.1:1", None, "{} cannot be read: no such file or directory", id="no file"),
        pytest.param(
            "https://127.0.0.1:1", "x", "{} contains no PEM certificate (-----BEGIN CERTIFICATE-----)", id="not PEM"
        ),
        pytest.param(
            "https://127.0.0.1:1",
            "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
            "cannot be used: a certificate in it is corrupt",
            id="corrupt",
        ),
        pytest.param(
            "http://127.0.0.1:1",
            "x",
            "http://127.0.0.1:1 is not an https URL; remove the flag, or write https",
            id="no TLS",
        ),
    ],
)
def test_an_unusable_ca_file_is_refused(tmp_path: Path, url: str, text: str | None, message: str) -> None:
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    assert refusal(lambda: find_model(url, "--target-ca", str(path))) == f"--target-ca: {message.format(path)}"


@needs_openssl
def test_a_certificate_of_a_private_authority_needs_its_ca(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ours")
    certificate = ours.issue("server")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.cert, certificate.key)
    with canned_server(http("200 OK", '{"data":[{"id":"m"}]}'), context) as (url, _):
        assert refusal(lambda: find_model(url)) == (
            f"--target {url}: cannot connect to {url}: its certificate is not trusted: unable to get local issuer "
            "certificate; set --target-ca to its CA certificates"
        )
        assert find_model(url, "--target-ca", ours.ca) == "m"
