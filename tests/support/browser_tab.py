"""Shows a page in a tab of Chromium."""

from pathlib import Path

from dashboards.preview.chromium import Tab


async def resize(tab: Tab, width: int) -> None:
    await tab.send("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)


async def show(tab: Tab, page: Path) -> None:
    """Returns when the page is complete."""
    url = page.as_uri()
    await tab.send("Page.navigate", url=url)
    await tab.wait_for(f"location.href === {url!r} && document.readyState === 'complete'")
