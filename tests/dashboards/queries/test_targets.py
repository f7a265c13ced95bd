"""With `group_by`, every query of every dashboard reads only the targets that the variables select."""

import re
from dataclasses import replace
from typing import Any

import pytest

from dashboards.boards.board import Board
from dashboards.boards.registry import BOARDS_OF
from exporters.vocabulary import signals
from exporters.vocabulary.slo_file import SHIPPED, Source, load
from tests.dashboards.dashboard_files import page_of

BOARDS = [board for boards in BOARDS_OF.values() for board in boards]
FLEET = replace(load(SHIPPED), group_by=("cluster", "namespace"))
SELECTED = '{cluster=~"$cluster",namespace=~"$namespace"'
SERIES = re.compile(r"\b(?:(?:llm_|vllm[:_])[\w:]*|up|ALERTS)\b(?!\()(.{0,60})|\((\{.{0,60})", re.DOTALL)
CONSTANTS = {
    *(signals.SLO_OBJECTIVE.name, signals.SLO_THRESHOLD.name, signals.GOODPUT_OBJECTIVE.name),
    *(signals.WINDOW_SECONDS.name, signals.STEP_TIME.name),
}


def texts(node: Any, key: str) -> list[str]:  # JSON
    if isinstance(node, dict):
        return [*([node[key]] if isinstance(node.get(key), str) else []), *texts([*node.values()], key)]
    return [text for each in node for text in texts(each, key)] if isinstance(node, list) else []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_query_reads_the_selected_targets(board: Board) -> None:
    page = page_of(board, FLEET)
    expressions = texts(page, "expr")
    expressions += [text for text in texts(page["templating"], "query") if text.startswith("query_result(")]
    assert expressions
    for expression in expressions:
        for match in SERIES.finditer(expression):
            name = re.split(r"[^\w:]", match[0])[0]
            expected = name not in CONSTANTS and not name.startswith("llm_load_")
            assert (match[1] or match[2]).startswith(SELECTED) is expected, f"{name}: {expression}"


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_variables_narrow_each_other_from_left_to_right(board: Board) -> None:
    queries = {each["name"]: each.get("definition") for each in page_of(board, FLEET)["templating"]["list"]}
    assert [*queries][:3] == ["datasource", "cluster", "namespace"]
    target = "llm_sidecar_build_info" if board.source is Source.SIDECAR else "llm_engine_up"
    assert queries["cluster"] == f"label_values({target}, cluster)"
    assert queries["namespace"] == f'label_values({target}{{cluster=~"$cluster"}}, namespace)'
    # the classes are those of the SLO file, but without a sidecar those of the series
    for name in {*queries} & {"model", "instance", "engine"}:
        assert SELECTED in queries[name], name


def test_a_class_is_listed_with_its_title_whose_commas_are_escaped() -> None:
    (variable,) = (each for each in page_of(BOARDS[0])["templating"]["list"] if each["name"] == "class")
    options = re.split(r"(?<!\\),", variable["query"])
    assert "siso: short in\\, short out : siso" in options
    assert options[-1] == "other : other"


def test_links_between_boards_keep_the_selected_targets() -> None:
    links = [url for board in BOARDS for url in texts(page_of(board, FLEET), "url") if url.startswith("/d/")]
    assert links
    assert all("&${cluster:queryparam}&${namespace:queryparam}" in url for url in links)


def test_without_group_by_boards_have_no_such_variable() -> None:
    for board in BOARDS:
        assert "cluster" not in board.render(load(SHIPPED))
