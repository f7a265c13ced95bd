"""The client of the Prometheus HTTP API, with a fake server on a real socket."""

import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from exporters.analysis.prometheus_api import Alert, Prometheus, QueryError, Sample, Series, UnreachableError
from exporters.text.errors import UsageError
from tests.support.fake_prometheus import FakePrometheus, Handler

Serve = Callable[[Handler], FakePrometheus]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[FakePrometheus] = []

    def start(respond: Handler) -> FakePrometheus:
        started.append(FakePrometheus(respond))
        return started[-1]

    yield start
    for fake in started:
        fake.close()


def success(data: Any, **more: Any) -> tuple[int, Any]:
    return 200, {"status": "success", "data": data, **more}


def vector(*series: tuple[dict[str, str], str]) -> tuple[int, Any]:
    return success(
        {"resultType": "vector", "result": [{"metric": labels, "value": [7, value]} for labels, value in series]}
    )


def test_an_instant_query_gives_labels_and_values(serve: Serve) -> None:
    fake = serve(lambda *_: vector(({"class": "siso"}, "0.5"), ({}, "+Inf")))
    prometheus = Prometheus(fake.url + "/")
    assert prometheus.query("up", 1000.0004) == [Sample({"class": "siso"}, 0.5), Sample({}, float("inf"))]
    assert prometheus.query_by("class", "up") == {"siso": 0.5}
    assert fake.requests == [("/api/v1/query", {"query": "up", "time": "1000.000"}), ("/api/v1/query", {"query": "up"})]


def test_a_range_query_gives_points(serve: Serve) -> None:
    matrix = {"resultType": "matrix", "result": [{"metric": {"a": "b"}, "values": [[10, "1"], [25, "NaN"]]}]}
    fake = serve(lambda *_: success(matrix))
    (series,) = Prometheus(fake.url).query_range("up", 10, 25, 15)
    assert (series.labels, series.points[0], len(series.points)) == ({"a": "b"}, (10.0, 1.0), 2)
    assert isinstance(series, Series)
    assert fake.requests == [
        ("/api/v1/query_range", {"query": "up", "start": "10.000", "end": "25.000", "step": "15"}),
    ]


def test_alerts_have_a_state_and_labels(serve: Serve) -> None:
    fake = serve(lambda *_: success({"alerts": [{"state": "firing", "labels": {"alertname": "A"}, "value": "1"}]}))
    assert Prometheus(fake.url).alerts() == [Alert("firing", {"alertname": "A"})]


def test_warnings_are_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    fake = serve(lambda *_: success({"resultType": "vector", "result": []}, warnings=["a store is down"]))
    with caplog.at_level(logging.WARNING):
        assert Prometheus(fake.url).query("up") == []
    assert caplog.messages == [f"Prometheus at {fake.url}: a store is down"]


@pytest.mark.parametrize(
    "status, body, reason",
    [
        pytest.param(400, {"status": "error", "error": "parse error"}, "parse error", id="a rejected query"),
        pytest.param(502, b"<html>", "HTTP 502 Bad Gateway", id="a response from a proxy"),
        pytest.param(200, b"<html>", "the response is not from Prometheus", id="another server"),
        pytest.param(200, [], "the response is not from Prometheus", id="other JSON"),
        pytest.param(
            200,
            {"data": {"resultType": "scalar", "result": [1, "1"]}},
            "the response is not from Prometheus",
            id="a scalar instead of a vector",
        ),
    ],
)
def test_a_failed_query_has_a_reason(serve: Serve, status: int, body: Any, reason: str) -> None:
    fake = serve(lambda *_: (status, body))
    with pytest.raises(QueryError) as failed:
        Prometheus(fake.url).query("up")
    assert (str(failed.value), failed.value.reason) == (reason, reason)


def test_a_server_that_does_not_respond_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, but never responds
        prometheus = Prometheus(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(QueryError, match=r"^no response within 0\.05 s$"):
            prometheus.query("up")


def test_an_address_where_nothing_listens_is_a_usage_error() -> None:
    with socket.socket() as bound:  # bound but not listening, so connections are refused
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(UnreachableError) as failed:
            Prometheus(url).query("up")
    assert isinstance(failed.value, UsageError)
    assert failed.value.reason == "connection refused"
    assert str(failed.value) == (
        f"cannot reach Prometheus at {url}: connection refused; "
        "set --prometheus to its address, such as http://127.0.0.1:9090"
    )


def test_a_proxy_from_the_environment_is_not_used_for_loopback_addresses(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    fake = serve(lambda *_: vector())
    assert Prometheus(fake.url).query("up") == []
