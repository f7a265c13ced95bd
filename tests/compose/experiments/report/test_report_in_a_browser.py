"""The page of an experiment in a real browser: no text of a plot is cut or covers another."""

from pathlib import Path

import pytest

from compose.experiments.report.experiment_report import html
from compose.experiments.report.groups import read_groups
from compose.experiments.setup.level import Level
from dashboards.preview.chromium import browser, find_browser
from tests.compose.experiments.report.report_folders import Made, requests, write
from tests.loadgen.html_document import CUT
from tests.support.browser_tab import resize, show

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH")]

SHARES = {"apart": [0.2, 0.3, 0.31, 0.6, 0.6, 0.9, 0.95], "equal": [0.99] * 7, "nothing finite": [0.0] * 7}


@pytest.mark.long
async def test_no_label_is_cut_or_covers_another(tmp_path: Path) -> None:
    async with browser() as tab:
        for name, shares in SHARES.items():
            cells = [
                Made(f"a-long-name-of-flags-{index}", requests(share, seed=index), level=Level(rate=rate))
                for index, share in enumerate(shares)
                for rate in (1.0, 2.5)
            ]
            path = tmp_path / f"{name}.html"
            path.write_text(html(read_groups(write(tmp_path / name, cells), None)), encoding="utf-8")
            for width in (390, 1440):
                await resize(tab, width)
                await show(tab, path)
                assert await tab.evaluate("document.documentElement.scrollWidth") <= width, name
                assert await tab.evaluate(CUT) == [], name
