"""The real promtool, and the two SLO files that are shipped."""

import os
from pathlib import Path

import pytest

from compose.prometheus_tools import find_tools
from exporters.slos import SloFile, load, loads
from exporters.usage import UsageError
from tests.rules.promtool import ROOT, Pace, Promtool


@pytest.fixture(scope="session")
def programs() -> tuple[Path, ...]:
    """Of $PROMTOOLS, where several versions are to be asked (`old/promtool:new/promtool`), else the machine's."""
    if named := os.environ.get("PROMTOOLS"):
        return tuple(map(Path, named.split(os.pathsep)))
    try:
        return (find_tools().promtool,)
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture
def promtool(programs: tuple[Path, ...], tmp_path: Path) -> Promtool:
    return Promtool(programs, tmp_path)


@pytest.fixture(
    params=[pytest.param("alerts/slos.yaml", id="30d"), pytest.param("compose/slos.yaml", id="12h")], scope="session"
)
def spec(request: pytest.FixtureRequest) -> SloFile:
    """The file for production and the lab's."""
    return load(ROOT / request.param)


@pytest.fixture
def pace(spec: SloFile) -> Pace:
    return Pace(spec)


@pytest.fixture(scope="session")
def loose() -> SloFile:
    """An objective of 90 %: a budget so large that the published factors cannot be reached."""
    text = (ROOT / "alerts/slos.yaml").read_text().replace("objective: 95%", "objective: 90%", 1)
    return loads(text)
