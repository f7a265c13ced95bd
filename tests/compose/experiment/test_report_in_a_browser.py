"""The page of an experiment in a real browser: no text of a plot is cut or covers another."""

from pathlib import Path

import pytest

from compose.experiment.load_level import Level
from compose.experiment.report_formats import page
from compose.experiment.report_groups import read_groups
from dashboards.preview.chromium import browser, find_browser
from tests.compose.experiment.report_folders import Made, requests, write
from tests.loadgen.html_document import CUT

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH")


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param([0.2, 0.3, 0.31, 0.6, 0.6, 0.9, 0.95], id="apart"),
        pytest.param([0.99] * 7, id="equal"),
        pytest.param([0.0] * 7, id="nothing finite"),
    ],
)
async def test_no_label_is_cut_or_covers_another(tmp_path: Path, shares: list[float]) -> None:
    cells = [
        Made(f"a-long-name-of-flags-{index}", requests(share, seed=index), level=Level(rate=rate))
        for index, share in enumerate(shares)
        for rate in (1.0, 2.5)
    ]
    path = tmp_path / "report.html"
    path.write_text(page(read_groups(write(tmp_path / "out", cells), None)), encoding="utf-8")
    async with browser() as tab:
        for width in (390, 1440):
            metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            await tab.send("Emulation.setDeviceMetricsOverride", **metrics)
            await tab.send("Page.navigate", url=path.as_uri())
            await tab.wait_for(f"location.href === {path.as_uri()!r} && document.readyState === 'complete'")
            assert await tab.evaluate("document.documentElement.scrollWidth") <= width
            assert await tab.evaluate(CUT) == []
