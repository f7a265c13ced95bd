"""The checks of the running lab against a fake Grafana, written from the documented HTTP API.

`make stack-test` sends the same requests to a real Grafana and a real Tempo, where their images can be pulled.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboards.live.reader import TimeRange
from exporters.vocabulary.signals import TTFT
from tests.stack.grafana_checks import (
    Sources,
    annotation_problems,
    board_problems,
    panel_problems,
    served_boards,
    trace_problems,
)
from tests.support.fake_prometheus import FakePrometheus, Handler

ROOT = Path(__file__).parents[2]
RANGE = TimeRange(1000.0, 1600.0, 1.0)
FLIP = 1200.0
TRACE = "0af7651916cd43dd8448eb211c80319c"
PROXY = "/api/datasources/proxy/uid"
PROMETHEUS = f"{PROXY}/prometheus/api/v1"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
BOARD: dict[str, Any] = {
    "uid": "made",
    "title": "Made",
    "annotations": {
        "list": [
            {"name": "Annotations & Alerts", "datasource": {"type": "grafana", "uid": "-- Grafana --"}, "builtIn": 1},
            {"name": "Config changes", "enable": True, "datasource": SOURCE, "expr": "changes * 1000", "step": "1m"},
        ]
    },
    "panels": [
        {"title": "Busy", "datasource": SOURCE, "targets": [{"refId": "A", "expr": "busy"}]},
        {
            "title": "Rare",
            "datasource": SOURCE,
            "description": "Failures. May be empty: none has failed.",
            "targets": [{"refId": "A", "expr": "rare"}],
        },
    ],
}
Start = Callable[[Handler], str]


def matrix(**series: float) -> dict[str, Any]:
    """One series for each setting and its value."""
    result = [
        {"metric": {"setting": name}, "values": [[1000, f"{value}"], [1060, f"{value}"]]}
        for name, value in series.items()
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


EXEMPLARS = {
    "status": "success",
    "data": [
        {
            "seriesLabels": {"__name__": TTFT.bucket, "class": "siso"},
            "exemplars": [{"labels": {"trace_id": TRACE}, "value": "0.1", "timestamp": 1100.5}],
        }
    ],
}
NO_DATA = matrix()
NOT_FOUND = {"message": "Dashboard not found", "traceID": ""}


def healthy(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
    """The responses of a lab without a fault; each test replaces one."""
    if path == f"{PROMETHEUS}/query_range":
        flip = matrix(enable_prefix_caching=FLIP * 1000 + 1500.0)
        return 200, {"changes * 1000": flip, "busy": matrix(any=1.0), "rare": NO_DATA}[parameters["query"]]
    bodies: dict[str, Any] = {
        "/api/search": [{"uid": "made", "title": "Made", "type": "dash-db"}],
        "/api/dashboards/uid/made": {"dashboard": BOARD, "meta": {"provisioned": True}},
        f"{PROMETHEUS}/query_exemplars": EXEMPLARS,
        f"{PROXY}/tempo/api/traces/{TRACE}": {"batches": [{"scopeSpans": []}]},
    }
    return (200, bodies[path]) if path in bodies else (404, {"message": "Not found"})


def with_fault(where: str, status: int, body: Any, query: str | None = None) -> Handler:
    """Another response to the requests of a path, or to one query of them."""

    def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
        is_changed = path == where and query in (None, parameters.get("query"))
        return (status, body) if is_changed else healthy(path, parameters)

    return respond


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as running:
        yield lambda respond: running.enter_context(FakePrometheus(respond)).url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slo-made.json").write_text(json.dumps(BOARD))
    return tmp_path


def problems(grafana: str, folder: Path) -> list[str]:
    """All of them, without the address of the fake."""
    sources, boards = Sources.through(grafana), served_boards(grafana, folder)
    found = [
        *board_problems(grafana, folder),
        *panel_problems(boards, sources, RANGE),
        *annotation_problems(boards, sources, "enable_prefix_caching", FLIP, RANGE),
        *trace_problems(sources, RANGE),
    ]
    return [each.removeprefix(grafana) for each in found]


def test_a_lab_with_all_boards_data_annotations_and_traces_has_no_problem(start: Start, folder: Path) -> None:
    assert problems(start(healthy), folder) == []


WITHOUT_BUSY = {"dashboard": {**BOARD, "panels": BOARD["panels"][1:]}, "meta": {}}
ANNOTATION = f"{PROXY}/prometheus: Made / annotation Config changes"
TRACE_URL = f"{PROXY}/tempo/api/traces/{TRACE}"
EXEMPLARS_OF = f"{PROMETHEUS}/query_exemplars: {TTFT.bucket}"


@pytest.mark.parametrize(
    "respond, message",
    [
        pytest.param(
            with_fault("/api/search", 200, [{"uid": "other"}]),
            "/api/search: no board made (slo-made.json): found other",
            id="missing board",
        ),
        pytest.param(
            with_fault("/api/search", 401, {"message": "Unauthorized"}),
            '/api/search: no board made (slo-made.json): HTTP 401 Unauthorized: {"message": "Unauthorized"}',
            id="search refused",
        ),
        pytest.param(
            with_fault("/api/dashboards/uid/made", 404, NOT_FOUND),
            f"/api/dashboards/uid/made: HTTP 404 Not Found: {json.dumps(NOT_FOUND)}",
            id="listed but not served",
        ),
        pytest.param(
            with_fault("/api/dashboards/uid/made", 200, WITHOUT_BUSY),
            "/api/dashboards/uid/made: Made / Busy [A]: the query of slo-made.json is not served",
            id="missing panel",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_range", 200, NO_DATA, "busy"),
            f"{PROXY}/prometheus: Made / Busy [A]: empty: busy",
            id="panel without data",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_range", 502, {"message": "bad gateway"}, "rare"),
            f"{PROXY}/prometheus: Made / Rare [A]: failed: HTTP 502 Bad Gateway: rare",
            id="failing query of a panel that may be empty",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_range", 200, NO_DATA, "changes * 1000"),
            f"{ANNOTATION}: no enable_prefix_caching within 10 s of 1200.000: found none",
            id="missing annotation",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_range", 200, matrix(enable_prefix_caching=9e5), "changes * 1000"),
            f"{ANNOTATION}: no enable_prefix_caching within 10 s of 1200.000: found 900.000",
            id="annotation at another time",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_range", 200, matrix(max_num_seqs=FLIP * 1000), "changes * 1000"),
            f"{ANNOTATION}: no enable_prefix_caching within 10 s of 1200.000: found none",
            id="annotation of another setting",
        ),
        pytest.param(
            with_fault(f"{PROMETHEUS}/query_exemplars", 200, {"status": "success", "data": []}),
            f"{EXEMPLARS_OF}: no exemplar in 600 s",
            id="no exemplar",
        ),
        pytest.param(
            with_fault(TRACE_URL, 404, b"trace not found"),
            f"{TRACE_URL}: trace of an exemplar of {TTFT.name}: HTTP 404 Not Found: trace not found",
            id="trace that is not in Tempo",
        ),
    ],
)
def test_a_fault_is_one_message_that_says_what_is_missing_and_where(
    start: Start, folder: Path, respond: Handler, message: str
) -> None:
    assert problems(start(respond), folder) == [message]


def test_the_data_sources_are_those_that_the_lab_provisions() -> None:
    folder = ROOT / "compose" / "grafana" / "provisioning" / "datasources"
    files = [yaml.safe_load((folder / f"{name}.yaml").read_text()) for name in ("prometheus", "tempo")]
    prometheus, tempo = (f"{PROXY}/{file['datasources'][0]['uid']}" for file in files)
    assert Sources.through("") == Sources(prometheus, tempo)


def test_an_annotation_that_is_off_is_reported(start: Start, folder: Path) -> None:
    annotations = BOARD["annotations"]["list"]
    off = {**BOARD, "annotations": {"list": [{**each, "enable": False} for each in annotations]}}
    respond = with_fault("/api/dashboards/uid/made", 200, {"dashboard": off})
    assert problems(start(respond), folder) == [f"{ANNOTATION}: missing or off"]
