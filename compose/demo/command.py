"""`vllm-slo demo`: an overload, a page, a config change that resolves the alert, and checks of all figures."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlencode

import msgspec

from alerts.links import DashboardUid
from compose.demo import checks as demo_checks
from compose.demo import cross_check, report, request_log_totals, trace_checks
from compose.demo.checks import Check, Times
from compose.lab import ports
from compose.lab.console import LabConsole, terminal
from compose.lab.run_directory import RunDirectory
from compose.lab.running import Lab, running
from compose.lab.services import OURS, PREVIEW_SCRAPES, LabConfig
from compose.lab.up import add_place_flags
from compose.processes import interrupt
from compose.processes.child_processes import ChildProcess, ServiceFailedError
from compose.programs.tools import Tools, find_tools
from dashboards.boards.annotations import config_change_query
from dashboards.live.interpolation import expand, intervals
from dashboards.panels.range_totals import range_total_queries
from exporters.analysis.estimates.windows import Window
from exporters.analysis.prometheus_api import PrometheusError
from exporters.analysis.traces.request_search import parse_search
from exporters.analysis.traces.server import FoundRequests, FoundTrace
from exporters.analysis.traces.span_parser import request_of
from exporters.exposition.histogram_bounds import bounds
from exporters.requestlog.entry import LogEntry
from exporters.text.errors import UsageError
from exporters.vocabulary import signals, slo_file
from exporters.vocabulary.slo_file import SloFile
from loadgen.results import record
from loadgen.schedule import scenario

_T = TypeVar("_T")

SCENARIO = "demo"
_PAGE_SHOWN = 20.0  # between the page and the config change
_AFTER_RESOLVED = 15.0
_AFTER_CHANGE = 75.0  # minimum length of the last window
_SETTLE_TIMEOUT = 20.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_place_flags(parser)
    parser.add_argument("--png", action="store_true", help="also render the dashboards as PNG images, with Chromium")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 when every check passed, 1 when a check or a service failed."""
    scenario_file = scenario.find(SCENARIO)
    config = LabConfig(
        directory=RunDirectory(Path(arguments.out).absolute()),
        ports=ports.parse_ports(arguments.ports),
        simulator=("--no-enable-prefix-caching",),
        scenario=str(scenario_file),
        # Longer than the demo, which stops the load itself.
        load=("--duration", "15m", "--grace", "20s"),
        pictures=arguments.png,
    )
    spec = slo_file.load(config.slos)
    baseline = scenario.load(scenario_file).phases[0].duration
    console = LabConsole(terminal())
    try:
        checks = interrupt.run(_demo(config, spec, find_tools(report=console.print_line), console, baseline))
    except interrupt.InterruptedBySignalError as stopped:
        console.print_line(f"{stopped}: all processes have been stopped")
        return stopped.exit_code
    except (ServiceFailedError, PrometheusError) as error:
        print(f"vllm-slo: {error}", file=sys.stderr)
        return 1
    failed = sum(not check.passed for check in checks)
    console.console.print(report.check_table(checks))
    _print_results(console, config)
    console.print_line(
        f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks passed",
        "bold red" if failed else "bold green",
    )
    return 1 if failed else 0


async def _demo(config: LabConfig, spec: SloFile, tools: Tools, console: LabConsole, baseline: float) -> list[Check]:
    console.print_line(
        "starting the lab: simulated vLLM without prefix caching, sidecar, Prometheus, Alertmanager, traces"
    )
    async with running(config, spec, tools, console.print_line, console.print_notification) as lab:
        load = await lab.start_load(str(config.scenario))
        return await lab.processes.during(_run_and_check(lab, load, console, baseline))


async def _run_and_check(lab: Lab, load: ChildProcess, console: LabConsole, baseline: float) -> list[Check]:
    display = asyncio.ensure_future(console.follow(lab))
    try:
        times = await _run_phases(lab, load, console, baseline)
    finally:
        display.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await display
    return await _check(lab, times, console)


