"""Runs sidecars of an older and of this release behind one Prometheus, as in a rolling update, and prints what differs.

`python -m tests.compose.rolling_update.two_releases --old VENV/bin/vllm-slo`; the older release is installed from its
wheel in an environment of its own. Two Prometheus servers scrape both sidecars: one has the rules of each release.
"""

import argparse
import asyncio
import contextlib
import json
import math
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import aiohttp
from aiohttp import web

from compose.programs.tools import find_tools
from exporters.analysis.prometheus_api import Prometheus
from tests.support.fake_engine import Engine, serving
from tests.support.ports import free_port
from tests.support.prometheus_process import prometheus
from tests.support.waiting import until

SLOS = """
version: 1
period: 12h
scrape_interval: 1s
classes: [{name: chat}]
slos:
  - {name: ttft, classes: [chat], signal: ttft, threshold: 500ms, objective: 95%}
  - {name: availability, classes: [chat], signal: availability, objective: 99%}
alerting: {min_events: {page: 10, ticket: 10}, min_bad: 3}
"""
RANGE = "1m"
QUANTILE = "histogram_quantile(0.95, sum by (le) (rate(%s_bucket%s[" + RANGE + "])))"
HISTOGRAMS = {"llm_time_to_first_token_seconds": "ttft_ms", "llm_request_duration_seconds": "e2e_ms"}
"""Histograms whose bounds differ, and the field of the request log with the same time."""

BURN_RATE = "max by (slo, instance) (llm_slo:error_budget:burn_rate) or max by (slo, instance) (llm_slo:burn_rate)"
RECORDED = 'count by (name) (label_replace({__name__=~"llm_.+:.+"}, "name", "$1", "__name__", "(.+)"))'
NEW = str(Path(sys.executable).with_name("vllm-slo"))


@dataclass
class SpreadEngine(Engine):
    """An engine whose time to first token is between 0.05 s and 3 s, median 0.3 s."""

    delays: random.Random = field(default_factory=lambda: random.Random(40))  # noqa: S311 - not a secret

    async def chat(self, request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(min(3.0, max(0.05, self.delays.lognormvariate(math.log(0.3), 0.8))))
        return await super().chat(request)


@dataclass
class Sidecar:
    release: str
    process: asyncio.subprocess.Process
    port: int
    metrics_port: int
    log: Path

    def page(self) -> str:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as response:
            return str(response.read().decode())

    def times(self, name: str) -> list[float]:
        lines = self.log.read_text().splitlines(keepends=True) if self.log.exists() else []
        found = [json.loads(line).get(name) for line in lines if line.endswith("\n")]
        return [each / 1000 for each in found if each is not None]

    def requests(self) -> int:
        return len(self.log.read_text().splitlines())

    async def stop(self) -> None:
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()


async def start(release: str, program: str, folder: Path, engine: str, metrics_port: int) -> Sidecar:
    found = free_port(), folder / "requests.jsonl"
    words = ["--upstream", engine, "--listen", f"127.0.0.1:{found[0]}", "--metrics", f"127.0.0.1:{metrics_port}"]
    words += ["--slos", str(folder / "slos.yaml"), "--request-log", str(found[1]), "--drain", "5s"]
    with (folder / "stderr").open("w") as stderr:
        process = await asyncio.create_subprocess_exec(program, "sidecar", *words, cwd=folder, stderr=stderr)
    sidecar = Sidecar(release, process, found[0], metrics_port, found[1])

    async def ready() -> bool:
        assert process.returncode is None, (folder / "stderr").read_text()
        with contextlib.suppress(OSError):
            return bool((await asyncio.to_thread(urlopen, f"http://127.0.0.1:{metrics_port}/readyz")).status == 200)
        return False

    await until(ready)
    return sidecar


@contextlib.asynccontextmanager
async def load(sidecar: Sidecar, per_second: float) -> AsyncIterator[None]:
    """Streams at a constant rate, which do not wait for each other."""
    body = {"model": "tiny", "stream": True, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]}

    async def one(session: aiohttp.ClientSession) -> None:
        async with session.post(f"http://127.0.0.1:{sidecar.port}/v1/chat/completions", json=body) as response:
            await response.read()

    async def all_of_them() -> None:
        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
            with contextlib.suppress(asyncio.CancelledError):
                while True:
                    group.create_task(one(session))
                    await asyncio.sleep(1 / per_second)

    task = asyncio.create_task(all_of_them())
    try:
        yield
    finally:
        task.cancel()
        await task


