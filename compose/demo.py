"""`vllm-slo demo`: an SLO burns, a page arrives, a flag is flipped, the alert resolves, and the figures are checked."""

import argparse
import asyncio
import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from compose import cross_check, demo_checks, demo_report, interrupt, ports, request_log_totals
from compose.child_processes import Child, ServiceFailedError
from compose.console import Screen, terminal
from compose.demo_checks import Check, Times
from compose.lab import Lab, running
from compose.prometheus_tools import Tools, find_tools
from compose.run_directory import RunFolder
from compose.services import OURS, PREVIEW_SCRAPES, LabConfig
from compose.up import add_place_flags
from dashboards.annotation_queries import flip_query
from dashboards.interpolation import expand, intervals
from dashboards.panels.range_totals import truth_queries
from exporters import signals, slos
from exporters.comparison.comparison_windows import Window
from exporters.exposition.histogram_bounds import bounds
from exporters.prometheus_api import PrometheusError
from exporters.slos import SloFile
from loadgen import request_record, scenario

_T = TypeVar("_T")

SCENARIO = "demo"
_SHOW_PAGE = 60.0  # the page stands for a while, as it would at night
_AFTER_RESOLVED = 30.0
_AFTER_FLIP = 120.0  # at least: the window after the flip must hold enough requests to speak of
_EMPTY_WITHIN = 20.0


