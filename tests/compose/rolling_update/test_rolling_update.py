"""A real rolling update under load: nothing is lost with the preStop hook, and without it the checks fail."""

from pathlib import Path

import pytest

from compose.lab.run_directory import RunDirectory
from compose.programs.haproxy import Haproxy
from compose.programs.tools import Tools
from compose.rolling_update import update_run
from compose.rolling_update.balancer import Balancing
from compose.rolling_update.update_checks import checks
from compose.rolling_update.update_run import UpdateConfig, run

pytestmark = pytest.mark.long


@pytest.mark.parametrize("hook", [True, False], ids=["with the hook", "without the hook"])
async def test_only_the_hook_keeps_every_request(
    tools: Tools, haproxy: Haproxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: bool
) -> None:
    monkeypatch.setattr(update_run, "_SCRAPE", "1s")
    monkeypatch.setattr(update_run, "_PERIOD", "12h")  # its budget is recorded within seconds
    config = UpdateConfig(
        directory=RunDirectory(tmp_path / "run"),
        replicas=2,
        balancing=Balancing.TCP,
        hook=hook,
        steady=0.0,
        rate_scale=0.2,
        changed={"--drain-delay": "3s"},
    )
    result = await run(config, tools, haproxy, print)
    by_claim = {each.claim: each for each in checks(result)}
    assert by_claim["no request fails"].passed is hook, result
    assert by_claim["Prometheus has read the count of every request"].passed, result
    assert by_claim["2 replicas stop with status 0"].passed, result
