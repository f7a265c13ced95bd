"""Links between alerts, runbooks and dashboards resolve."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from alerts.links import LINK_VARIABLES, DashboardUid, Links, Panel, PanelTitle, panel_id
from alerts.rule_file import rules
from alerts.rules.groups import Alert
from compose.cli import main
from dashboards.boards.registry import BOARDS, BOARDS_OF
from dashboards.command import GENERATED
from dashboards.live.reader import panels_of
from dashboards.queries.variables import VARIABLES
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.slo_file import SHIPPED, SloFile, Source, load
from tests.dashboards.dashboard_files import Page, page_of

ROOT = Path(__file__).parents[2]
RUNBOOKS = ROOT / "alerts" / "runbooks"

SPEC = load(SHIPPED)
EVERY_BOARD = [board for boards in BOARDS_OF.values() for board in boards]


def alert_panels(source: Source) -> dict[AlertName, Panel]:
    alerting = replace(SPEC.alerting, per_tenant=True)
    groups = rules(replace(SPEC, source=source, group_by=("cluster",), alerting=alerting))
    return {AlertName(rule.name): rule.panel for group in groups for rule in group.rules if isinstance(rule, Alert)}


WITHOUT_SIDECAR = alert_panels(Source.ENGINE)
ALERT_PANELS = WITHOUT_SIDECAR | alert_panels(Source.SIDECAR)
BY_UID = {board.uid: board for board in EVERY_BOARD}
PAGES = {board.uid: board.build(SPEC) for board in EVERY_BOARD}
TITLES = {board.uid: {panel.get("title", "") for panel in panels_of(page_of(board)["panels"])} for board in EVERY_BOARD}

every = pytest.mark.parametrize("alert", AlertName)


def test_every_dashboard_and_no_other_has_a_declared_uid() -> None:
    assert sorted(BY_UID) == sorted(DashboardUid)


def test_every_declared_title_is_linked_to() -> None:
    assert {title for _, title in (*ALERT_PANELS.values(), *WITHOUT_SIDECAR.values())} == set(PanelTitle)


@every
def test_the_panel_of_an_alert_is_on_its_dashboard(alert: AlertName) -> None:
    uid, title = ALERT_PANELS[alert]
    assert title in TITLES[uid]


@pytest.mark.parametrize("alert", WITHOUT_SIDECAR)
def test_without_a_sidecar_the_panel_of_an_alert_is_on_the_dashboard_of_engines(alert: AlertName) -> None:
    uid, title = WITHOUT_SIDECAR[alert]
    assert uid == DashboardUid.ENGINE_ONLY
    assert title in TITLES[uid]


@pytest.mark.parametrize("uid", LINK_VARIABLES)
def test_the_variables_of_an_alert_link_exist_on_the_dashboard(uid: DashboardUid) -> None:
    assert set(LINK_VARIABLES[uid]) <= {*VARIABLES, *BY_UID[uid].labels}


def test_every_alert_links_to_its_panel_under_the_base_url_of_grafana() -> None:
    links = Links(runbooks="https://docs.example/runbooks/", grafana="https://grafana.example/sub/")
    for alert in (rule for group in rules(SPEC, links) for rule in group.rules if isinstance(rule, Alert)):
        name = AlertName(alert.name)
        uid, title = ALERT_PANELS[name]
        url = urlsplit(re.sub(r"\{\{.*?\}\}", "", alert.annotations["dashboard_url"]))
        assert f"{url.scheme}://{url.netloc}{url.path}" == f"https://grafana.example/sub/d/{uid}"
        (panel,) = [panel for panel in PAGES[uid].panels or [] if panel.title == title]
        assert parse_qs(url.query)["viewPanel"] == [str(panel.id_val)]
        assert alert.annotations["runbook_url"] == f"https://docs.example/runbooks/{name}.md"


def test_without_addresses_the_shipped_files_have_no_links() -> None:
    for path in (ROOT / "alerts" / "generated").rglob("rules.yaml"):
        assert not re.search(r"localhost|127\.0\.0\.1|example\.org|_url: ", path.read_text(encoding="utf-8")), path
    for page in map(page_of, BOARDS):
        assert [url for url in data_links(page["panels"]) if not url.startswith("/d/")] == []


@pytest.mark.parametrize("url", ["foo", "grafana.example.com:3000", "https://", "https://x.example.com/?orgId=1"])
@pytest.mark.parametrize(
    "command, flag, example",
    [
        ("alerts", "--grafana", "the address of Grafana in a browser, such as https://grafana.example.com"),
        ("alerts", "--runbooks", "the folder of the runbooks, such as https://git.example.com/ops/runbooks"),
        ("dashboards", "--traces-url", "the address of `vllm-slo traces`, such as https://traces.example.com"),
    ],
)
def test_an_address_that_is_not_a_url_is_refused_with_one_that_would_work(
    command: str, flag: str, example: str, url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "render", "--out", str(tmp_path), flag, url]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {flag}: {url!r} is not a valid URL; write {example}\n"
    assert not any(tmp_path.iterdir())


def data_links(node: Any) -> Iterator[str]:
    """The URLs of the data links in a part of a dashboard's JSON."""
    if isinstance(node, dict):
        if node.get("id") == "links":
            yield from (link["url"] for link in node["value"])
        node = [*node.values()]
    for each in node if isinstance(node, list) else []:
        yield from data_links(each)


