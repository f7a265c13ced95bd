"""Writes the pictures of README and docs from one recorded demo: `make pictures`."""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from datetime import datetime
from io import StringIO
from pathlib import Path
from urllib.parse import urlencode

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from compose.demo.checks import PAGE as PAGED
from compose.lab.ports import free_ports
from compose.lab.run_directory import RunDirectory
from compose.lab.services import OURS, PREVIEW_SCRAPES
from compose.programs.tools import find_tools
from dashboards.preview.chromium import Tab, browser
from loadgen.results import record

PAGE = Path(__file__).parent / "from-a-page-to-the-request.md"
PICTURES = Path(__file__).parent / "pictures"
_COMMAND = re.compile(r"^ {4}\$ ((?:.*\\\n)*.*)$", re.MULTILINE)
_WIDTH, _HEIGHT, _COLUMNS = 1180, 1530, 120
_TERMINAL = """<!doctype html><body style="margin:0;background:#101418"><pre style="margin:0;padding:14px 18px;
display:inline-block;color:#d6dde4;font:13px/1.4 'DejaVu Sans Mono',monospace">{code}</pre>"""
_PAGE_SHOWN = 15.0
"""Seconds after the arrival of the page: it fires, and nothing has been changed yet."""
_TIMED = re.compile(r" *\d+\.\d s  ")
_ENVIRONMENT = {**os.environ, "COLUMNS": f"{_COLUMNS}", "TZ": "UTC"}


def commands(page: str) -> list[str]:
    """The commands of the page in order: lines that begin with `$`, with their continuation lines."""
    return [match[1] for match in _COMMAND.finditer(page)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path(".lab/pictures"), help="directory of the recorded demo")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="directory of the pictures")
    parser.add_argument("--keep", action="store_true", help="draw the demo that the directory has; record none")
    arguments = parser.parse_args()
    run = RunDirectory(arguments.run.absolute())
    log = run.root / "demo.log"
    if not arguments.keep:
        run.root.mkdir(parents=True, exist_ok=True)
        log.write_text(_output("demo", "--out", f"{run.root}", "--ports", "auto"), encoding="utf-8")
    # without the tables, which are wider than a picture can show
    lines = [each for each in log.read_text(encoding="utf-8").splitlines() if _TIMED.match(each)]
    _write_svg("\n".join(lines).replace(f"{Path.cwd()}/", ""), arguments.pictures / "demo.svg")
    with _stores(run) as (prometheus, traces):
        asyncio.run(_pictures(run, prometheus, traces, arguments.pictures))


@contextlib.contextmanager
def _stores(run: RunDirectory) -> Iterator[tuple[str, str]]:
    """The URLs of Prometheus and of the trace store with the data of the demo."""
    ports, empty = free_ports(), run.root / "no-targets.yml"
    empty.write_text("{}")
    programs: list[list[str]] = [
        [
            f"{find_tools().prometheus}",
            f"--config.file={empty}",
            f"--storage.tsdb.path={run.prometheus_data}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address={ports.address('prometheus')}",
            "--enable-feature=exemplar-storage",
        ],
        [
            *(*OURS, "traces", "--keep", "520w", "--trace-file", f"{run.traces}/traces.db"),
            *("--listen", ports.address("traces")),
        ],
    ]
    with contextlib.ExitStack() as stack, (run.root / "stores.log").open("wb") as log:
        for program in programs:
            stack.callback(_stop, subprocess.Popen(program, stdout=log, stderr=log))
        for url in (f"{ports.url('prometheus')}/-/ready", f"{ports.url('traces')}/api/traces"):
            _wait_for(url)
        yield ports.url("prometheus"), ports.url("traces")


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def _wait_for(url: str, limit: float = 60.0) -> bytes:
    deadline = time.monotonic() + limit
    while True:
        with contextlib.suppress(OSError):
            return _fetch(url)
        if time.monotonic() > deadline:
            sys.exit(f"{url}: no response within {limit:g} s")
        time.sleep(0.2)


def _fetch(url: str) -> bytes:
    with urllib.request.urlopen(url) as response:  # noqa: S310 - a loopback address
        return bytes(response.read())


