"""From the row of an SLO to its worst requests and the runbook, by clicks in the preview."""

import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
import pytest_asyncio

from alerts.links import Links, PanelTitle, panel_id
from compose.cli import main
from dashboards.boards.registry import BOARDS
from dashboards.live.reader import TimeRange
from dashboards.preview.chromium import Tab
from dashboards.preview.command import parse_time_range
from dashboards.preview.document import document
from dashboards.preview.server import Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from exporters.analysis.traces.request_search import parse_search
from exporters.requestlog.writer import RequestLog
from exporters.vocabulary.signals import Verdict
from exporters.vocabulary.slo_file import SHIPPED, load
from tests.dashboards.preview.sample_dashboard import END, START, result_of
from tests.dashboards.preview.served_pages import IN_BROWSER, server
from tests.support.fake_prometheus import FakePrometheus
from tests.support.sample_records import finished

ROOT = Path(__file__).parents[3]
RUNBOOKS, TRACES = "https://runbooks.example.org", "https://traces.example.org"
WORST, OTHER = "sidecar-2:9464", "sidecar-1:9464"
TIMES = f"from={1000 * START}&to={1000 * END}"

pytestmark = [pytest.mark.slow, *IN_BROWSER]


def respond(path: str, parameters: dict[str, str]) -> tuple[int, Any]:
    """Two sidecars with one engine each, of which the second one is worse; a class and an SLO."""
    if path.startswith("/api/v1/label/"):
        values = {"class": ["lilo", "siso"], "instance": [OTHER, WORST], "model": ["org/m"]}
        return 200, {"status": "success", "data": values.get(path.split("/")[-2], ["engine-1:8000", "engine-2:8000"])}
    command = re.search(r'"command", "([^"]*)", "command", "\(\.\*\)"', parameters["query"])
    labels = {"slo": "ttft", "class": "siso", "alertname": "LLMErrorBudgetBurn", "severity": "page"}
    labels |= {
        "runbook": "LLMErrorBudgetBurn",
        "command": command[1].replace("$1", "siso --slo ttft") if command else "",
    }
    if '"class_name", "", "class"' in parameters["query"]:
        labels["class_name"] = "siso"
    # an SLO has one row, with one worst replica
    is_single = re.search(r"by \(slo, class(, severity)?\)", parameters["query"])
    pairs = ((WORST, 2, 0.9),) if is_single else ((OTHER, 1, 0.1), (WORST, 2, 0.9))
    selected = [
        ({**labels, "instance": instance, "engine": f"engine-{number}:8000"}, value)
        for instance, number, value in pairs
        if f'instance=~"{WORST}"'.replace(".", r"\\.") not in parameters["query"] or instance == WORST
    ]
    return result_of(path, parameters, [*selected])


@pytest.fixture(scope="module")
def prometheus() -> Iterator[FakePrometheus]:
    with FakePrometheus(respond) as fake:
        yield fake


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(prometheus: FakePrometheus) -> AsyncIterator[str]:
    spec, links = load(SHIPPED), Links(RUNBOOKS, traces=f"{TRACES}/")
    pages = {board.file_name.removesuffix(".json"): json.loads(board.render(spec, links)) for board in BOARDS}

    def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        span = parse_time_range(start, end, TimeRange(END - 60, END, 15))
        return document(pages[name], Prometheus(prometheus.url), View(span, selection=selection))

    async with server(pages, draw) as running:
        yield str(running.make_url(""))


def request_log(folder: Path) -> Path:
    """Bad requests of the class in the time range, a longer one before it, and longer ones of other kinds."""
    bad, good = {"ttft": Verdict.BAD}, {"ttft": Verdict.GOOD}
    records = [
        *(finished(request_class="siso", time=START + each, e2e=each / 1000, slo=bad) for each in range(1, 21)),
        finished(request_class="siso", time=START - 1, e2e=1.0, slo=bad),
        finished(request_class="siso", time=END, e2e=1.0, slo=bad),
        finished(request_class="siso", time=START + 1, e2e=1.0, slo=good),
        finished(request_class="lilo", time=START + 1, e2e=1.0, slo=bad),
    ]
    log = RequestLog(folder / "requests.jsonl")
    log.write("run", list(enumerate(records, 1)), None)
    log.close()
    return folder / "requests.jsonl"


