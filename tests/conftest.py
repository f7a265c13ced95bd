"""The real programs of Prometheus, for whoever needs them: a test that does is skipped where they cannot be had."""

import os
from pathlib import Path

import pytest

from compose.prometheus_tools import Tools, find_tools
from exporters.errors import UsageError
from tests.support.promtool import Promtool


@pytest.fixture(scope="session")
def tools() -> Tools:
    try:
        return find_tools()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> tuple[Path, ...]:
    """Of $PROMTOOLS, where several versions are to be asked (`old/promtool:new/promtool`), else the machine's."""
    if named := os.environ.get("PROMTOOLS"):
        return tuple(map(Path, named.split(os.pathsep)))
    found: Tools = request.getfixturevalue("tools")
    return (found.promtool,)


@pytest.fixture
def promtool(programs: tuple[Path, ...], tmp_path: Path) -> Promtool:
    return Promtool(programs, tmp_path)
