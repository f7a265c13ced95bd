"""A real rolling update under load: nothing is lost with the preStop hook, and without it the checks fail."""

from pathlib import Path

import pytest

from compose.prometheus_tools import Tools
from compose.rolling_update import update_run
from compose.rolling_update.haproxy import Balancing, Haproxy, find_haproxy
from compose.rolling_update.update_checks import checks
from compose.rolling_update.update_run import UpdateConfig, run
from compose.run_directory import RunDirectory
from exporters.errors import UsageError


@pytest.fixture
def haproxy() -> Haproxy:
    try:
        return find_haproxy()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(
    "hook",
    [pytest.param(True, id="with the hook"), pytest.param(False, id="without the hook", marks=pytest.mark.long)],
)
async def test_only_the_hook_keeps_every_request(
    tools: Tools, haproxy: Haproxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hook: bool
) -> None:
    monkeypatch.setattr(update_run, "_SCRAPE", "1s")
    config = UpdateConfig(
        directory=RunDirectory(tmp_path / "run"),
        replicas=2,
        balancing=Balancing.TCP,
        hook=hook,
        steady=0.0,
        rate_scale=0.2,
        endpoint_delay=0.5,
        changed={"--drain-delay": "3s"},
    )
    result = await run(config, tools, haproxy, print)
    by_claim = {each.claim: each for each in checks(result)}
    assert by_claim["no request fails"].passed is hook, result
    assert by_claim["Prometheus has read the count of every request"].passed, result
    assert by_claim["2 replicas stop with status 0"].passed, result
