"""`vllm-slo dashboards preview`: draws dashboards without Grafana, as files or over HTTP."""

import argparse
import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from aiohttp import web
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from dashboards.live.reader import TimeRange, read_dashboards
from dashboards.preview.chromium import BrowserError, browser
from dashboards.preview.document import document
from dashboards.preview.page import PageSet
from dashboards.preview.server import PreviewServer, Selection
from dashboards.preview.view import View
from exporters.analysis.prometheus_api import Prometheus
from exporters.text.addresses import parse_address
from exporters.text.errors import InvalidValueError, UsageError, parse_flag, system_reason
from exporters.text.output_files import write_file
from exporters.text.units import parse_duration


def preview(
    arguments: argparse.Namespace, prometheus: Prometheus, time_range: Callable[[], TimeRange], refresh: float
) -> int:
    """Write a page per dashboard, or serve the pages; `time_range` evaluates the flags at the current time."""
    dashboards = read_dashboards(arguments.dashboards)
    titles = {name: str(dashboard.get("title") or name) for name, dashboard in dashboards.items()}
    names_by_uid = {str(dashboard["uid"]): name for name, dashboard in dashboards.items() if "uid" in dashboard}
    pages = PageSet(titles, names_by_uid, "*.html")
    defaults, zone = _parse_variables(arguments.var, dashboards), datetime.now().astimezone().tzinfo or UTC

    def draw(name: str, selection: Selection, start: str | None, end: str | None) -> Mapping[str, Any]:
        view = View(parse_time_range(start, end, time_range()), zone, {**defaults, **selection})
        return document(dashboards[name], prometheus, view)

    if arguments.serve is not None:
        address = parse_flag(
            "--serve", arguments.serve, partial(parse_address, example="127.0.0.1:3001", needs_host=True)
        )
        asyncio.run(_serve(PreviewServer(replace(pages, link="*"), draw, refresh), *address))
        return 0
    written = _write(dashboards, pages, prometheus, View(time_range(), zone, defaults), arguments.out)
    if arguments.png:
        asyncio.run(_write_pictures(written, arguments.width, arguments.theme))
    return 0


def parse_time_range(start: str | None, end: str | None, default: TimeRange) -> TimeRange:
    """The time range in a URL: `now`, `now-15m` or unix milliseconds.

    Raises:
        UsageError: a time is none of these, or the start is not before the end.
    """

    def parse_end(text: str) -> float:
        if text == "now":
            return default.end
        if text.isdecimal():
            return int(text) / 1000
        with contextlib.suppress(InvalidValueError):
            if text.startswith("now-"):
                return default.end - parse_duration(text[4:], allow_zero=True)
        raise UsageError(f"{text!r} is not a time; write now, now-15m or unix milliseconds")

    if not start:
        return default
    time_range = TimeRange(parse_end(start), parse_end(end or "now"), default.scrape_interval)
    if time_range.start >= time_range.end:
        raise UsageError(f"{start} is not before {end or 'now'}")
    return time_range


def _write(
    dashboards: Mapping[str, Mapping[str, Any]], pages: PageSet, prometheus: Prometheus, view: View, out: Path
) -> list[Path]:
    written = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("queries")
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for name, dashboard in dashboards.items():
            task = progress.add_task(pages.titles[name], total=None)
            path = out / f"{name}.html"
            text = pages.standalone_page(name, document(dashboard, prometheus, view, partial(_advance, progress, task)))
            write_file(path, text)
            print(path, flush=True)
            written.append(path)
    return written


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


async def _write_pictures(pages: Sequence[Path], width: int, theme: str) -> None:
    """Write a PNG next to each page."""
    async with browser() as tab:
        for page in pages:
            path = page.with_suffix(".png")
            try:
                await tab.show(page.absolute().as_uri(), width, theme)
                path.write_bytes(await tab.screenshot())
            except BrowserError as error:
                raise UsageError(f"--png: {page}: {error}") from error
            print(f"{path} ({theme}, {width} px wide)", flush=True)


async def _serve(server: PreviewServer, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise UsageError(f"--serve: cannot listen on {host}:{port}: {system_reason(error)}") from error
    runner = web.AppRunner(server.application(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listener).start()
        print(f"http://{host}:{listener.getsockname()[1]}/ (press ctrl-c to stop)", flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def _parse_variables(flags: Sequence[str], dashboards: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    names = {
        str(each["name"])
        for dashboard in dashboards.values()
        for each in (dashboard.get("templating") or {}).get("list") or []
    }
    selection: dict[str, tuple[str, ...]] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise UsageError(f"--var: {flag!r} is not NAME=VALUE, such as class=siso")
        if name not in names:
            raise UsageError(f"--var: no dashboard has a variable {name!r}; available: {', '.join(sorted(names))}")
        selection[name] = (*selection.get(name, ()), value)
    return selection
