"""The real promtool, and the two SLO files that are shipped."""

import pytest

from exporters.slos import SloFile, load, loads
from tests.support.promtool import ROOT, Pace


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