async def _pictures(run: RunDirectory, prometheus: str, traces: str, out: Path) -> None:
    start = record.read_run(run.load).start
    if start is None:
        raise SystemExit(f"{run.load}: the load has not started; record the demo again")
    paged, end = _paged(run), max(run.request_log.stat().st_mtime, start)
    when = ["--prometheus", prometheus, "--scrape-interval", PREVIEW_SCRAPES, "--since", f"{start:.0f}"]
    incident = ["--until", f"{paged + _PAGE_SHOWN:.0f}", "--out", f"{run.root}/incident"]
    _output("dashboards", "preview", *when, *incident)
    siso = [*incident[:-1], f"{run.root}/siso", "--var", f"class={PAGED['class']}"]
    _output("dashboards", "preview", *when, *siso)
    _output("dashboards", "preview", *when, "--until", f"{end:.0f}", "--out", f"{run.dashboards}")
    _output("load", "report", f"{run.load}", "--html", f"{run.root}/report.html")
    worst = {"class": PAGED["class"], "slo": PAGED["slo"], "verdict": "bad", "sort": "slowest", "limit": 5}
    search = urlencode({**worst, "since": f"{start:.0f}", "until": f"{paged + _PAGE_SHOWN:.0f}"})
    listed = json.loads(_fetch(f"{traces}/api/traces?{search}"))["requests"]
    # one that the restart did not end
    slowest = next(each for each in listed if each["outcome"] == "ok")
    around = ("requests", "--request-log", f"{run.request_log}", "--around", slowest["request_id"], "--limit", "5")
    async with browser() as tab:
        for whole in sorted(run.dashboards.glob("*.html")):
            during = whole.stem == "slo-overview"
            await tab.show((run.root / "incident" / whole.name if during else whole).as_uri())
            _save(out / f"{whole.stem}.png", await tab.screenshot())
        for page, title, name in (
            ("slo-overview", "Firing alerts", "page-alert.png"),
            ("slo-objective", "Burn rate", "page-panel.png"),
            ("slo-requests", "Time to first token: spread", "page-exemplar.png"),
        ):
            await tab.show((run.root / "siso" / f"{page}.html").as_uri())
            await tab.evaluate("document.querySelectorAll('.section.closed > button').forEach((each) => each.click())")
            await tab.wait_for("[...document.querySelectorAll('.panel')].every((panel) => panel.dataset.drawn)")
            find = (
                f"[...document.querySelectorAll('.panel')].find((each) => each.innerText.trim().startsWith({title!r}))"
            )
            await _element(tab, find, out / name)
        for url, element, name in (
            (f"{traces}/traces/{slowest['trace_id']}", "document.body", "page-trace.png"),
            (f"{traces}/?{search}", "document.body", "page-worst.png"),
            (_terminal(around), "document.querySelector('pre')", "page-log.png"),
            ((run.root / "report.html").as_uri(), "document.body", "load-report.png"),
        ):
            await _page(tab, url, element, out / name)
    print(f"shown: trace {slowest['trace_id']}, request {slowest['request_id']}")


def _paged(run: RunDirectory) -> float:
    """The arrival of the first page for the SLO of the demo, in unix seconds."""
    for line in run.notifications.read_text(encoding="utf-8").splitlines():
        page = json.loads(line)
        if page["status"] == "firing" and PAGED.items() <= page["labels"].items():
            arrived = page["arrived"]
            return datetime.fromisoformat(arrived).timestamp() if isinstance(arrived, str) else float(arrived)
    raise SystemExit(f"{run.notifications}: no page for {PAGED}; record the demo again")


async def _page(tab: Tab, url: str, element: str, path: Path) -> None:
    """One element of a page that is not a dashboard."""
    await tab.send("Emulation.setDeviceMetricsOverride", width=_WIDTH, height=100, deviceScaleFactor=1, mobile=False)
    await tab.send("Page.navigate", url=url)
    await tab.wait_for(f"location.href === {url!r} && document.readyState === 'complete'")
    await _element(tab, element, path)


async def _element(tab: Tab, element: str, path: Path) -> None:
    box = await tab.evaluate(
        f"(() => {{ const box = ({element}).getBoundingClientRect(); return "
        "{x: box.x + scrollX, y: box.y + scrollY, width: box.width, height: box.height, scale: 1} })()"
    )
    if element == "document.body":
        box["height"] = min(box["height"], _HEIGHT)
    picture = await tab.send("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=box)
    _save(path, base64.b64decode(picture["data"]))


def _save(path: Path, picture: bytes) -> None:
    path.write_bytes(picture)
    print(path, len(picture), flush=True)


def _output(*flags: str, **environment: str) -> str:
    """The output of a command of ours, which must succeed."""
    run = subprocess.run(
        [*OURS, *flags], stdout=subprocess.PIPE, text=True, check=False, env={**_ENVIRONMENT, **environment}
    )
    if run.returncode:
        sys.exit(f"{run.stdout}\nvllm-slo {' '.join(flags)}: exit status {run.returncode}")
    return run.stdout


def _recorded(text: str) -> Console:
    console = Console(record=True, width=_COLUMNS, file=StringIO())
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    return console


def _write_svg(text: str, path: Path) -> None:
    _save(path, _recorded(text).export_svg(title="make demo").encode())


def _terminal(flags: Sequence[str]) -> str:
    """The address of a page with the output of a command as a terminal shows it."""
    shown = [Path(each).name if os.sep in each else each for each in flags]
    html = _recorded(f"$ vllm-slo {' '.join(shown)}\n{_output(*flags, FORCE_COLOR='1')}").export_html(
        theme=MONOKAI, inline_styles=True, code_format="{code}"
    )
    return "data:text/html;base64," + base64.b64encode(_TERMINAL.format(code=html).encode()).decode()


if __name__ == "__main__":
    main()
