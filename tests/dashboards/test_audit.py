"""The audit against a small fake Prometheus over a real socket."""

import json
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from compose.cli import main
from dashboards.audit import Finding, Measurement
from dashboards.command import GENERATED
from dashboards.dashboard_reader import Check, QueryType, checks_of
from exporters.prometheus_api import Prometheus
from tests.support.fake_prometheus import FakePrometheus, Handler


@pytest.fixture
def prometheus() -> Iterator[Callable[[Handler], FakePrometheus]]:
    started: list[FakePrometheus] = []

    def start(answer: Handler) -> FakePrometheus:
        started.append(FakePrometheus(answer))
        return started[-1]

    yield start
    for fake in started:
        fake.close()


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
    status, answer = one_series(path)
    answer["data"] = [] if isinstance(answer["data"], list) else {**answer["data"], "result": []}
    return status, answer


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that cuts no cell of the table."""
    monkeypatch.setenv("COLUMNS", "220")


def run(url: str, *flags: str) -> int:
    """Audit the first dashboard, or those of a folder among the flags."""
    with TemporaryDirectory() as folder:
        shutil.copy(GENERATED / "slo-overview.json", folder)
        return main(["dashboards", "audit", "--prometheus", url, "--dashboards", folder, *flags])


def row(text: str, panel: str) -> str:
    (line,) = [line for line in text.splitlines() if panel in line]
    return line


@pytest.mark.usefixtures("wide")
def test_when_every_query_has_data_all_is_well(
    prometheus: Callable[[Handler], FakePrometheus], capsys: pytest.CaptureFixture[str]
) -> None:
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url) == 0
    printed = capsys.readouterr().out
    queries = [*checks_of(json.loads((GENERATED / "slo-overview.json").read_text(encoding="utf-8")))]
    assert len(fake.requests) == len(queries)
    assert f"{len(queries)} queries, 0 empty or failing, 0 slower than 1s" in printed
    assert [cell.strip() for cell in row(printed, "Burn rate").split("│")[1:-1]][:5] == [
        "SLO overview",
        "Burn rate",
        "A",
        "1",
        "2",
    ]


def test_a_query_is_sent_as_grafana_sends_it_with_every_variable_expanded(
    prometheus: Callable[[Handler], FakePrometheus],
) -> None:
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url, "--from", "1000", "--to", "1600", "--scrape-interval", "1s") == 0
    requests = {path: [params for where, params in fake.requests if where == path] for path, _ in fake.requests}
    assert {"match[]": 'llm_requests_in_flight{model=~".*"}', "start": "1000.000", "end": "1600.000"} in requests[
        "/api/v1/label/class/values"
    ]
    assert {(params["start"], params["end"], params["step"]) for params in requests["/api/v1/query_range"]} == {
        ("1000.000", "1600.000", "2")
    }
    assert {params["time"] for params in requests["/api/v1/query"]} == {"1600.000"}
    queries = [params["query"] for way in ("query", "query_range") for params in requests[f"/api/v1/{way}"]]
    assert not [query for query in queries if "$" in query]
    assert [query for query in queries if '{model=~".*",class=~".*"}[600000ms]' in query]


@pytest.mark.usefixtures("wide")
def test_a_slow_query_is_flagged_and_fails_only_with_strict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(prometheus: Prometheus, path: str, params: dict[str, str]) -> Measurement:
        return Measurement(1, 2, 1.25 if "llm_slo:burn_rate{" in params.get("query", "") else 0.0)

    monkeypatch.setattr("dashboards.audit.measure", measure)
    assert run("http://prometheus") == 0
    *table, board, together = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in row("\n".join(table), "Burn rate").split("│")[-3:-1]] == ["1.250", "ok, slow"]
    assert re.fullmatch(r"SLO overview: \d+ queries, 1\.25 s", board)
    assert together.endswith(" queries, 0 empty or failing, 1 slower than 1s")
    assert run("http://prometheus", "--strict") == 1
    assert run("http://prometheus", "--strict", "--slow", "2s") == 0


@pytest.mark.usefixtures("wide")
def test_an_empty_panel_fails_the_audit(
    prometheus: Callable[[Handler], FakePrometheus], capsys: pytest.CaptureFixture[str]
) -> None:
    def no_burn_rate(path: str, params: dict[str, str]) -> tuple[int, Any]:
        return no_series(path) if "burn_rate" in params.get("query", "") else one_series(path)

    assert run(prometheus(no_burn_rate).url) == 1
    printed = capsys.readouterr().out
    assert row(printed, "Burn rate").split("│")[-2].strip() == "empty"
    assert "1 empty or failing" in printed


def test_an_empty_variable_fails_the_audit(prometheus: Callable[[Handler], FakePrometheus]) -> None:
    assert run(prometheus(lambda path, _: no_series(path) if "label" in path else one_series(path)).url) == 1


@pytest.mark.usefixtures("wide")
def test_a_panel_of_only_nan_is_empty(
    prometheus: Callable[[Handler], FakePrometheus], capsys: pytest.CaptureFixture[str]
) -> None:
    def no_first_token(path: str, params: dict[str, str]) -> tuple[int, Any]:
        return one_series(path, "NaN" if "histogram_quantile" in params.get("query", "") else "1")

    assert run(prometheus(no_first_token).url) == 1
    assert row(capsys.readouterr().out, "TTFT p50 in range").split("│")[-2].strip() == "empty: only NaN"


@pytest.mark.usefixtures("wide")
def test_an_excused_empty_query_says_why_and_fails_only_with_strict(
    prometheus: Callable[[Handler], FakePrometheus], capsys: pytest.CaptureFixture[str]
) -> None:
    def quiet(path: str, params: dict[str, str]) -> tuple[int, Any]:
        requests = params.get("query", "")
        return no_series(path) if "ALERTS" in requests or "config_change" in requests else one_series(path)

    fake = prometheus(quiet)
    assert run(fake.url) == 0
    printed = capsys.readouterr().out
    assert "empty, may be: nothing fires" in row(printed, "Firing alerts")
    assert "empty, may be: no such event in this time" in row(printed, "annotation Config changes")
    assert run(fake.url, "--strict") == 1
    assert "4 empty or failing" in capsys.readouterr().out


@pytest.mark.parametrize(
    "status, body, verdict",
    [
        pytest.param(400, {"status": "error", "error": "parse error"}, "failed: parse error", id="a refused query"),
        pytest.param(502, b"<html>", "failed: HTTP 502 Bad Gateway", id="a proxy's own page"),
        pytest.param(200, b"<html>", "failed: the response is not from Prometheus", id="another server"),
    ],
)
@pytest.mark.usefixtures("wide")
def test_a_failing_query_fails_the_audit_and_says_why(
    prometheus: Callable[[Handler], FakePrometheus],
    capsys: pytest.CaptureFixture[str],
    status: int,
    body: Any,
    verdict: str,
) -> None:
    def broken(path: str, params: dict[str, str]) -> tuple[int, Any]:
        return (status, body) if "ALERTS" in params.get("query", "") else one_series(path)

    assert run(prometheus(broken).url) == 1
    assert verdict in row(capsys.readouterr().out, "Firing alerts")


def test_a_prometheus_that_does_not_answer_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as bound:  # bound but not listening: the port is ours and refuses
        bound.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        assert run(url) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: cannot reach Prometheus at {url}: connection refused; "
        "set --prometheus to its address, such as http://127.0.0.1:9090\n"
    )


@pytest.mark.parametrize(
    "flags, message",
    [
        pytest.param(
            ["--prometheus", "localhost:9090"],
            "--prometheus: 'localhost:9090' is no web address; write one such as http://127.0.0.1:9090",
            id="no scheme",
        ),
        pytest.param(
            ["--range", "soon"],
            "--range: 'soon' is not a valid duration; write a number with a unit, such as 15m",
            id="no duration",
        ),
        pytest.param(
            ["--to", "noon"],
            "--to: 'noon' is no time; write unix seconds or ISO 8601, such as 2026-01-31T12:00:00+00:00",
            id="no time",
        ),
        pytest.param(
            ["--from", "2026-01-31T12:00:00+00:00", "--to", "1000"],
            "--from: is not before --to; give the earlier time to --from",
            id="backwards",
        ),
    ],
)
def test_a_wrong_flag_is_one_message(flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", *flags) == 2
    assert capsys.readouterr().err == f"vllm-slo: {message}\n"


def test_a_folder_without_dashboards_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("http://127.0.0.1:9", "--dashboards", str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {tmp_path}: holds no dashboard; write one with: vllm-slo dashboards render --out {tmp_path}\n"
    )


def test_a_file_that_is_no_dashboard_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text('{"spec": {}}')
    assert run("http://127.0.0.1:9", "--dashboards", str(tmp_path)) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: {tmp_path / 'other.json'}: is no dashboard of the classic schema: it has no panels\n"
    )


def test_audit_reads_what_render_writes(
    tmp_path: Path, prometheus: Callable[[Handler], FakePrometheus], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "render", "--out", str(tmp_path / "new")]) == 0
    assert f"{tmp_path / 'new' / 'slo-overview.json'}\n" in capsys.readouterr().out
    assert run(prometheus(lambda path, _: one_series(path)).url, "--dashboards", str(tmp_path / "new")) == 0


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


def test_a_query_with_an_unknown_variable_fails_without_a_request(
    tmp_path: Path, prometheus: Callable[[Handler], FakePrometheus]
) -> None:
    page = {"title": "T", "panels": [{"title": "P", "targets": [{"refId": "A", "expr": "up[$nope]"}]}]}
    (tmp_path / "page.json").write_text(json.dumps(page))
    fake = prometheus(lambda path, _: one_series(path))
    assert run(fake.url, "--dashboards", str(tmp_path)) == 1
    assert fake.requests == []


def test_a_failure_is_never_excused_by_what_may_be_empty() -> None:
    check = Check("T", "P", "A", "up", QueryType.INSTANT, {}, may_be_empty="nothing fires")
    assert Finding(check, Measurement(0, 0, 0.0, "boom")).fails(strict=False)


def over_an_answer(name: str, query: str) -> dict[str, Any]:
    return {"name": name, "type": "query", "query": {"query": f"query_result({query})"}, "current": {"value": "0"}}


def test_a_query_result_variable_has_its_first_value_in_every_later_query(
    tmp_path: Path, prometheus: Callable[[Handler], FakePrometheus]
) -> None:
    page = {
        "title": "T",
        "templating": {
            "list": [over_an_answer("change", "scalar(changes)"), over_an_answer("end", "scalar(ends > $change)")]
        },
        "panels": [{"title": "P", "targets": [{"refId": "A", "expr": "up @ $change + up @ $end", "instant": True}]}],
    }
    (tmp_path / "page.json").write_text(json.dumps(page))

    def answer(path: str, params: dict[str, str]) -> tuple[int, Any]:
        number = {"scalar(changes)": "5", "scalar(ends > 5)": "6"}.get(params["query"])
        return one_series(path) if number is None else (200, {"data": {"resultType": "scalar", "result": [0, number]}})

    fake = prometheus(answer)
    assert run(fake.url, "--dashboards", str(tmp_path)) == 0
    assert {params["query"] for _, params in fake.requests} == {
        "scalar(changes)",
        "scalar(ends > 5)",
        "up @ 5 + up @ 6",
    }


def test_an_empty_query_result_leaves_the_value_of_the_file(
    tmp_path: Path, prometheus: Callable[[Handler], FakePrometheus]
) -> None:
    page = {
        "title": "T",
        "templating": {"list": [over_an_answer("change", "changes")]},
        "panels": [{"title": "P", "targets": [{"refId": "A", "expr": "up @ $change", "instant": True}]}],
    }
    (tmp_path / "page.json").write_text(json.dumps(page))
    fake = prometheus(lambda path, params: no_series(path) if params["query"] == "changes" else one_series(path))
    assert run(fake.url, "--dashboards", str(tmp_path)) == 1  # the variable has nothing to offer
    assert "up @ 0" in {params["query"] for _, params in fake.requests}