def selectors(page: Page) -> set[str]:
    """The variables that have a selector on the page."""
    return {each["name"] for each in page["templating"]["list"] if each.get("hide") != 2}


def set_variables(url: str) -> set[str]:
    """The variables to which a link gives a value: one of the row, or the selected ones."""
    of_row = re.findall(r"[?&]var-(\w+)=\$\{__data\.fields\.\w+\}", url)
    selected = re.findall(r"[?&]\$\{(\w+):queryparam\}", url)
    # Grafana would select both values of a variable that is given twice
    assert len({*of_row, *selected}) == len(of_row) + len(selected), url
    return {*of_row, *selected}


@pytest.mark.parametrize(
    "spec", [SPEC, replace(SPEC, group_by=("cluster", "namespace"))], ids=["one cluster", "several clusters"]
)
def test_a_link_carries_the_time_range_and_all_variables_that_both_boards_have(spec: SloFile) -> None:
    pages = {board.uid: page_of(board, spec) for board in BOARDS}
    links = [(page, url) for page in pages.values() for url in data_links(page["panels"]) if url.startswith("/d/")]
    assert links
    for page, url in links:
        uid = urlsplit(url).path.removeprefix("/d/")
        assert url.startswith(f"/d/{uid}?${{__url_time_range}}"), url
        assert selectors(page) & selectors(pages[uid]) <= set_variables(url), url


def test_the_value_of_a_row_in_a_link_is_a_column_of_the_table() -> None:
    for page in map(page_of, BOARDS):
        for each in panels_of(page["panels"]):
            named = {label for url in data_links(each) for label in re.findall(r"__data\.fields\.(\w+)", url)}
            overrides = each.get("fieldConfig", {}).get("overrides", [])
            columns = {str(override["matcher"]["options"]): override["properties"] for override in overrides}
            assert [name for name in named if name not in columns] == [], each["title"]
            # a link has the text of a mapped value
            mappings = {
                name: setting["value"] for name in named for setting in columns[name] if setting["id"] == "mappings"
            }
            assert [name for name, mapped in mappings.items() if mapped] == [], each["title"]


def test_links_to_runbooks_have_the_base_url_of_the_flag(tmp_path: Path) -> None:
    assert main(["dashboards", "render", "--out", str(tmp_path), "--runbooks", "https://runbooks.example.org/"]) == 0
    urls = {
        path.stem: [url for url in data_links(json.loads(path.read_text())) if not url.startswith("/d/")]
        for path in tmp_path.iterdir()
    }
    assert {name: each for name, each in urls.items() if each} == {
        "slo-overview": ["https://runbooks.example.org/${__data.fields.alertname}.md"],
        "slo-objective": [
            "https://runbooks.example.org/${__data.fields.alertname}.md",
            "https://runbooks.example.org/${__data.fields.runbook}.md",
        ],
    }


def test_a_board_links_to_traces_only_with_their_address(tmp_path: Path) -> None:
    def opened(folder: Path) -> list[str]:
        urls = data_links(json.loads((folder / "slo-objective.json").read_text()))
        return [url for url in urls if "verdict=bad" in url]

    assert opened(GENERATED) == []
    assert main(["dashboards", "render", "--out", str(tmp_path), "--traces-url", "https://traces.example.org/"]) == 0
    (url,) = opened(tmp_path)
    assert url == (
        "https://traces.example.org/?class=${__data.fields.class_name}&slo=${__data.fields.slo}&verdict=bad&sort=slowest"
        "&limit=10&since=${__from:date:seconds}&until=${__to:date:seconds}"
    )


@every
def test_a_runbook_names_only_existing_dashboards_and_panels(alert: AlertName) -> None:
    opening = re.search(r"^\*\*Open\.\*\* (.*?)\n\n", (RUNBOOKS / f"{alert}.md").read_text(), re.DOTALL | re.MULTILINE)
    assert opening, alert
    titles = re.findall(r"\*([^*]+)\*", opening[1].replace("\n", " "))
    known_titles = {board.title for board in EVERY_BOARD}.union(*TITLES.values())
    assert [name for name in titles if name not in known_titles] == []
    # no dashboard shows the Watchdog
    if alert is not AlertName.WATCHDOG:
        uid, title = ALERT_PANELS[alert]
        assert {BY_UID[uid].title, title} <= set(titles)


def test_the_id_of_a_panel_depends_only_on_its_title() -> None:
    assert panel_id("Burn rate") == 28179
