"""The two shipped SLO files."""

import pytest

from exporters.vocabulary.slo_file import SloFile, load, loads
from tests.support.promtool import ROOT, Pace


@pytest.fixture(
    params=[pytest.param("alerts/slos.yaml", id="30d"), pytest.param("compose/slos.yaml", id="12h")], scope="session"
)
def spec(request: pytest.FixtureRequest) -> SloFile:
    """The production file and the file of the lab."""
    return load(ROOT / request.param)


@pytest.fixture(
    params=[
        pytest.param("alerts/slos.yaml", id="30d"),
        # All rules scale with the period, so this file only repeats the evaluations of the other.
        pytest.param("compose/slos.yaml", id="12h", marks=pytest.mark.long),
    ]
)
def pace(request: pytest.FixtureRequest) -> Pace:
    """The times of rules that promtool evaluates."""
    return Pace(load(ROOT / request.param))


@pytest.fixture(scope="session")
def loose() -> SloFile:
    """An objective of 90 %: the budget is so large that the published factors are unreachable."""
    text = (ROOT / "alerts/slos.yaml").read_text().replace("objective: 95%", "objective: 90%", 1)
    return loads(text)
