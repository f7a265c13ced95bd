"""Ten incidents on three replicas, with real Prometheus and Alertmanager: the pages and tickets of each.

`python -m tests.alerts.alertmanager.scenarios` runs all and prints the table in docs/design/rules.md. Results are
files, so a second run continues.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from compose.demo.incidents import IncidentCount, count_incidents
from compose.lab.webhook import Notification, format_notification
from compose.programs.tools import Tools, find_tools
from tests.alerts.alertmanager.live_alertmanager import ROOT
from tests.alerts.alertmanager.replica_lab import RATE, ReplicaLab, running

FAULT_SECONDS = 40.0
_QUIET_SECONDS = 25.0
"""Observed after the end of each fault: a late ticket, or a page that opens again, counts."""
_RESOLVED_WITHIN = 150.0


class Result(msgspec.Struct, frozen=True):
    """`first_page` in seconds after the start of the fault."""

    pages: IncidentCount
    tickets: IncidentCount
    first_page: float | None
    resolved: bool
    alerts: list[str]


async def overload(lab: ReplicaLab) -> None:
    """All replicas together get 1.7 times the requests that they can serve."""
    lab.traffic.rate = 4 * RATE
    await asyncio.sleep(FAULT_SECONDS)
    lab.traffic.rate = RATE


async def restart(lab: ReplicaLab) -> None:
    """One engine restarts without a drain, and loads its model for 15 s."""
    url = f"http://127.0.0.1:{lab.replicas[0].engine_port}/simulator/config"
    async with lab.http.post(url, json={"enable_prefix_caching": False}) as response:
        response.raise_for_status()
    await lab.becomes(lab.replicas[0], healthy=False)
    await lab.becomes(lab.replicas[0], healthy=True)


async def crash_loop(lab: ReplicaLab) -> None:
    """One engine exits five times, each time a few seconds after it has started to serve."""
    replica = lab.replicas[0]
    for _ in range(5):
        await lab.kill_engine(replica)
        await asyncio.sleep(3)
        await lab.start_engine(replica)
        await lab.becomes(replica, healthy=True)
        await asyncio.sleep(5)


async def one_bad_replica(lab: ReplicaLab) -> None:
    """One of three engines responds 6 s late, at 10 requests/s of one class; it is up and its health check passes."""
    delay_one_replica(lab)
    await asyncio.sleep(FAULT_SECONDS)
    lab.replicas[0].reached.delay = 0.0


def delay_one_replica(lab: ReplicaLab) -> None:
    """With enough requests of one class for a comparison of replicas within ten seconds."""
    lab.traffic.rate, lab.traffic.classes = 2 * RATE, ("siso",)
    lab.replicas[0].reached.delay = 6.0


async def one_bad_class(lab: ReplicaLab) -> None:
    """The requests of one class wait for 6 s in the gateway."""
    await _late(lab, "liso")


async def one_bad_tenant(lab: ReplicaLab) -> None:
    """The requests of one tenant, a fifth of all, wait for 6 s in the gateway."""
    await _late(lab, "team-a")


async def _late(lab: ReplicaLab, name: str) -> None:
    lab.traffic.late = frozenset({name})
    await asyncio.sleep(FAULT_SECONDS)
    lab.traffic.late = frozenset()


async def dead_sidecar(lab: ReplicaLab) -> None:
    """One sidecar is killed, and started again after 40 s."""
    replica = lab.replicas[0]
    await lab.kill_sidecar(replica)
    await asyncio.sleep(FAULT_SECONDS)
    await lab.start_sidecar(replica)


async def dead_engine(lab: ReplicaLab) -> None:
    """One engine is killed, and started again after 40 s."""
    replica = lab.replicas[0]
    await lab.kill_engine(replica)
    await asyncio.sleep(FAULT_SECONDS)
    await lab.start_engine(replica)


async def rolling_update(lab: ReplicaLab) -> None:
    """Each replica is drained and stopped, then replaced by one with another address, whose engine starts 5 s later."""
    for old in list(lab.replicas):
        old.in_rotation = False
        await lab.stop(old)
        new = await lab.new_replica()
        lab.replicas[lab.replicas.index(old)] = new
        lab.write_targets()
        await lab.start_sidecar(new)
        await asyncio.sleep(5)
        await lab.start_engine(new)
        await lab.becomes(new, healthy=True)


async def network_cut(lab: ReplicaLab) -> None:
    """No sidecar can be scraped and none reaches its engine, for 40 s."""
    lab.cut_network()
    await asyncio.sleep(FAULT_SECONDS)
    lab.restore_network()


Scenario = Callable[[ReplicaLab], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {
    each.__name__.replace("_", " "): each
    for each in (
        overload,
        restart,
        crash_loop,
        one_bad_replica,
        one_bad_class,
        one_bad_tenant,
        dead_sidecar,
        dead_engine,
        rolling_update,
        network_cut,
    )
}


def result(lab: ReplicaLab, since: float, *, resolved: bool) -> Result:
    received = lab.notifications.received
    pages, tickets = (count_incidents(received, each, lab.group_by) for each in ("page", "ticket"))
    first = min((each.arrived_at - since for each in lab.pages()), default=None)
    alerts = [f"{each.arrived_at - since:.0f} s {format_notification(each)}" for each in received]
    return Result(pages, tickets, first, resolved, alerts)


async def measure(scenario: Scenario, folder: Path, tools: Tools, rules_of: Path | None = None) -> Result:
    """Run a scenario after a time without faults, until its pages are resolved."""

    def report(notification: Notification) -> None:
        print("   ", format_notification(notification), flush=True)

    async with running(folder, tools, report, rules_of) as lab:

        async def observe() -> Result:
            await lab.healthy_traffic()
            since = time.time()
            await scenario(lab)
            await asyncio.sleep(_QUIET_SECONDS)
            try:
                async with asyncio.timeout(_RESOLVED_WITHIN):
                    await lab.resolved()
            except TimeoutError:
                return result(lab, since, resolved=False)
            return result(lab, since, resolved=True)

        return await lab.processes.during(observe())


def row(name: str, each: Result) -> str:
    first = "none" if each.first_page is None else f"{each.first_page:.0f} s"
    unresolved = "" if each.resolved else " (not resolved)"
    return (
        f"| {name} | {each.pages.opened}{unresolved} | {each.pages.updates} | {first} | {each.tickets.opened} | "
        f"{each.tickets.updates} |"
    )


HEADING = """\
| scenario | pages opened | page updates | first page after | tickets opened | ticket updates |
|---|---|---|---|---|---|"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.alerts.alertmanager.scenarios", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SCENARIO", help="default: all")
    parser.add_argument("--out", type=Path, default=ROOT / ".lab/scenarios", help="folder (default: %(default)s)")
    parser.add_argument(
        "--rules-of", type=Path, metavar="CHECKOUT", help="with the rules and routes of another release"
    )
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(SCENARIOS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; one of: {', '.join(SCENARIOS)}")
    tools, names = find_tools(), arguments.names or list(SCENARIOS)
    files = {name: arguments.out / f"{name.replace(' ', '-')}.json" for name in names}
    for number, (name, file) in enumerate(files.items(), 1):
        if file.exists():
            continue
        print(f"{number}/{len(names)} {name}: {SCENARIOS[name].__doc__}", flush=True)
        folder = file.with_suffix("").absolute()
        measured = asyncio.run(measure(SCENARIOS[name], folder, tools, arguments.rules_of))
        file.write_bytes(msgspec.json.format(msgspec.json.encode(measured)))
    print(HEADING)
    for name, file in files.items():
        print(row(name, msgspec.json.decode(file.read_bytes(), type=Result)))


if __name__ == "__main__":
    main()