async def _run_phases(lab: Lab, load: ChildProcess, console: LabConsole, baseline: float) -> Times:
    """Run the phases of the demo until the load has stopped."""
    notifications = lab.notifications.received
    dashboard = f"{lab.config.ports.url('grafana')}/d/{{}}".format
    start = await _load_start(lab)
    overload = start + baseline
    console.print_line(f"1. baseline: {baseline:.0f} s of load within the engine's capacity", "bold")
    console.print_line(f"   look at {dashboard(DashboardUid.OVERVIEW)}: no error budget burns")
    await _sleep_until(overload)
    console.print_line(
        "2. overload: the load exceeds the prefill capacity without a prefix cache, so requests queue", "bold"
    )
    console.print_line(f"   look at {dashboard(DashboardUid.WORKLOAD)}: goodput falls, output tokens/s do not")
    page = await _wait_for(lambda: demo_checks.page_arrived(notifications, overload), demo_checks.PAGE_WITHIN)
    if page is None:
        console.print_line(f"no page within {demo_checks.PAGE_WITHIN:.0f} s; the demo continues", "bold red")
    else:
        console.print_line(
            f"3. page: received by the webhook {page.arrived_at - overload:.0f} s after the start of the overload",
            "bold",
        )
        for key, value in sorted(page.annotations.items()):
            console.print_line(f"   {key}: {value}")
        await asyncio.sleep(_PAGE_SHOWN)
    config_change = time.time()
    console.print_line(f"4. config change: {demo_checks.SETTING} is set to true, and the engine restarts", "bold")
    async with lab.http.post(f"{lab.config.upstream}/simulator/config", json={demo_checks.SETTING: True}) as response:
        response.raise_for_status()
    console.print_line("   the restart fails the waiting requests, so availability may page as well")
    console.print_line(
        f"   look at {dashboard(DashboardUid.CONFIG_CHANGE)}: the change is marked, with before and after"
    )
    resolved = await _wait_for(
        lambda: demo_checks.resolved_at(notifications, config_change), demo_checks.RESOLVED_WITHIN
    )
    if resolved is None:
        console.print_line(f"alert not resolved within {demo_checks.RESOLVED_WITHIN:.0f} s", "bold red")
    else:
        console.print_line(
            f"5. resolved: {resolved - config_change:.0f} s after the config change, under the same load", "bold"
        )
        await _sleep_until(max(resolved + _AFTER_RESOLVED, config_change + _AFTER_CHANGE))
    stop = time.time()
    console.print_line("6. end of the load; open requests finish", "bold")
    await load.stop()
    return Times(start, overload, config_change, stop)


async def _check(lab: Lab, times: Times, console: LabConsole) -> list[Check]:
    directory, spec = lab.config.directory, lab.spec
    classes = [each.name for each in spec.classes]
    await _wait_until_settled(lab)
    requests = request_log_totals.read(directory.request_log)
    windows = times.windows
    figures = {name: request_log_totals.figures(requests, classes, window) for name, window in windows.items()}
    console.console.print(report.before_and_after(figures, {name: each.seconds for name, each in windows.items()}))
    siso = {name: next(row for row in rows if row.name == demo_checks.PAGE["class"]) for name, rows in figures.items()}
    notifications = lab.notifications.received
    now = time.time()
    dashboard = await _dashboard(lab, times.load - 2, now)
    comparisons = cross_check.compare(
        dashboard,
        requests,
        cross_check.of_load(record.read_records(directory.load)),
        classes,
        bounds(signals.TTFT, spec),
    )
    (directory.root / "cross-check.json").write_bytes(msgspec.json.format(msgspec.json.encode(comparisons)))
    return [
        demo_checks.goodput_falls(siso["baseline"], siso["overload"]),
        demo_checks.tokens_stay(
            await _output_tokens(lab, windows["baseline"]), await _output_tokens(lab, windows["overload"])
        ),
        demo_checks.page_in_time(notifications, times.overload),
        demo_checks.resolved_in_time(notifications, times.config_change),
        demo_checks.few_pages_opened(notifications),
        demo_checks.recovers(siso["overload"], siso["after change"]),
        demo_checks.config_change_drawn(
            await asyncio.to_thread(lab.prometheus.query, str(config_change_query()), now), times.config_change
        ),
        *cross_check.checks(comparisons),
        *await _check_traces(lab, times, requests),
        await _audit(lab, times),
        await _render(lab, times, console),
    ]


async def _check_traces(lab: Lab, times: Times, entries: Sequence[LogEntry]) -> list[Check]:
    store = lab.config.ports.url("traces")
    query = urlencode(
        {
            "query": f'{signals.TTFT.name}_bucket{{class="{demo_checks.PAGE["class"]}"}}',
            "start": f"{times.overload:.3f}",
            "end": f"{times.stop:.3f}",
        }
    )
    response = await _get(lab, f"{lab.config.ports.url('prometheus')}/api/v1/query_exemplars?{query}", Any)
    exemplars = trace_checks.exemplars(response)
    deadline = time.monotonic() + _SETTLE_TIMEOUT  # the sidecar sends spans in batches
    while time.monotonic() < deadline:
        if (await _get(lab, f"{store}/api/traces", FoundRequests)).found >= len(entries):
            break
        await asyncio.sleep(0.5)
    page = demo_checks.page_arrived(lab.notifications.received, times.overload)
    link = trace_checks.alert_link(page, times.config_change)[1:]
    search = parse_search(parse_qsl(link[1:]), time.time())
    linked = await _get(lab, f"{store}/api/traces{link}", FoundRequests)
    worst = await _get(lab, f"{store}/api/traces{trace_checks.worst_link()[1:]}", FoundRequests)
    ids = {*(each.trace_id for each in exemplars), *(each.trace_id for each in worst.requests)}
    pages = {each: await _trace_page(lab, store, each) for each in sorted(ids)}
    return [
        trace_checks.exemplars_resolve(exemplars, pages),
        trace_checks.alert_link_lists(search, linked, entries),
        trace_checks.worst_resolve(worst.requests, pages, entries),
    ]