def configure(parser: argparse.ArgumentParser) -> None:
    add_place_flags(parser)
    parser.add_argument("--png", action="store_true", help="also draw the dashboards as pictures, through Chromium")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0 when every promise was kept, 1 when one was not or a service failed."""
    chosen = scenario.find(SCENARIO)
    config = LabConfig(
        folder=RunFolder(Path(arguments.dir).absolute()),
        ports=ports.parse_ports(arguments.ports),
        simulator=("--no-enable-prefix-caching",),
        scenario=str(chosen),
        # The story stops the load; the last phase must outlast it.
        load=("--duration", "15m", "--grace", "30s"),
        pictures=arguments.png,
    )
    spec = slos.load(config.slos)
    baseline = scenario.load(chosen).phases[0].duration
    screen = Screen(terminal())
    try:
        checks = interrupt.run(_demo(config, spec, find_tools(), screen, baseline))
    except interrupt.InterruptedBySignalError as stopped:
        screen.say(f"{stopped}: everything has been stopped")
        return stopped.exit_code
    except (ServiceFailedError, PrometheusError) as error:
        print(f"vllm-slo: {error}", file=sys.stderr)
        return 1
    broken = sum(not check.kept for check in checks)
    screen.console.print(demo_report.promises(checks))
    _where_next(screen, config)
    screen.say(
        f"{broken} of {len(checks)} promises broken" if broken else f"all {len(checks)} promises kept",
        "bold red" if broken else "bold green",
    )
    return 1 if broken else 0


async def _demo(config: LabConfig, spec: SloFile, tools: Tools, screen: Screen, baseline: float) -> list[Check]:
    screen.say("the lab starts: a simulated vLLM, prefix caching off, behind the sidecar; Prometheus, Alertmanager")
    async with running(config, spec, tools, screen.say, screen.arrived) as lab:
        load = await lab.offer(str(config.scenario))
        return await lab.during(_tell(lab, load, screen, baseline))


async def _tell(lab: Lab, load: Child, screen: Screen, baseline: float) -> list[Check]:
    following = asyncio.ensure_future(screen.follow(lab))
    try:
        times = await _play(lab, load, screen, baseline)
    finally:
        following.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await following
    return await _judge(lab, times, screen)


async def _play(lab: Lab, load: Child, screen: Screen, baseline: float) -> Times:
    """The story itself, up to the end of the load."""
    inbox = lab.inbox.notifications
    began = await _load_start(lab)
    overload = began + baseline
    screen.say(f"1. baseline: {baseline:.0f} s of load that the engine carries", "bold")
    await _until(overload)
    screen.say("2. overload: more than the engine can prefill without a prefix cache; users wait", "bold")
    page = await _appears(lambda: demo_checks.page_arrived(inbox, overload), demo_checks.PAGE_WITHIN)
    if page is None:
        screen.say(
            f"no page within {demo_checks.PAGE_WITHIN:.0f} s; the story goes on to show where it ends", "bold red"
        )
    else:
        screen.say(f"3. the page is at the webhook, {page.arrived - overload:.0f} s after the overload began", "bold")
        for key, value in sorted(page.annotations.items()):
            screen.say(f"   {key}: {value}")
        await asyncio.sleep(_SHOW_PAGE)
    flip = time.time()
    screen.say(f"4. the remedy: {demo_checks.SETTING} is flipped on; the engine restarts with it", "bold")
    await _flip(lab)
    screen.say("   whoever was waiting has failed with the restart: expect availability to page for it as well")
    resolved = await _appears(lambda: demo_checks.resolved_at(inbox, flip), demo_checks.RESOLVED_WITHIN)
    if resolved is None:
        screen.say(f"not resolved within {demo_checks.RESOLVED_WITHIN:.0f} s", "bold red")
    else:
        screen.say(
            f"5. the alert is resolved, {resolved - flip:.0f} s after the flip; the load is still the same", "bold"
        )
        await _until(max(resolved + _AFTER_RESOLVED, flip + _AFTER_FLIP))
    stop = time.time()
    screen.say("6. the load stops; what is open may end", "bold")
    await load.stop()
    return Times(began, overload, flip, stop)


async def _judge(lab: Lab, times: Times, screen: Screen) -> list[Check]:
    folder, spec = lab.config.folder, lab.spec
    classes = [each.name for each in spec.classes]
    await _settled(lab)
    requests = request_log_totals.read(folder.request_log)
    windows = times.windows
    figures = {name: request_log_totals.figures(requests, classes, window) for name, window in windows.items()}
    screen.console.print(demo_report.before_and_after(figures, {name: each.seconds for name, each in windows.items()}))
    siso = {name: demo_checks.of_class(figures, name, demo_checks.PAGE["class"]) for name in windows}
    inbox = lab.inbox.notifications
    now = time.time()
    dashboard = await _dashboard(lab, times.load - 2, now)
    compared = cross_check.compare(
        dashboard,
        requests,
        cross_check.of_load(request_record.read_records(folder.load)),
        classes,
        bounds(signals.TTFT, spec),
    )
    (folder.root / "truth.json").write_bytes(msgspec.json.format(msgspec.json.encode(compared)))
    return [
        demo_checks.goodput_falls(siso["baseline"], siso["overload"]),
        demo_checks.tokens_stay(
            await _engine_tokens(lab, windows["baseline"]), await _engine_tokens(lab, windows["overload"])
        ),
        demo_checks.page_in_time(inbox, times.overload),
        demo_checks.resolved_in_time(inbox, times.flip),
        demo_checks.recovers(siso["overload"], siso["after flip"]),
        demo_checks.flip_drawn(await asyncio.to_thread(lab.prometheus.query, flip_query(), now), times.flip),
        *cross_check.checks(compared),
        await _audit(lab, times),
        await _drawn(lab, times, screen),
    ]


async def _load_start(lab: Lab) -> float:
    """The moment from which the load generator counts; it first asks the relay for the model's name."""
    while True:
        with contextlib.suppress(OSError, msgspec.DecodeError):  # not there, or half written
            run_ = msgspec.json.decode(
                (lab.config.folder.load / request_record.RUN).read_bytes(), type=request_record.Run
            )
            if run_.start:
                return run_.start
        await asyncio.sleep(0.2)


async def _flip(lab: Lab) -> None:
    url = lab.config.upstream + "/simulator/config"
    async with lab.http.post(url, json={demo_checks.SETTING: True}) as response:
        response.raise_for_status()


