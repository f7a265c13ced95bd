"""Writes the pictures of "From a page to the request" from the lab of that page: `python docs/page_pictures.py`."""

import argparse
import asyncio
import base64
import os
import re
import subprocess
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from dashboards.preview.chromium import Tab, browser

PAGE = Path(__file__).parent / "from-a-page-to-the-request.md"
PICTURES = Path(__file__).parent / "pictures"
_COMMAND = re.compile(r"^ {4}\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_WIDTH = 1180
_TERMINAL = """<!doctype html><body style="margin:0;background:#101418"><pre style="margin:0;padding:14px 18px;
display:inline-block;color:#d6dde4;font:13px/1.4 'DejaVu Sans Mono',monospace">{code}</pre>"""


def commands(page: str) -> list[str]:
    """The commands of the page in order: lines that begin with `$`, with their continuation lines."""
    return [match[1] for match in _COMMAND.finditer(page)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--grafana", default="http://127.0.0.1:3000", help="dashboards of the lab")
    parser.add_argument("--traces", default="http://127.0.0.1:4318", help="trace store of the lab")
    parser.add_argument("--run", type=Path, default=Path(".lab/run"), help="directory of the lab")
    parser.add_argument("--trace", required=True, help="the trace id of the page")
    parser.add_argument("--request", required=True, help="the request id of the page")
    arguments = parser.parse_args()
    around = ("requests", f"{arguments.run}/requests.jsonl", "--around", arguments.request, "--limit", "5")
    asyncio.run(_pictures(arguments, _terminal(around)))


async def _pictures(arguments: argparse.Namespace, log: str) -> None:
    async with browser() as tab:
        overview = f"{arguments.grafana}/slo-overview?var-class=siso&from=now-5m&to=now"
        await _panel(tab, overview, "Firing alerts", "page-alert.png")
        objective = f"{arguments.grafana}/slo-objective?var-class=siso&var-slo=ttft&from=now-5m&to=now"
        await _panel(tab, objective, "Burn rate", "page-panel.png")
        anatomy = f"{arguments.grafana}/slo-requests?var-class=siso&from=now-5m&to=now"
        await _panel(tab, anatomy, "Time to first token: spread", "page-exemplar.png")
        await _page(tab, f"{arguments.traces}/traces/{arguments.trace}", "document.body", "page-trace.png")
        worst = "class=siso&slo=ttft&verdict=bad&since=5m&sort=slowest&limit=5"
        await _page(tab, f"{arguments.traces}/?{worst}", "document.body", "page-worst.png")
        url = "data:text/html;base64," + base64.b64encode(log.encode()).decode()
        await _page(tab, url, "document.querySelector('pre')", "page-log.png")


async def _panel(tab: Tab, url: str, title: str, name: str) -> None:
    """One panel of a dashboard of the preview."""
    await tab.show(url)
    find = f"[...document.querySelectorAll('.panel')].find((each) => each.innerText.trim().startsWith({title!r}))"
    await _save(tab, find, name)


async def _page(tab: Tab, url: str, element: str, name: str) -> None:
    """One element of any other page."""
    await tab.send("Emulation.setDeviceMetricsOverride", width=_WIDTH, height=100, deviceScaleFactor=1, mobile=False)
    await tab.send("Page.navigate", url=url)
    await tab.wait_for(f"location.href === {url!r} && document.readyState === 'complete'")
    await _save(tab, element, name)


def _terminal(flags: tuple[str, ...]) -> str:
    """A page with the output of a command as a terminal shows it."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": "110", "TZ": "UTC"}
    run = subprocess.run(["vllm-slo", *flags], capture_output=True, text=True, check=True, env=environment)
    console = Console(record=True, width=110, file=StringIO())
    console.print(Text.from_ansi(f"$ vllm-slo {' '.join(flags)}\n{run.stdout}".rstrip()), soft_wrap=True)
    return _TERMINAL.format(code=console.export_html(theme=MONOKAI, inline_styles=True, code_format="{code}"))


async def _save(tab: Tab, element: str, name: str) -> None:
    box = await tab.evaluate(
        f"(() => {{ const box = ({element}).getBoundingClientRect(); return "
        "{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1} })()"
    )
    picture = await tab.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=box)
    path = PICTURES / name
    path.write_bytes(base64.b64decode(picture["data"]))
    print(path, path.stat().st_size)


if __name__ == "__main__":
    main()
