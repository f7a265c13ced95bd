"""A session for scrapes, and timeouts that a busy machine does not reach."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

HANG_SECONDS = 60.0


@pytest.fixture
async def session(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[aiohttp.ClientSession]:
    monkeypatch.setattr("exporters.engines.scraper.IDENTITY_TIMEOUT_SECONDS", HANG_SECONDS)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=HANG_SECONDS)) as session:
        yield session
