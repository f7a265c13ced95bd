"""A Prometheus with the series of the sample dashboard."""

from collections.abc import Iterator

import pytest

from tests.dashboards.preview.sample_dashboard import answer
from tests.support.fake_prometheus import FakePrometheus


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    with FakePrometheus(answer) as fake:
        yield fake