Families = dict[str, tuple[frozenset[str], frozenset[str]]]


def families(page: str) -> Families:
    """Labels and bounds of each family of an exposition; those without a sample have neither."""
    found: dict[str, tuple[set[str], set[str]]] = {name: (set(), set()) for name in re.findall(r"# TYPE (\S+)", page)}
    for name, labels in re.findall(r"^(llm_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? ", page, re.MULTILINE):
        pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)
        family = found.setdefault(name, (set(), set()))
        family[0].update(key for key, _ in pairs if key != "le")
        family[1].update(value for key, value in pairs if key == "le")
    return {name: (frozenset(labels), frozenset(bounds)) for name, (labels, bounds) in found.items()}


def differences(old: Families, new: Families) -> dict[str, str]:
    """What differs, by family; families of Python and of processes are left out."""
    found = {}
    for name in sorted(each for each in old.keys() | new.keys() if each.startswith("llm_")):
        if name not in new:
            found[name] = "only in the old release"
        elif name not in old:
            continue  # for this release, a sidecar without it is one without such events
        elif old[name][0] and new[name][0] and old[name] != new[name]:
            removed, added = old[name][0] - new[name][0], new[name][0] - old[name][0]
            labels = [f"without {', '.join(sorted(removed))}"] * bool(removed) + [
                f"with {', '.join(sorted(added))}"
            ] * bool(added)
            bounds = [f"{len(old[name][1])} -> {len(new[name][1])} bounds"] * (old[name][1] != new[name][1])
            found[name] = "; ".join([*labels, *bounds])
    return found


def readers(name: str, folder: Path) -> str:
    """The rules and boards of a release that read a family."""
    wanted = re.compile(rf"\b{name}(?:_bucket|_sum|_count)?\b")
    found: dict[str, int] = defaultdict(int)
    for path in sorted(folder.glob("*.json")):
        found[path.stem] += len(wanted.findall(path.read_text()))
    for rule in re.split(r"\n +- (?=record|alert)", (folder / "rules.yaml").read_text()):
        if wanted.search(rule):
            found[rule.split("\n", 1)[0]] += 1
    return ", ".join(reader for reader, count in found.items() if count) or "nothing"


def errors(url: str) -> list[str]:
    """The rules whose last evaluation failed."""
    with urlopen(f"{url}/api/v1/rules") as response:
        groups = json.loads(response.read())["data"]["groups"]
    return [
        f"{each['name']}: {each.get('lastError')}"
        for group in groups
        for each in group["rules"]
        if each["health"] == "err"
    ]


def recorded(url: str) -> set[str]:
    """The recorded series that have a sample."""
    return {each.labels["name"] for each in Prometheus(url).query(RECORDED)}


def audit(program: str, url: str, folder: Path) -> str:
    """How many queries of a release's boards find nothing in the last 30 s."""
    flag = "--since" if program == NEW else "--range"
    words = ("dashboards", "audit", "--prometheus", url, "--dashboards", folder, flag, "30s", "--scrape-interval", "1s")
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=False)
    return (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]


def true_quantile(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


@dataclass
class Report:
    old_program: str
    folder: Path
    urls: dict[str, str]
    recorded: dict[str, set[str]] = field(default_factory=lambda: {"old": set(), "new": set()})
    """The series that the rules of each release have recorded in an earlier phase."""
    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:6.1f} s  {text}", flush=True)

    def quantiles(self, *sidecars: Sidecar) -> None:
        series = Prometheus(self.urls["new"])
        for name, times in HISTOGRAMS.items():
            truth = true_quantile([each for sidecar in sidecars for each in sidecar.times(times)])
            shown = [("both" if len(sidecars) > 1 else sidecars[0].release, "")] + [
                (each.release, f'{{instance=~".*:{each.metrics_port}"}}') for each in sidecars if len(sidecars) > 1
            ]
            values = {which: sum(each.value for each in series.query(QUANTILE % (name, at))) for which, at in shown}
            self.say(f"p95 of {name}: request log {truth:.3f}; " + ", ".join(f"{k} {v:.3f}" for k, v in values.items()))

    def phase(self, title: str) -> None:
        """Rules that fail, burn rates and empty queries of the boards, with the rules of each release."""
        self.say(f"--- {title}")
        for release, url in self.urls.items():
            series = Prometheus(url)
            burning = {tuple(sorted(each.labels.items())): round(each.value, 2) for each in series.query(BURN_RATE)}
            self.say(f"{release} rules: failing {errors(url)}; burn rates {burning}")
            firing = {
                (each.labels.get("alertname"), each.labels.get("slo", ""))
                for each in series.alerts()
                if each.state == "firing"
            }
            self.say(f"{release} rules: firing {sorted(map(str, firing))}")
            shown = recorded(url)
            self.say(f"{release} rules: recorded series without a sample: {sorted(self.recorded[release] - shown)}")
            self.recorded[release] |= shown
            program = NEW if release == "new" else self.old_program
            self.say(f"{release} boards: {audit(program, url, self.folder / release)}")

    def events(self, *sidecars: Sidecar) -> None:
        (events,) = Prometheus(self.urls["new"]).query('sum(llm_slo_events_total{slo="availability"})')
        lines = sum(each.requests() for each in sidecars)
        self.say(f"events of availability {events.value:.0f}, lines in the request logs {lines}")


