"""Measures one cell in real time: starts engine, sidecar and load, and reads what the engine reports."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from compose.experiments.cells.balancer import balancer
from compose.experiments.cells.cell_run import SCENARIO, CellPlan
from compose.experiments.cells.engine_program import SIMULATOR, EngineProgram
from compose.experiments.cells.engine_samples import EngineSample, differences, merged, parse_sample, reading
from compose.experiments.setup.cell_store import SLOS, Cell, CellStatus, EngineReading
from compose.lab.ports import HOST, Ports, unused
from compose.lab.services import ours
from compose.processes.child_processes import ChildProcesses, Service, ServiceFailedError, describe_exit
from exporters.text.addresses import Address
from exporters.text.units import spell_duration
from loadgen.results.record import REQUESTS, SUMMARY, read_run

REQUEST_LOG = "request-log.jsonl"
IDLE_WITHIN = 120.0
"""Longest wait in seconds for an empty engine after the load."""
_INTERVAL = 1.0
_TIMEOUT = aiohttp.ClientTimeout(total=5)


class InvalidCellError(Exception):
    """The measurement does not describe the configuration; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSettings:
    """What all cells of an experiment have in common; `cool_down` in seconds.

    Prometheus scrapes the load generator at `metrics` and the sidecar at `sidecar_metrics`, every `scrape_interval`
    seconds.
    """

    program: EngineProgram
    directory: Path
    max_concurrency: int | None
    cool_down: float
    metrics: Address | None = None
    sidecar_metrics: Address | None = None
    scrape_interval: float = 0.0


async def measure(settings: CellSettings, plan: CellPlan) -> Cell:
    """Measure a cell; whatever happens, its processes have ended on return."""
    begin = time.monotonic()
    status, reason, figures, started = CellStatus.DONE, None, EngineReading(), None
    processes = ChildProcesses(plan.folder / "logs")
    try:
        async with aiohttp.ClientSession() as http:
            watched = _WatchedEngines(http, plan)
            try:
                await _measure(settings, plan, watched, processes)
            finally:
                figures, started = watched.reading(plan.folder), watched.started
    except InvalidCellError as error:
        status, reason = CellStatus.INVALID, str(error)
    except ServiceFailedError as error:
        status, reason = CellStatus.FAILED, str(error)
    finally:
        await processes.stop()
    return Cell(
        configuration=plan.configuration,
        rate=plan.level.rate,
        concurrency=plan.level.concurrency,
        repeat=plan.repeat,
        status=status,
        reason=reason,
        seconds=round(time.monotonic() - begin, 3),
        engine_start=started,
        engine=figures,
    )


async def _measure(
    settings: CellSettings, plan: CellPlan, watched: "_WatchedEngines", processes: ChildProcesses
) -> None:
    ports, program = watched.ports, settings.program
    begin = time.monotonic()
    engines = [program.service(plan.engine, port, number) for number, port in enumerate(watched.engine_ports)]
    await _start(engines, processes, watched.http)
    watched.started = round(time.monotonic() - begin, 3)
    if len(engines) > 1:
        in_front = balancer(plan.folder, plan.engine.pools, watched.engine_ports, ports.engine)
        await _start([in_front], processes, watched.http)
    await _start([_sidecar(settings, plan.folder, ports)], processes, watched.http)
    await watched.read_settings(simulated=program.name == SIMULATOR)
    if wrong := differences(plan.engine.flags or {}, watched.settings):
        raise InvalidCellError("; ".join(wrong))
    watcher = asyncio.ensure_future(watched.watch())
    try:
        load = await processes.start(_load(settings, plan, ports))
        code = await processes.during(load.wait())
        if code:
            raise ServiceFailedError(load.service.name, describe_exit(code), load.log)
        await processes.during(watched.wait_until_idle())
    finally:
        watcher.cancel()
        with suppress(asyncio.CancelledError):
            await watcher
    if faults := _faults(plan.folder):
        raise InvalidCellError("; ".join(faults))
    await asyncio.sleep(settings.cool_down)


async def _start(services: Sequence[Service], processes: ChildProcesses, http: aiohttp.ClientSession) -> None:
    """Start services at the same time, and wait until all are ready."""
    for child in [await processes.start(service) for service in services]:
        await child.wait_until_ready(http, child.service.start_timeout)


