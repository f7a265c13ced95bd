"""All dashboards, by the source of their series."""

from dashboards.boards import (
    config_change,
    engine,
    engine_only,
    fleet,
    load_test,
    request_anatomy,
    sidecar,
    slo_objective,
    slo_overview,
    workload,
)
from dashboards.boards.board import Board
from exporters.vocabulary.slo_file import Source

BOARDS = (
    slo_overview.BOARD,
    slo_objective.BOARD,
    request_anatomy.BOARD,
    workload.BOARD,
    engine.BOARD,
    fleet.BOARD,
    sidecar.BOARD,
    load_test.BOARD,
    config_change.BOARD,
)

BOARDS_OF: dict[Source, tuple[Board, ...]] = {Source.SIDECAR: BOARDS, Source.ENGINE: (engine_only.BOARD,)}
"""Dashboards of the series of sidecars, and of what vLLM alone counts."""
