"""An engine is named by --engine-name, by the host at a loopback address, else by its address."""

import socket

import pytest

from exporters.engines.names import named_targets
from tests.support.command_line import CommandLine

A, B = "http://127.0.0.1:8001/metrics", "http://127.0.0.1:8002/metrics?x=y"


@pytest.mark.parametrize(
    "upstream,metrics,flags,expected",
    [
        pytest.param("http://vllm:8000", (), (), ["vllm:8000"], id="an address"),
        pytest.param("http://127.0.0.1:8000", (), (), ["host-7:8000"], id="a loopback address"),
        pytest.param("http://[::1]:8000", (), (), ["host-7:8000"], id="a loopback address of IPv6"),
        pytest.param("http://localhost", (), (), ["host-7"], id="a loopback address without a port"),
        pytest.param("http://gw", ("http://127.0.0.1:8001/metrics",), (), ["host-7:8001"], id="metrics at loopback"),
        pytest.param("http://127.0.0.1:8000", (), ("http://127.0.0.1:8000=a",), ["a"], id="a name"),
        pytest.param("http://gw", (A, B), (), ["127.0.0.1:8001", "127.0.0.1:8002"], id="several engines"),
        pytest.param(
            "http://gw", (A, B), (f"{B}=b", f"{A}=ns/vllm-0:8000"), ["ns/vllm-0:8000", "b"], id="several names"
        ),
        pytest.param("http://gw", (A, B), (f"{B}=b",), ["127.0.0.1:8001", "b"], id="a name for one of several"),
    ],
)
def test_names(
    monkeypatch: pytest.MonkeyPatch,
    upstream: str,
    metrics: tuple[str, ...],
    flags: tuple[str, ...],
    expected: list[str],
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "host-7")
    assert [each.name for each in named_targets(upstream, metrics, flags)] == expected


def test_all_mistakes_in_names_are_reported_in_one_run(cli: CommandLine) -> None:
    names = ("vllm-0", "http://c=c", f"{A}=a", f"{A}=b", f"{B}=a b")
    flags = [f"--engine-metrics={url}" for url in (A, B)] + [f"--engine-name={name}" for name in names]
    form = "is not URL=NAME, such as http://127.0.0.1:8000=vllm-0; use letters, digits and _.:/- in the name"
    assert cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", *flags).splitlines() == [
        f"--engine-name: 'vllm-0' {form}",
        f"--engine-name: 'http://c' is not an engine of this sidecar; known: {A}, {B}",
        f"--engine-name: {A!r} has two names, 'a' and 'b'; keep one",
        f"--engine-name: {f'{B}=a b'!r} {form}",
    ]


@pytest.mark.parametrize(
    "names",
    [pytest.param((f"{A}=a", f"{B}=a"), id="given twice"), pytest.param((f"{A}=127.0.0.1:8002",), id="default")],
)
def test_two_engines_with_one_name_are_rejected(names: tuple[str, ...], cli: CommandLine) -> None:
    flags = [f"--engine-metrics={url}" for url in (A, B)] + [f"--engine-name={name}" for name in names]
    refused = cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", *flags)
    assert refused == f"--engine-name: {names[0].rpartition('=')[2]!r} is the name of 2 engines; give each its own"
