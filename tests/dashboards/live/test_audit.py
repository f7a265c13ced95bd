"""The audit against a small fake Prometheus over a real socket."""

import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from compose.cli import main
from dashboards.command import GENERATED, MOST_PROBLEMS
from dashboards.live.audit import Finding, Measurement
from dashboards.live.reader import Check, QueryType, checks_of
from exporters.analysis.label_collisions import COST, Collision
from exporters.analysis.prometheus_api import Prometheus
from tests.support.fake_prometheus import FakePrometheus, Handler

Serve = Callable[[Handler], FakePrometheus]
OUTCOMES = "sum by (outcome) (rate(llm_requests_total"
"""How the query of the panel *Outcomes* starts."""


@pytest.fixture
def prometheus() -> Iterator[Serve]:
    with ExitStack() as stack:
        yield lambda respond: stack.enter_context(FakePrometheus(respond, labels=[]))


def one_series(path: str, value: str = "1") -> tuple[int, Any]:
    """One series with two samples, in the response format of `path`."""
    if path == "/api/v1/query_range":
        data: Any = {"resultType": "matrix", "result": [{"metric": {}, "values": [[0, value], [15, value]]}]}
    elif path == "/api/v1/query":
        data = {"resultType": "vector", "result": [{"metric": {}, "value": [0, value]}]}
    else:
        data = ["siso", "lilo"]
    return 200, {"status": "success", "data": data}


def no_series(path: str) -> tuple[int, Any]:
    status, body = one_series(path)
    body["data"] = [] if isinstance(body["data"], list) else {**body["data"], "result": []}
    return status, body


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal in which the table is not truncated."""
    monkeypatch.setenv("COLUMNS", "220")


def run(url: str, *flags: str) -> int:
    """Audit the first dashboard, or those of a folder among the flags."""
    with TemporaryDirectory() as folder:
        shutil.copy(GENERATED / "slo-overview.json", folder)
        return main(["dashboards", "audit", "--prometheus", url, "--dashboards", folder, *flags])


def row(text: str, panel: str) -> list[str]:
    """The cells of a panel's row: dashboard, panel, ref, series, samples, seconds, verdict."""
    (line,) = [line for line in text.splitlines() if panel in line]
    return [cell.strip() for cell in line.split("│")[1:-1]]


def test_the_audit_succeeds_if_every_query_has_data(prometheus: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url, "--verbose") == 0
    printed = capsys.readouterr().out
    queries = [*checks_of(json.loads((GENERATED / "slo-overview.json").read_text(encoding="utf-8")))]
    # a variable over a query result is also read for its value
    result_variables = [check for check in queries if check.query_type is QueryType.QUERY_RESULT]
    assert len(fake.requests) == len(queries) + len(result_variables)
    assert f"{len(queries)} queries, 0 empty or failing, 0 slower than 1s" in printed
    assert row(printed, "Outcomes")[:5] == ["SLO overview", "Outcomes", "A", "1", "2"]


def test_queries_are_sent_as_by_grafana_with_every_variable_expanded(prometheus: Serve) -> None:
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url, "--since", "1000", "--until", "1600", "--scrape-interval", "1s") == 0
    requests = {path: [params for where, params in fake.requests if where == path] for path, _ in fake.requests}
    assert {"match[]": 'llm_engine_up{instance=~".*"}', "start": "1000.000", "end": "1600.000"} in requests[
        "/api/v1/label/engine/values"
    ]
    assert {(params["start"], params["end"], params["step"]) for params in requests["/api/v1/query_range"]} == {
        # panels and annotations, by their minimum interval
        ("1000.000", "1600.000", "15"),
        # annotations whose value is a time
        ("1000.000", "1600.000", "60"),
    }
    assert {params["time"] for params in requests["/api/v1/query"]} == {"1600.000"}
    queries = [params["query"] for way in ("query", "query_range") for params in requests[f"/api/v1/{way}"]]
    assert not [query for query in queries if re.search(r"\$\D", query)]
    assert [query for query in queries if '{model=~".*",class=~".*",instance=~".*"}[600000ms]' in query]