def prepare(old_program: str, folder: Path) -> None:
    """The SLO file, rules and boards of each release, and folders for the processes."""
    for name in ("old-sidecar", "new-sidecar", "old-prometheus", "new-prometheus"):
        (folder / name).mkdir(parents=True)
        (folder / name / "slos.yaml").write_text(SLOS)
    for release, program in (("old", old_program), ("new", NEW)):
        for command in ("alerts", "dashboards"):
            words = (program, command, "render", "--slos", folder / "new-sidecar/slos.yaml", "--out", folder / release)
            subprocess.run(list(map(str, words)), check=True, capture_output=True)


async def run(old_program: str, folder: Path, seconds: float) -> None:
    tools, ports = find_tools(), [free_port(), free_port()]
    engine = SpreadEngine(decode_seconds=0.1)
    engine.may_finish.set()
    async with contextlib.AsyncExitStack() as stack:
        url = (await stack.enter_async_context(serving(engine))).url
        urls = {
            release: await stack.enter_async_context(
                prometheus(
                    tools.prometheus,
                    folder / f"{release}-prometheus",
                    *ports,
                    job="vllm-slo-sidecar",
                    rules=folder / release / "rules.yaml",
                )
            )
            for release in ("old", "new")
        }
        report = Report(old_program, folder, urls)
        old = await start("old", old_program, folder / "old-sidecar", url, ports[0])
        stack.push_async_callback(old.stop)
        async with load(old, 5):
            await asyncio.sleep(seconds)
            await asyncio.to_thread(report.phase, "old only")
            new = await start("new", NEW, folder / "new-sidecar", url, ports[1])
            stack.push_async_callback(new.stop)
            async with load(new, 5):
                await asyncio.sleep(seconds)
                await asyncio.to_thread(report.phase, "both")
                await asyncio.to_thread(report.quantiles, old, new)
                found = differences(*[families(await asyncio.to_thread(each.page)) for each in (old, new)])
        await asyncio.sleep(5)  # the last streams end, and a scrape reads their counts
        await asyncio.to_thread(report.events, old, new)
        for name, text in found.items():
            report.say(f"{name}: {text}")
            for release in ("old", "new"):
                report.say(f"    read by {release}: {readers(name, folder / release)}")
        await old.stop()
        ended = time.monotonic()
        report.say("the old sidecar has ended")
        async with load(new, 5):
            series, selected = Prometheus(urls["new"]), f'{{instance=~".*:{new.metrics_port}"}}'
            for name in HISTOGRAMS:

                async def right(name: str = name) -> bool:
                    queries = [QUANTILE % (name, at) for at in ("", selected)]
                    both, alone = [await asyncio.to_thread(series.query, each) for each in queries]
                    return bool(alone) and both[0].value == alone[0].value

                await until(right)
                after = time.monotonic() - ended
                report.say(f"p95 of {name} is that of the new sidecar {after:.0f} s after the end of the old one")
            await asyncio.sleep(20)
            await asyncio.to_thread(report.phase, "new only")
            await asyncio.to_thread(report.quantiles, new)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", required=True, help="the program vllm-slo of the older release")
    parser.add_argument("--seconds", type=float, default=75, help="with the old sidecar, and with both (default: 75)")
    parser.add_argument("--out", help="a folder for logs, rules and audits (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.out or temporary).absolute()
        prepare(arguments.old, folder)
        asyncio.run(run(arguments.old, folder, arguments.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
