"""All dashboards."""

from dashboards.boards import config_change, engine, fleet, load_test, request_anatomy, sidecar, slo_overview, workload

BOARDS = (
    slo_overview.BOARD,
    request_anatomy.BOARD,
    workload.BOARD,
    engine.BOARD,
    fleet.BOARD,
    sidecar.BOARD,
    load_test.BOARD,
    config_change.BOARD,
)