def test_a_slow_query_is_flagged_and_fails_only_with_strict(
    prometheus: Serve, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(prometheus: Prometheus, path: str, params: dict[str, str]) -> Measurement:
        return Measurement(1, 2, 1.25 if OUTCOMES in params.get("query", "") else 0.0)

    monkeypatch.setattr("dashboards.live.audit.measure", measure)
    url = prometheus(lambda path, _: one_series(path)).url
    assert run(url, "--verbose") == 0
    *table, board, together = capsys.readouterr().out.splitlines()
    assert row("\n".join(table), "Outcomes")[5:] == ["1.250", "ok, slow"]
    assert re.fullmatch(r"SLO overview: \d+ queries, 1\.25 s", board)
    assert together.endswith(" queries, 0 empty or failing, 1 slower than 1s")
    assert run(url, "--strict") == 1
    assert run(url, "--strict", "--slow", "2s") == 0


@pytest.mark.parametrize(
    "respond, verdict",
    [
        pytest.param(no_series, "empty", id="empty"),
        pytest.param(lambda path: one_series(path, "NaN"), "empty: only NaN", id="NaN"),
        pytest.param(lambda _: (400, {"error": "parse error"}), "failed: parse error", id="rejected"),
        pytest.param(lambda _: (502, b"<html>"), "failed: HTTP 502 Bad Gateway", id="error page of a proxy"),
        pytest.param(lambda _: (200, b"<html>"), "failed: the response is not from Prometheus", id="another server"),
    ],
)
def test_a_query_that_fails_or_returns_no_data_fails_the_audit_with_the_reason(
    prometheus: Serve, capsys: pytest.CaptureFixture[str], respond: Callable[[str], tuple[int, Any]], verdict: str
) -> None:
    fake = prometheus(lambda path, params: (respond if OUTCOMES in params.get("query", "") else one_series)(path))
    assert run(fake.url) == 1
    problem, count = capsys.readouterr().out.splitlines()
    assert problem == f"SLO overview: Outcomes (A): {verdict}"
    assert "1 empty or failing" in count


def test_many_problems_fit_a_screen(prometheus: Serve, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(prometheus(lambda path, _: no_series(path)).url) == 1
    *problems, more, count = capsys.readouterr().out.splitlines()
    assert len(problems) == MOST_PROBLEMS
    failed = int(re.search(r"(\d+) empty or failing", count)[1])  # type: ignore[index]
    assert more == f"... and {failed - MOST_PROBLEMS} more: --verbose"


def test_a_label_that_a_target_hides_fails_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    def respond(path: str, params: dict[str, str]) -> tuple[int, Any]:
        series = {"metric": {"__name__": "llm_requests_total", "job": "llm"}, "value": [0, "1"]}
        collided = "exported_pod" in params.get("query", "")
        return (200, {"data": {"resultType": "vector", "result": [series]}}) if collided else one_series(path)

    with FakePrometheus(respond, labels=["exported_pod", "pod"]) as fake:
        assert run(fake.url) == 1
    *_, count, message = capsys.readouterr().out.splitlines()
    assert "0 empty or failing" in count
    collision = Collision("pod", ["llm_requests_total"], ["llm"])
    assert message == f"{collision.found}; {COST}; {collision.fix}"


def test_a_server_without_label_names_passes_with_a_remark(capsys: pytest.CaptureFixture[str]) -> None:
    def respond(path: str, _: dict[str, str]) -> tuple[int, Any]:
        return (404, b"") if path == "/api/v1/labels" else one_series(path)

    with FakePrometheus(respond) as fake:
        assert run(fake.url) == 0
    assert capsys.readouterr().out.endswith("\nexported_* labels: not checked: HTTP 404 Not Found\n")


def test_an_allowed_empty_query_has_a_reason_and_fails_only_with_strict(
    prometheus: Serve, capsys: pytest.CaptureFixture[str]
) -> None:
    def quiet(path: str, params: dict[str, str]) -> tuple[int, Any]:
        query = params.get("query", "")
        # Firing alerts has a row, and the verdict a sentence, if none fires
        nothing_fires = "ALERTS" in query and "absent" not in query and "count_values" not in query
        return no_series(path) if nothing_fires or "config_change" in query else one_series(path)

    fake = prometheus(quiet)
    assert run(fake.url, "--verbose") == 0
    printed = capsys.readouterr().out
    verdicts = [line.split("│")[-2].strip() for line in printed.splitlines() if "SLO status" in line]
    assert verdicts.count("empty, allowed: no budget burns, or there is no traffic") == 2
    assert row(printed, "annotation Config changes")[-1] == "empty, allowed: no event in the time range"
    assert run(fake.url, "--strict") == 1
    assert "6 empty or failing" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["audit", "preview"])
def test_an_unreachable_prometheus_is_one_message(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    # bound but not listening, so that the port refuses connections
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert main(["dashboards", command, "--prometheus", url]) == 3
    assert capsys.readouterr().err == (
        f"vllm-slo: cannot reach Prometheus at {url}: connection refused; "
        "set --prometheus to its address, such as http://127.0.0.1:9090\n"
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(
            ["--prometheus", "localhost:9090"],
            "--prometheus: 'localhost:9090' is not a valid URL; write one such as http://127.0.0.1:9090",
            id="no scheme",
        ),
        pytest.param(
            ["--since", "soon"],
            "--since: 'soon' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
            id="no duration",
        ),
        pytest.param(
            ["--until", "noon"],
            "--until: 'noon' is not a valid time; write unix seconds or RFC 3339, such as 2026-01-31T12:00:00Z",
            id="no time",
        ),
        pytest.param(
            ["--since", "2026-01-31T12:00:00+00:00", "--until", "1000"],
            "--since: must be before --until",
            id="backwards",
        ),
    ],
)
def test_a_wrong_flag_is_one_message(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", *flags) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


def test_a_folder_without_dashboards_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", "--dashboards", str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {tmp_path}: contains no dashboard; write one with: vllm-slo dashboards render --out {tmp_path}\n"
    )


def test_a_file_that_is_not_a_dashboard_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text('{"spec": {}}')
    assert run("http://127.0.0.1:9", "--dashboards", str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {tmp_path / 'other.json'}: is not a dashboard of the classic schema: it has no panels\n"
    )


def test_panels_inside_collapsed_rows_are_audited_and_other_datasources_are_not() -> None:
    page = {
        "title": "T",
        "panels": [
            {
                "type": "row",
                "panels": [
                    {"title": "in", "targets": [{"refId": "A", "expr": "up", "instant": True}]},
                    {"title": "logs", "datasource": {"type": "loki"}, "targets": [{"refId": "A", "expr": "{a=1}"}]},
                ],
            }
        ],
    }
    assert list(checks_of(page)) == [Check("T", "in", "A", "up", QueryType.INSTANT, {})]


@pytest.mark.parametrize(
    "limits, step",
    [
        pytest.param({}, "15", id="the scrape interval"),
        pytest.param({"interval": "1m"}, "60", id="the minimum interval of the panel"),
        pytest.param({"maxDataPoints": 100}, "36", id="the points of the panel"),
        pytest.param({"interval": "1m", "maxDataPoints": 100}, "60", id="the longer of both"),
    ],
)
def test_a_range_query_has_the_step_of_its_panel(
    tmp_path: Path, prometheus: Serve, limits: dict[str, object], step: str
) -> None:
    panel = {"title": "P", "targets": [{"refId": "A", "expr": "up > $__interval_ms"}], **limits}
    (tmp_path / "page.json").write_text(json.dumps({"title": "T", "panels": [panel]}))
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url, "--dashboards", str(tmp_path), "--since", "1h") == 0
    (request,) = fake.requests
    assert (request[1]["query"], request[1]["step"]) == (f"up > {step}000", step)