class _WatchedEngines:
    """The engines' own reports; what is in front of several engines has the port `ports.engine`."""

    def __init__(self, http: aiohttp.ClientSession, plan: CellPlan) -> None:
        count = sum(pool.replicas for pool in plan.engine.pools)
        front, relay, sidecar, *others = unused(3 if count == 1 else 3 + count)
        self.http = http
        self.ports = Ports(engine=front, relay=relay, sidecar=sidecar)
        self.engine_ports = others or [front]
        self.started: float | None = None
        self.settings: dict[str, str] = {}
        self._samples: dict[int, list[EngineSample]] = {port: [] for port in self.engine_ports}

    async def read_settings(self, *, simulated: bool) -> None:
        """Read what the first engine reports of its settings; an engine without metrics reports none."""
        port = self.engine_ports[0]
        if (sample := await self._sample(port)) is not None:
            self.settings |= sample.settings
        for model in (await self._json(port, "/v1/models")).get("data", []):
            if model.get("max_model_len") is not None:
                self.settings["max_model_len"] = str(model["max_model_len"])
        if simulated:
            config: Mapping[str, Any] = (await self._json(port, "/simulator/config")).get("config", {})
            self.settings |= {name: str(value) for name, value in config.items()}

    async def watch(self) -> None:
        """Sample until cancelled."""
        while True:
            await self._sample_all()
            await asyncio.sleep(_INTERVAL)

    async def wait_until_idle(self) -> None:
        """Wait until no request runs or waits; the samples then have all that was generated.

        Raises:
            InvalidCellError: some still do after the limit.
        """
        end = time.monotonic() + IDLE_WITHIN
        while not all(sample is None or sample.idle for sample in await self._sample_all()):
            if time.monotonic() > end:
                raise InvalidCellError(f"the engine still had requests {IDLE_WITHIN:.0f} s after the load")
            await asyncio.sleep(_INTERVAL)

    def reading(self, folder: Path) -> EngineReading:
        """The figures of the load whose output is in this folder."""
        start = read_run(folder).start if (folder / REQUESTS).exists() else float("inf")
        return merged([reading(samples, self.settings, start) for samples in self._samples.values()])

    async def _sample_all(self) -> list[EngineSample | None]:
        found = await asyncio.gather(*map(self._sample, self.engine_ports))
        for port, sample in zip(self.engine_ports, found, strict=True):
            if sample is not None:
                self._samples[port].append(sample)
        return found

    async def _sample(self, port: int) -> EngineSample | None:
        with suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with self.http.get(f"http://{HOST}:{port}/metrics", timeout=_TIMEOUT) as response:
                return parse_sample(await response.text(), time.time())
        return None

    async def _json(self, port: int, path: str) -> dict[str, Any]:
        with suppress(aiohttp.ClientError, TimeoutError, ValueError):
            async with self.http.get(f"http://{HOST}:{port}{path}", timeout=_TIMEOUT) as response:
                found = await response.json()
                return found if isinstance(found, dict) else {}
        return {}


def _sidecar(settings: CellSettings, folder: Path, ports: Ports) -> Service:
    metrics = settings.sidecar_metrics or ports.address("sidecar")
    linger = 0.0 if settings.sidecar_metrics is None else 2 * settings.scrape_interval  # one scrape may fail
    flags = {
        "--upstream": ports.url("engine"),
        "--listen": ports.address("relay"),
        "--metrics": str(metrics),
        "--slos": str(settings.directory / SLOS),
        "--engine-name": f"{ports.url('engine')}=engine",  # the same series in all cells
        "--request-log": str(folder / REQUEST_LOG),
        "--drain-delay": "0s",  # no load balancer has to notice
        "--drain": "5s",
        "--linger": spell_duration(linger),
    }
    ready = f"http://{metrics}/readyz"
    return Service(name="sidecar", command=ours(flags, "sidecar"), ready_url=ready, grace=25 + linger)


def _load(settings: CellSettings, plan: CellPlan, ports: Ports) -> Service:
    flags = {"--target": ports.url("relay"), "--out": str(plan.folder), "--slos": str(settings.directory / SLOS)}
    flags |= {"--scenario": str(plan.folder / SCENARIO)}
    flags |= {"--experiment": plan.experiment, "--configuration": plan.group}
    if settings.metrics is not None:
        flags["--metrics"] = str(settings.metrics)
    if settings.max_concurrency is not None:
        flags["--max-concurrency"] = str(settings.max_concurrency)
    if plan.engine.warm_up is not None:
        flags["--warm-up"] = str(plan.engine.warm_up)
    # The cell is INVALID where the report of the load says so.
    command = (*ours(flags, "load", "run"), "--allow-invalid")
    return Service(name="load", command=command, may_exit=True, grace=60)


def _faults(folder: Path) -> list[str]:
    """What makes the load invalid."""
    summary: dict[str, Any] = msgspec.json.decode((folder / SUMMARY).read_bytes())
    return [str(fault) for fault in summary["health"]["faults"]]
