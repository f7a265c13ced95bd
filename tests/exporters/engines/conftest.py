"""A session for scrapes, with timeouts that a busy machine does not reach."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from tests.support.waiting import HANG


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[aiohttp.ClientSession]:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_TIMEOUT_SECONDS", HANG)
    monkeypatch.setattr("exporters.engines.server_info.TIMEOUT_SECONDS", HANG)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG)) as session:
        yield session
