"""`--otlp` and its headers, as written by a person."""

import socket

import pytest

from compose.cli import main
from exporters.configuration import otlp_endpoints
from exporters.configuration.otlp_endpoints import Collector, Receiver
from exporters.errors import UsageError
from tests.support.ports import free_port


@pytest.mark.parametrize(
    "text,url",
    [
        pytest.param("http://c", "http://c:4318/v1/traces", id="HTTP, port and path of its own"),
        pytest.param("http://c:80/", "http://c:80/v1/traces", id="HTTP, empty path"),
        pytest.param("https://c:443/otlp/v1/traces", "https://c:443/otlp/v1/traces", id="HTTP with TLS and a path"),
        pytest.param("grpc://c", "grpc://c:4317", id="gRPC"),
        pytest.param("grpcs://c:443/", "grpcs://c:443", id="gRPC with TLS"),
        pytest.param("grpc://[::1]:4317", "grpc://[::1]:4317", id="IPv6"),
    ],
)
def test_an_address_is_completed(text: str, url: str) -> None:
    assert otlp_endpoints.url(text) == url


NO_ADDRESS = "is no address; write http://127.0.0.1:4318 or grpc://127.0.0.1:4317"


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("localhost:4317", f"--otlp: 'localhost:4317' {NO_ADDRESS}", id="no scheme"),
        pytest.param("tcp://c:4317", f"--otlp: 'tcp://c:4317' {NO_ADDRESS}", id="another scheme"),
        pytest.param("grpc://", f"--otlp: 'grpc://' {NO_ADDRESS}", id="no host"),
        pytest.param("http://c?a=b", f"--otlp: 'http://c?a=b' {NO_ADDRESS}", id="a query"),
        pytest.param(
            "http://c:port",
            "--otlp: 'http://c:port' is no address: Port could not be cast to integer value as 'port'; "
            "write http://127.0.0.1:4318 or grpc://127.0.0.1:4317",
            id="no port",
        ),
        pytest.param(
            "grpc://c:4317/v1/traces",
            "--otlp: 'grpc://c:4317/v1/traces' has a path, which gRPC does not take; leave out '/v1/traces'",
            id="gRPC with a path",
        ),
        pytest.param(
            "http://user:secret@c",
            "--otlp: an address takes no user and password; use --otlp-header 'authorization=Basic ...'",
            id="credentials",
        ),
    ],
)
def test_a_wrong_address_is_refused_with_a_right_one(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.url(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text,receiver",
    [
        pytest.param("grpc://127.0.0.1:4400", Receiver(True, "127.0.0.1", 4400), id="gRPC"),
        pytest.param("grpc://0.0.0.0", Receiver(True, "0.0.0.0", 4317), id="gRPC, its own port"),
        pytest.param("http://127.0.0.1/", Receiver(False, "127.0.0.1", 4318), id="HTTP, its own port"),
        pytest.param("http://[::1]:80/v1/traces", Receiver(False, "::1", 80), id="as the engine has it, IPv6"),
    ],
)
def test_a_receiver_is_where_the_engine_is_told_to_send(text: str, receiver: Receiver) -> None:
    assert otlp_endpoints.receiver(text) == receiver


def test_an_address_to_listen_on_is_written_as_people_do() -> None:
    assert [Receiver(True, host, 1).address for host in ("::1", "h")] == ["[::1]:1", "h:1"]


NOWHERE = "is no address to listen on; write grpc://127.0.0.1:4317 or http://127.0.0.1:4318"


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param("127.0.0.1:4317", f"--engine-spans: '127.0.0.1:4317' {NOWHERE}", id="no scheme"),
        pytest.param("grpc://", f"--engine-spans: 'grpc://' {NOWHERE}", id="no host"),
        pytest.param("http://h/traces", f"--engine-spans: 'http://h/traces' {NOWHERE}", id="another path"),
        pytest.param("grpc://h/v1/traces", f"--engine-spans: 'grpc://h/v1/traces' {NOWHERE}", id="gRPC with a path"),
        pytest.param("http://a:b@h", f"--engine-spans: 'http://a:b@h' {NOWHERE}", id="credentials"),
        pytest.param(
            "grpcs://h",
            "--engine-spans: 'grpcs://h' asks for TLS, which is not offered; "
            "write grpc://127.0.0.1:4317 or http://127.0.0.1:4318",
            id="TLS",
        ),
        pytest.param(
            "http://h:99999",
            "--engine-spans: 'http://h:99999' is no address: Port out of range 0-65535; "
            "write grpc://127.0.0.1:4317 or http://127.0.0.1:4318",
            id="no port",
        ),
    ],
)
def test_what_cannot_be_listened_on_is_refused_with_what_can(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.receiver(text)
    assert str(caught.value) == message


def test_a_receiver_that_is_taken_is_said_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        where = f"127.0.0.1:{listener.getsockname()[1]}"
        for scheme in ("grpc", "http"):
            assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--engine-spans", f"{scheme}://{where}"]) == 2
            assert capsys.readouterr().err == (
                f"vllm-slo: --engine-spans: cannot listen on {where}: address already in use\n"
            )


def test_two_receivers_need_two_ports(capsys: pytest.CaptureFixture[str]) -> None:
    where = f"127.0.0.1:{free_port()}"
    flags = ["--engine-spans", f"grpc://{where}", "--engine-spans", f"http://{where}"]
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", *flags]) == 2
    assert capsys.readouterr().err == f"vllm-slo: --engine-spans: cannot listen on {where}: address already in use\n"


def test_headers_of_flags_win_over_those_of_the_environment_and_keep_their_equals_signs() -> None:
    pairs = ["Authorization=Basic YTpi==", "x-a = b "]
    assert otlp_endpoints.headers(pairs, {"authorization": "old", "x-c": "d"}) == {
        "authorization": "Basic YTpi==",
        "x-a": "b",
        "x-c": "d",
    }


@pytest.mark.parametrize("text", ["token", "=b", "a b=c", "a=b\r\nc: d", "a=ü"])
def test_what_is_no_header_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        otlp_endpoints.headers(["a=b", text], {})
    assert str(caught.value) == (
        "--otlp-header: number 2 is no header (its value is not shown here); "
        "write NAME=VALUE in printable ASCII, such as authorization='Bearer ...'"
    )


def test_a_token_is_in_no_representation() -> None:
    assert "secret" not in repr(Collector(url="grpc://c:4317", headers={"authorization": "Bearer secret"}))


@pytest.mark.parametrize(
    "flags,message",
    [
        pytest.param(["--otlp", "c:1"], f"vllm-slo: --otlp: 'c:1' {NO_ADDRESS}\n", id="wrong address"),
        pytest.param(
            ["--otlp-header", "a=b"],
            "vllm-slo: --otlp-header: there is no collector to send it to; add --otlp URL\n",
            id="headers for nobody",
        ),
        pytest.param(
            ["--otlp", "grpc://c", "--otlp-semconv", "1.0"],
            "vllm-slo: --otlp-semconv: '1.0' is no version known here; use 1.36 or 1.44\n",
            id="a version not known",
        ),
    ],
)
def test_the_command_says_what_is_wrong_and_exits_with_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", *flags]) == 2
    assert capsys.readouterr().err == message