async def _trace_page(lab: Lab, store: str, trace_id: str) -> trace_checks.Page:
    async with lab.http.get(f"{store}/traces/{trace_id}") as page:
        if page.status != 200:
            return trace_checks.Page(page.status, ())
    trace = await _get(lab, f"{store}/api/traces/{trace_id}", FoundTrace)
    return trace_checks.Page(page.status, [request for span in trace.spans if (request := request_of(span))])


async def _get(lab: Lab, url: str, kind: type[_T]) -> _T:
    async with lab.http.get(url) as response:
        response.raise_for_status()
        return msgspec.json.decode(await response.read(), type=kind)


async def _load_start(lab: Lab) -> float:
    """The start of the load run in unix seconds, once it has started."""
    while True:
        with contextlib.suppress(UsageError):  # missing, or partly written
            if start := record.read_run(lab.config.directory.load).start:
                return start
        await asyncio.sleep(0.2)


async def _wait_until_settled(lab: Lab) -> None:
    """Wait until Prometheus has scraped the end of every request."""
    previous, deadline = -1.0, time.monotonic() + _SETTLE_TIMEOUT
    while time.monotonic() < deadline:
        await asyncio.sleep(1.5)
        open_ = await asyncio.to_thread(lab.prometheus.query, f"sum({signals.IN_FLIGHT.name})")
        ended = await asyncio.to_thread(lab.prometheus.query, f"sum({signals.REQUESTS.name})")
        count = ended[0].value if ended else -1.0
        if open_ and open_[0].value == 0 and count == previous:
            return
        previous = count


async def _dashboard(lab: Lab, start: float, end: float) -> dict[str, dict[str, float]]:
    values = intervals(end - start, lab.spec.scrape_interval)
    return {
        name: {key: value for key, value in by_class.items() if value == value}  # noqa: PLR0124 - NaN means no traffic
        for name, expression in range_total_queries().items()
        for by_class in [
            await asyncio.to_thread(lab.prometheus.query_by, signals.Label.CLASS, expand(str(expression), values), end)
        ]
    }


async def _output_tokens(lab: Lab, window: Window) -> float:
    """Output tokens/s by the engine's counter; 0 without samples."""
    expression = f"sum(rate({signals.ENGINE_GENERATION_TOKENS.name}[{window.seconds:.0f}s]))"
    samples = await asyncio.to_thread(lab.prometheus.query, expression, window.end)
    return samples[0].value if samples else 0.0


async def _audit(lab: Lab, times: Times) -> Check:
    """Audit the dashboards at the end of the load, when instant panels have values."""
    code, last = await _dashboards(lab, times, "audit", "--scrape-interval", "1s")
    return Check("dashboards audit finds no empty panel", last, code == 0)


async def _render(lab: Lab, times: Times, console: LabConsole) -> Check:
    """Render the dashboards as HTML files that do not need Prometheus."""
    console.print_line("rendering the dashboards to files")
    flags = ("--scrape-interval", PREVIEW_SCRAPES, "--out", str(lab.config.directory.dashboards))
    code, last = await _dashboards(lab, times, "preview", *flags, *(["--png"] if lab.config.pictures else []))
    return Check("every dashboard is rendered", last, code == 0)


async def _dashboards(lab: Lab, times: Times, action: str, *flags: str) -> tuple[int, str]:
    """Exit status and last line of `vllm-slo dashboards` over the time of the load."""
    when = ("--since", f"{times.load:.0f}", "--until", f"{times.stop:.0f}")
    process = await asyncio.create_subprocess_exec(
        *(*OURS, "dashboards", action, "--prometheus", lab.config.ports.url("prometheus"), *when, *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    (lab.config.directory.logs / f"{action}.log").write_bytes(output)
    lines = output.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else "no output"


async def _sleep_until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


async def _wait_for(find: Callable[[], _T | None], within: float) -> _T | None:
    deadline = time.monotonic() + within
    while (value := find()) is None and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return value


def _print_results(console: LabConsole, config: LabConfig) -> None:
    root = config.directory.root
    for text in (
        f"request log:               {config.directory.request_log}",
        f"notifications:             {config.directory.notifications}",
        f"traces:                    vllm-slo traces --keep 1w --trace-file {config.directory.traces / 'traces.db'}",
        f"report of the load run:    vllm-slo load report {config.directory.load}",
        f"cross-check, every class:  {root / 'cross-check.json'}",
        f"dashboard audit:           {config.directory.logs / 'audit.log'}",
        f"rendered dashboards:       {config.directory.dashboards / 'slo-overview.html'}",
        "start the lab yourself:    vllm-slo up",
    ):
        console.print_line(text)
