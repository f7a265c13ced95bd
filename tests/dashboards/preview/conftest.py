"""A Prometheus with the series of the sample dashboard, and a tab of a real headless browser."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from dashboards.preview.chromium import Tab, browser
from tests.dashboards.preview.sample_dashboard import answer
from tests.support.fake_prometheus import FakePrometheus


@pytest.fixture
def prometheus() -> Iterator[FakePrometheus]:
    with FakePrometheus(answer) as fake:
        yield fake


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Tab]:
    async with browser() as tab:
        yield tab


@pytest.fixture
def tab(chromium: Tab) -> Tab:
    chromium.events.clear()
    return chromium
