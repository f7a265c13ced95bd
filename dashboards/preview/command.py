"""`vllm-slo dashboards preview`: pages for those who have no Grafana, written to a folder or served."""

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

from dashboards.audit import Span, read_trees
from dashboards.preview.chromium import BrowserError, browser
from dashboards.preview.document import document
from dashboards.preview.html_page import Pages
from dashboards.preview.preview_server import Choices, Served
from dashboards.preview.view_state import View
from exporters.addresses import parse_address
from exporters.errors import InvalidValueError, UsageError, parse_flag, system_reason
from exporters.prometheus_api import Prometheus
from exporters.quantities import parse_duration


def preview(arguments: argparse.Namespace, prometheus: Prometheus, span: Callable[[], Span], refresh: float) -> int:
    """Write a page for each dashboard, or serve them; `span` gives the time range of the flags as of now."""
    trees = read_trees(arguments.dashboards)
    titles = {name: str(tree.get("title") or name) for name, tree in trees.items()}
    pages = Pages(titles, {str(tree["uid"]): name for name, tree in trees.items() if "uid" in tree}, "*.html")
    chosen, zone = _chosen(arguments.var, trees), datetime.now().astimezone().tzinfo or UTC

    def draw(name: str, choices: Choices, start: str | None, end: str | None) -> Mapping[str, Any]:
        return document(trees[name], prometheus, View(between(start, end, span()), zone, {**chosen, **choices}))

    if arguments.serve is not None:
        address = parse_flag(
            "--serve", arguments.serve, partial(parse_address, example="127.0.0.1:3001", needs_host=True)
        )
        asyncio.run(_serve(Served(replace(pages, link="*"), draw, refresh), *address))
        return 0
    written = _write(trees, pages, prometheus, View(span(), zone, chosen), arguments.out)
    if arguments.png:
        asyncio.run(_pictures(written))
    return 0


def between(start: str | None, end: str | None, otherwise: Span) -> Span:
    """The time range of an address: `now`, `now-15m` or unix milliseconds.

    Raises:
        UsageError: an end is none of these, or they are the wrong way round.
    """

    def moment(text: str) -> float:
        if text == "now":
            return otherwise.end
        if text.isdecimal():
            return int(text) / 1000
        with contextlib.suppress(InvalidValueError):
            if text.startswith("now-"):
                return otherwise.end - parse_duration(text[4:], allow_zero=True)
        raise UsageError(f"{text!r} is no time; write now, now-15m or unix milliseconds")

    if not start:
        return otherwise
    span = Span(moment(start), moment(end or "now"), otherwise.scrape_interval)
    if span.start >= span.end:
        raise UsageError(f"{start} is not before {end or 'now'}")
    return span


def _write(
    trees: Mapping[str, Mapping[str, Any]], pages: Pages, prometheus: Prometheus, view: View, out: Path
) -> list[Path]:
    written = []
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("queries")
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for name, tree in trees.items():
            task = progress.add_task(pages.titles[name], total=None)
            told = partial(_advance, progress, task)
            path = out / f"{name}.html"
            text = pages.whole(name, document(tree, prometheus, view, told))
            try:
                out.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{path}: cannot be written: {system_reason(error)}") from error
            print(path, flush=True)
            written.append(path)
    return written


def _advance(progress: Progress, task: TaskID, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


async def _pictures(pages: Sequence[Path]) -> None:
    """A PNG beside each page."""
    async with browser() as tab:
        for page in pages:
            path = page.with_suffix(".png")
            try:
                await tab.show(page.absolute().as_uri())
                path.write_bytes(await tab.picture())
            except BrowserError as error:
                raise UsageError(f"--png: {page}: {error}") from error
            print(path, flush=True)


async def _serve(served: Served, host: str, port: int) -> None:
    """Until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise UsageError(f"--serve: cannot listen on {host}:{port}: {system_reason(error)}") from error
    runner = web.AppRunner(served.application(), access_log=None)
    await runner.setup()
    try:
        await web.SockSite(runner, listening).start()
        print(f"http://{host}:{listening.getsockname()[1]}/ (ctrl-c ends it)", flush=True)
        await stop.wait()
    finally:
        await runner.cleanup()


def _chosen(flags: Sequence[str], trees: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    known = {str(each["name"]) for tree in trees.values() for each in (tree.get("templating") or {}).get("list") or []}
    chosen: dict[str, tuple[str, ...]] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals:
            raise UsageError(f"--var: {flag!r} is no NAME=VALUE, such as class=siso")
        if name not in known:
            raise UsageError(f"--var: no dashboard has a variable {name!r}; there are: {', '.join(sorted(known))}")
        chosen[name] = (*chosen.get(name, ()), value)
    return chosen