def run_on(folder: Path, url: str, query: str, **variables: str) -> int:
    """Audit a dashboard with one query, and with variables over the results of queries."""
    variable_list = [
        {"name": name, "type": "query", "query": {"query": f"query_result({text})"}, "current": {"value": "0"}}
        for name, text in variables.items()
    ]
    panel = {"title": "P", "targets": [{"refId": "A", "expr": query, "instant": True}]}
    page = {"title": "T", "templating": {"list": variable_list}, "panels": [panel]}
    (folder / "page.json").write_text(json.dumps(page))
    return run(url, "--dashboards", str(folder))


def test_a_query_with_an_unknown_variable_fails_without_a_request(tmp_path: Path, prometheus: Serve) -> None:
    fake = prometheus(lambda path, _: one_series(path))
    assert run_on(tmp_path, fake.url, "up[$nope]") == 1
    assert fake.requests == []


def test_a_failed_query_of_a_panel_that_may_be_empty_fails() -> None:
    check = Check("T", "P", "A", "up", QueryType.INSTANT, {}, may_be_empty="nothing fires")
    assert Finding(check, Measurement(0, 0, 0.0, "boom")).fails(strict=False)


def test_a_query_result_variable_has_its_first_value_in_every_later_query(tmp_path: Path, prometheus: Serve) -> None:
    def respond(path: str, params: dict[str, str]) -> tuple[int, Any]:
        number = {"scalar(changes)": "5", "scalar(ends > 5)": "6"}.get(params["query"])
        return one_series(path) if number is None else (200, {"data": {"resultType": "scalar", "result": [0, number]}})

    fake = prometheus(respond)
    variables = {"change": "scalar(changes)", "end": "scalar(ends > $change)"}
    assert run_on(tmp_path, fake.url, "up @ $change + up @ $end", **variables) == 0
    queries = {params["query"] for _, params in fake.requests}
    assert queries == {"scalar(changes)", "scalar(ends > 5)", "up @ 5 + up @ 6"}


def test_an_empty_query_result_keeps_the_value_of_the_file(tmp_path: Path, prometheus: Serve) -> None:
    fake = prometheus(lambda path, params: no_series(path) if params["query"] == "changes" else one_series(path))
    # the variable itself is empty
    assert run_on(tmp_path, fake.url, "up @ $change", change="changes") == 1
    assert "up @ 0" in {params["query"] for _, params in fake.requests}
