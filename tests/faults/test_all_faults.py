"""Faults of the soak test, once each."""

from pathlib import Path

import pytest

from tests.faults.soak import soak
from tests.faults.soak_faults import KILLS, OTHERS

FEW = ["relay and exporter killed", "log file may not grow"]


@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(FEW, marks=pytest.mark.slow, id="of each kind"),
        pytest.param([*KILLS, *OTHERS], marks=pytest.mark.long, id="all"),
    ],
)
async def test_each_fault_in_turn_leaves_every_request_logged_or_counted(tmp_path: Path, faults: list[str]) -> None:
    report = await soak(tmp_path, seconds=0, seed=1, streams=20, faults=faults)
    assert report.failures == []
    assert sorted([*report.injected, *report.skipped]) == sorted(faults)