async def _settled(lab: Lab) -> None:
    """Waits until Prometheus has seen the last request end, so that its counters hold everything."""
    last, give_up = -1.0, time.monotonic() + _EMPTY_WITHIN
    while time.monotonic() < give_up:
        await asyncio.sleep(1.5)
        open_ = await asyncio.to_thread(lab.prometheus.query, f"sum({signals.IN_FLIGHT.name})")
        ended = await asyncio.to_thread(lab.prometheus.query, f"sum({signals.REQUESTS.name})")
        count = ended[0].value if ended else -1.0
        if open_ and open_[0].value == 0 and count == last:
            return
        last = count


async def _dashboard(lab: Lab, start: float, end: float) -> dict[str, dict[str, float]]:
    values = {**intervals(end - start, lab.spec.scrape_interval), "model": ".*", "class": ".*"}
    return {
        name: {key: value for key, value in found.items() if value == value}  # noqa: PLR0124 - NaN is no traffic
        for name, expression in truth_queries().items()
        for found in [
            await asyncio.to_thread(lab.prometheus.query_by, signals.Label.CLASS, expand(expression, values), end)
        ]
    }


async def _engine_tokens(lab: Lab, window: Window) -> float:
    """Tokens/s by the engine's own counters; 0 without any."""
    length = f"{window.seconds:.0f}s"
    parts = (signals.ENGINE_PROMPT_TOKENS, signals.ENGINE_GENERATION_TOKENS)
    expression = " + ".join(f"sum(rate({each.name}[{length}]))" for each in parts)
    samples = await asyncio.to_thread(lab.prometheus.query, expression, window.end)
    return samples[0].value if samples else 0.0


async def _audit(lab: Lab, times: Times) -> Check:
    """The audit as a user would run it, at the moment before the load stopped: panels of "now" are then not empty."""
    code, last = await _dashboards(lab, times, "audit", "--scrape-interval", "1s")
    return demo_checks.panels_filled(code, last)


async def _drawn(lab: Lab, times: Times, screen: Screen) -> Check:
    """Pages for those who want to look at it later, when Prometheus has gone."""
    screen.say("the dashboards are drawn, to be looked at later")
    flags = ("--scrape-interval", PREVIEW_SCRAPES, "--out", str(lab.config.folder.drawn))
    code, last = await _dashboards(lab, times, "preview", *flags, *(["--png"] if lab.config.pictures else []))
    return Check("every dashboard is drawn", last, code == 0)


async def _dashboards(lab: Lab, times: Times, action: str, *flags: str) -> tuple[int, str]:
    """`vllm-slo dashboards` as a user would run it, over the time of the load: its exit code and last line."""
    when = ("--from", f"{times.load:.0f}", "--to", f"{times.stop:.0f}")
    process = await asyncio.create_subprocess_exec(
        *(*OURS, "dashboards", action, "--prometheus", lab.config.ports.url("prometheus"), *when, *flags),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    (lab.config.folder.logs / f"{action}.log").write_bytes(output)
    lines = output.decode(errors="replace").strip().splitlines()
    return process.returncode or 0, lines[-1] if lines else "it said nothing"


async def _until(moment: float) -> None:
    await asyncio.sleep(max(0.0, moment - time.time()))


async def _appears(look: Callable[[], _T | None], within: float) -> _T | None:
    give_up = time.monotonic() + within
    while (found := look()) is None and time.monotonic() < give_up:
        await asyncio.sleep(0.2)
    return found


def _where_next(screen: Screen, config: LabConfig) -> None:
    root = config.folder.root
    for text in (
        f"requests, one a line:      {config.folder.request_log}",
        f"what reached the webhook:  {config.folder.pages}",
        f"the load's own report:     vllm-slo load report {config.folder.load}",
        f"truth check, every class:  {root / 'truth.json'}",
        f"dashboard audit:           {config.folder.logs / 'audit.log'}",
        f"dashboards, as they were:  {config.folder.drawn / 'slo-overview.html'}",
        "the lab, to look around:   vllm-slo up",
    ):
        screen.say(text)
