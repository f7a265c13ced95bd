"""The real Alertmanager and amtool."""

import pytest

from compose.prometheus_tools import Tools, find_tools
from exporters.usage import UsageError


@pytest.fixture(scope="session")
def tools() -> Tools:
    try:
        return find_tools()
    except UsageError as error:
        pytest.skip(str(error))
