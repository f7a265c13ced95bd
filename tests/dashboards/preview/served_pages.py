"""Serves dashboards to a real browser."""

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from dashboards.preview.chromium import BROWSER_NAMES, find_browser
from dashboards.preview.page import PageSet
from dashboards.preview.server import Draw, PreviewServer

IN_BROWSER = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(find_browser() is None, reason=f"no browser on PATH; looked for {', '.join(BROWSER_NAMES)}"),
]
"""The marks of a module whose tests share a tab."""


def server(dashboards: Mapping[str, Mapping[str, Any]], draw: Draw, refresh: float = 3600) -> TestServer:
    titles = {name: str(tree["title"]) for name, tree in dashboards.items()}
    pages = PageSet(titles, {str(tree["uid"]): name for name, tree in dashboards.items()}, "*")
    return TestServer(PreviewServer(pages, draw, refresh).application())
