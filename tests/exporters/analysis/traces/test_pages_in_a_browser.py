"""The pages in a real browser: they fit phones, follow the colour scheme, and execute nothing."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from dashboards.preview.chromium import Tab, browser, find_browser
from exporters.analysis.traces.server import TraceServer
from exporters.analysis.traces.span_parser import parse_spans
from exporters.analysis.traces.span_store import SpanStore
from exporters.vocabulary.signals import Verdict
from tests.support.sample_traces import NOW, bad_request, encoded, good_request

pytestmark = pytest.mark.skipif(find_browser() is None, reason="no Chromium on PATH")

ATTACK = "<img src=x onerror=document.title='attacked'>\"><script>document.title='attacked'</script>"
LONG = "a" * 200


@contextlib.asynccontextmanager
async def served(folder: Path) -> AsyncIterator[str]:
    """The URL of a store with a trace whose texts are long and hostile."""
    store = SpanStore(folder / "traces.db", keep=3600, max_bytes=64 * 1024 * 1024)
    texts = {"model": ATTACK, "request_class": LONG, "route": "/" + LONG, "request_id": ATTACK, "tenant": LONG}
    verdicts = {"slo": {ATTACK: Verdict.BAD}, "bad_at": {ATTACK: 0.5}}
    store.add(parse_spans(encoded(*bad_request(1, **texts, **verdicts), *good_request(2))), NOW)
    server = TraceServer(store, 3600, lambda: NOW)
    site = TestServer(server.application())
    await site.start_server(auto_decompress=False)
    try:
        yield str(site.make_url("")).rstrip("/")
    finally:
        await site.close()
        await server.close()
        store.close()


async def load(tab: Tab, url: str) -> None:
    await tab.send("Page.navigate", url="about:blank")
    await tab.wait_for("location.href === 'about:blank'")
    await tab.send("Page.navigate", url=url)
    await tab.wait_for("location.href !== 'about:blank' && document.readyState === 'complete'")
    await tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")


async def show(tab: Tab, width: int, scheme: str) -> None:
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    await tab.send("Emulation.setDeviceMetricsOverride", **metrics)
    await tab.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])


CONTRAST = """(() => {
  const light = text => {
    const [r, g, b] = text.match(/\\d+/g).map(each => each / 255)
      .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = node => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!colour.endsWith(', 0)')) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const ratio = node => {
    const [low, high] = [light(getComputedStyle(node).color), light(behind(node))].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = [...document.querySelectorAll('body *')].filter(
    node => [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim()));
  return Math.min(...texts.filter(node => !node.closest('svg')).map(ratio));
})()"""


@pytest.mark.slow
async def test_pages_fit_phones_and_screens_in_both_colour_schemes_and_execute_nothing(tmp_path: Path) -> None:
    async with served(tmp_path) as url, browser() as tab:
        for path in ("/", "/?verdict=bad&sort=slowest&limit=10", f"/traces/{1:032x}", "/?clas=1", "/traces/x"):
            backgrounds: set[Any] = set()
            await load(tab, url + path)
            for width in (400, 1280):
                for scheme in ("light", "dark"):
                    await show(tab, width, scheme)
                    where = f"{path} at {width} px, {scheme}"
                    assert await tab.evaluate("document.documentElement.scrollWidth") <= width, where
                    assert await tab.evaluate("document.title") != "attacked", where
                    assert await tab.evaluate("document.querySelectorAll('script, img').length") == 0, where
                    assert await tab.evaluate("document.styleSheets.length") == 1, where
                    assert await tab.evaluate(CONTRAST) >= 4.5, where
                    backgrounds.add(await tab.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert len(backgrounds) == 2
        blocked = [event for name, event in tab.events if name == "Log.entryAdded" and "Content Security" in str(event)]
    assert blocked == []
