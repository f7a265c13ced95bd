"""A Prometheus with the series of ten engines, started once."""

from collections.abc import Iterator

import pytest

from compose.programs.tools import Tools
from exporters.analysis.prometheus_api import Prometheus
from tests.support import engine_fleet
from tests.support.ports import free_port
from tests.support.prometheus_blocks import prometheus_over


@pytest.fixture(scope="session")
def fleet(tools: Tools) -> Iterator[Prometheus]:
    with prometheus_over(engine_fleet.lines(), free_port(), tools) as url:
        yield Prometheus(url)
