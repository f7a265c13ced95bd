"""The flags about OTLP: URLs, headers and versions, valid and invalid."""

import pytest

from compose.cli import main
from exporters.configuration import otlp_endpoints
from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.sidecar.supervision import listeners
from exporters.text.errors import UsageError
from tests.support.ports import busy_port, free_port


@pytest.mark.parametrize(
    "text,url",
    [
        pytest.param("http://c", "http://c:4318/v1/traces", id="HTTP, default port and path"),
        pytest.param("http://c:80/", "http://c:80/v1/traces", id="HTTP, empty path"),
        pytest.param("https://c:443/otlp/v1/traces", "https://c:443/otlp/v1/traces", id="HTTP with TLS and a path"),
        pytest.param("grpc://c", "grpc://c:4317", id="gRPC"),
        pytest.param("grpcs://c:443/", "grpcs://c:443", id="gRPC with TLS"),
        pytest.param("grpc://[::1]:4317", "grpc://[::1]:4317", id="IPv6"),
    ],
)
def test_a_collector_url_is_completed_with_port_and_path(text: str, url: str) -> None:
    assert otlp_endpoints.url(text) == url


INVALID = "is not a valid URL"
COLLECTORS = "write http://127.0.0.1:4318 or grpc://127.0.0.1:4317"
RECEIVERS = "write grpc://127.0.0.1:4317 or http://127.0.0.1:4318"


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("localhost:4317", f"'localhost:4317' {INVALID}; {COLLECTORS}", id="no scheme"),
        pytest.param("tcp://c:4317", f"'tcp://c:4317' {INVALID}; {COLLECTORS}", id="unknown scheme"),
        pytest.param("grpc://", f"'grpc://' {INVALID}; {COLLECTORS}", id="no host"),
        pytest.param("http://c?a=b", f"'http://c?a=b' {INVALID}; {COLLECTORS}", id="a query"),
        pytest.param(
            "http://c:port",
            f"'http://c:port' {INVALID}: Port could not be cast to integer value as 'port'; {COLLECTORS}",
            id="an invalid port",
        ),
        pytest.param(
            "grpc://c:4317/v1/traces",
            "'grpc://c:4317/v1/traces' has a path, but gRPC takes none; remove '/v1/traces'",
            id="gRPC with a path",
        ),
        *(
            pytest.param(
                f"{scheme}://user:secret@{host}",
                "the URL contains credentials; use --otlp-header 'authorization=Basic ...' instead",
                id=f"credentials in {scheme}://{host}",
            )
            for scheme, host in (("http", "c"), ("tcp", "c"), ("http", "c:port"))
        ),
    ],
)
def test_an_invalid_collector_url_is_rejected_with_an_example(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.url(text)
    assert str(caught.value) == f"--otlp: {message}"


@pytest.mark.parametrize(
    "text,receiver",
    [
        pytest.param("grpc://127.0.0.1:4400", Receiver(True, "127.0.0.1", 4400), id="gRPC"),
        pytest.param("grpc://0.0.0.0", Receiver(True, "0.0.0.0", 4317), id="gRPC, default port"),
        pytest.param("http://127.0.0.1/", Receiver(False, "127.0.0.1", 4318), id="HTTP, default port"),
        pytest.param("http://[::1]:80/v1/traces", Receiver(False, "::1", 80), id="HTTP with a path, IPv6"),
    ],
)
def test_a_receiver_url_has_default_ports(text: str, receiver: Receiver) -> None:
    assert otlp_endpoints.receiver(text) == receiver


def test_a_receiver_address_is_formatted_with_brackets_for_ipv6() -> None:
    assert [Receiver(True, host, 1).address for host in ("::1", "h")] == ["[::1]:1", "h:1"]


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("127.0.0.1:4317", f"'127.0.0.1:4317' {INVALID}", id="no scheme"),
        pytest.param("grpc://", f"'grpc://' {INVALID}", id="no host"),
        pytest.param("http://h:99999", f"'http://h:99999' {INVALID}: Port out of range 0-65535", id="an invalid port"),
        pytest.param("http://h/traces", "cannot listen on 'http://h/traces'", id="another path"),
        pytest.param("grpc://h/v1/traces", "cannot listen on 'grpc://h/v1/traces'", id="gRPC with a path"),
        pytest.param("http://a:b@h", "cannot listen on 'http://a:b@h'", id="credentials"),
        pytest.param("grpcs://h", "'grpcs://h' requires TLS, which is not supported", id="TLS"),
    ],
)
def test_an_invalid_receiver_url_is_rejected_with_an_example(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.receiver(text)
    assert str(caught.value) == f"--engine-spans: {message}; {RECEIVERS}"


def test_a_port_that_is_in_use_or_given_twice_is_reported_before_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(listeners, "TAKEOVER_SECONDS", 0.0)
    with busy_port() as busy:
        free = free_port()
        for port, schemes in ((busy, ["grpc"]), (busy, ["http"]), (free, ["grpc", "http"])):
            words = [word for scheme in schemes for word in ("--engine-spans", f"{scheme}://127.0.0.1:{port}")]
            assert main(["sidecar", "--upstream", "http://127.0.0.1:1", *words]) == 2
            assert capsys.readouterr().err == (
                f"vllm-slo: --engine-spans: cannot listen on 127.0.0.1:{port}: address already in use\n"
            )


def test_header_flags_override_the_environment_and_values_may_contain_equals_signs() -> None:
    pairs = ["Authorization=Basic YTpi==", "x-a = b "]
    assert otlp_endpoints.headers(pairs, {"authorization": "old", "x-c": "d"}) == {
        "authorization": "Basic YTpi==",
        "x-a": "b",
        "x-c": "d",
    }


@pytest.mark.parametrize("text", ["token", "=b", "a b=c", "a=b\r\nc: d", "a=ü"])
def test_an_invalid_header_is_rejected_without_its_value(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.headers(["a=b", text], {})
    assert str(caught.value) == (
        "--otlp-header: header number 2 is invalid (its value is not shown); "
        "write NAME=VALUE in printable ASCII, such as authorization='Bearer ...'"
    )


def test_the_repr_contains_no_token() -> None:
    assert "secret" not in repr(Collector(url="grpc://c:4317", headers={"authorization": "Bearer secret"}))
