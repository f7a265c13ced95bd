"""Each fault of the soak test, once."""

from pathlib import Path

from tests.faults.soak import soak
from tests.faults.soak_faults import KILLS, OTHERS


async def test_each_fault_in_turn_leaves_every_request_logged_or_counted(tmp_path: Path) -> None:
    report = await soak(tmp_path, seconds=0, seed=1, streams=20)
    assert report.failures == []
    assert sorted([*report.injected, *report.skipped]) == sorted(KILLS | OTHERS)