def cells(title: str) -> str:
    """The cells of the first row of a table, by the title of the column."""
    return f"""(() => {{
      const titled = (e) => e.querySelector("h2")?.innerText === "{title}";
      const panel = [...document.querySelectorAll(".panel")].find(titled);
      const heads = [...panel.querySelectorAll("th")].map((e) => e.innerText);
      const first = [...panel.querySelectorAll("tbody tr:first-child td")];
      return Object.fromEntries(heads.map((head, at) => [head, first[at]]));
    }})()"""


async def click(tab: Tab, title: str, column: str) -> None:
    """Click on the link in the first row of a table."""
    x, y = await tab.evaluate(
        f'(() => {{ const link = {cells(title)}["{column}"].querySelector("a");'
        'link.scrollIntoView({block: "center"});'
        "const box = link.getBoundingClientRect(); return [box.x + 5, box.y + box.height / 2]; })()"
    )
    for kind in ("mousePressed", "mouseReleased"):
        await tab.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


async def is_on(tab: Tab, name: str) -> dict[str, list[str]]:
    """The parameters of the page, once it is drawn."""
    await tab.wait_for(f"location.pathname === '/{name}' && document.documentElement.dataset.drawn > 0")
    return parse_qs(str(await tab.evaluate("location.search.slice(1)")))


async def link(tab: Tab, title: str, column: str) -> str:
    return str(await tab.evaluate(f'{cells(title)}["{column}"].querySelector("a").href'))


async def worst_requests_of_the_slo(tab: Tab, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their command, traces and runbook."""
    command = str(await tab.evaluate(f'{cells("Worst requests")}["Command"].innerText'))
    assert command == (
        "vllm-slo requests --request-log requests.jsonl --class siso --slo ttft=bad --sort e2e_ms --limit 10 "
        f"--since {START} --until {END}"
    )
    program, *flags = shlex.split(command.replace("requests.jsonl", str(request_log(tmp_path))))
    assert (program, main([*flags, "--format", "json", "--columns", "e2e_ms"])) == ("vllm-slo", 0)
    slowest = [json.loads(line)["e2e_ms"] for line in capsys.readouterr().out.splitlines()]
    assert slowest == [float(number) for number in range(20, 10, -1)]

    traces = urlsplit(await link(tab, "Worst requests", "Class"))
    assert f"{traces.scheme}://{traces.netloc}{traces.path}" == f"{TRACES}/"
    search = parse_search(parse_qsl(traces.query), END)
    assert (search.equal, search.slo, search.verdict) == ({"class": "siso"}, "ttft", Verdict.BAD)
    assert (search.sort, search.limit, search.since, search.until) == ("slowest", 10, START, END)

    runbook = await link(tab, "Worst requests", "Runbook")
    assert runbook == f"{RUNBOOKS}/LLMErrorBudgetBurn.md"


async def test_each_step_from_an_slo_to_its_worst_requests_and_the_runbook_is_one_click(
    tab: Tab, site: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # as the page's link, in a time range
    panel = panel_id(PanelTitle.BURN_RATE)
    await tab.show(f"{site}/d/vllm-slo-objective?viewPanel={panel}&var-model=org%2Fm&var-class=siso&{TIMES}")
    await worst_requests_of_the_slo(tab, tmp_path, capsys)

    await tab.show(f"{site}/d/vllm-slo-overview?var-model=org%2Fm&var-class=siso&{TIMES}")
    await click(tab, PanelTitle.SLO_STATUS, "SLO")
    objective = await is_on(tab, "slo-objective")
    assert (objective["var-slo"], objective["var-class"]) == (["ttft"], ["siso"])

    await tab.show(f"{site}/d/vllm-slo-overview?var-model=org%2Fm&var-class=siso&{TIMES}")
    await click(tab, PanelTitle.SLO_STATUS, "Worst replica 1 min")
    fleet = await is_on(tab, "slo-fleet")
    assert fleet["var-instance"] == [WORST]

    await click(tab, "Engines", "Engine")
    engine = await is_on(tab, "slo-engine")
    assert (engine["var-instance"], engine["var-engine"]) == ([WORST], ["engine-2:8000"])
    for parameters in (fleet, engine):
        assert (parameters["var-model"], parameters["var-class"]) == (["org/m"], ["siso"])
        assert (parameters["from"], parameters["to"]) == ([f"{1000 * START}"], [f"{1000 * END}"])


async def test_an_alert_that_fires_is_one_click_from_its_runbook(tab: Tab, site: str) -> None:
    await tab.show(f"{site}/d/vllm-slo-overview")
    url = await link(tab, PanelTitle.FIRING_ALERTS, "Alert")
    assert url == f"{RUNBOOKS}/LLMErrorBudgetBurn.md"
