"""The loopback ports of the lab's services, and a check that they are free."""

import dataclasses
import socket
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass

from exporters.text.errors import UsageError
from exporters.text.yaml_reader import nearest

HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One port per service; the defaults match the container lab."""

    engine: int = 8000
    relay: int = 8001
    sidecar: int = 9464
    prometheus: int = 9090
    alertmanager: int = 9093
    webhook: int = 9095
    load: int = 9465
    grafana: int = 3000
    traces: int = 4318

    def address(self, service: str) -> str:
        return f"{HOST}:{getattr(self, service)}"

    def url(self, service: str) -> str:
        return f"http://{self.address(service)}"


SERVICES: tuple[str, ...] = tuple(each.name for each in dataclasses.fields(Ports))


def parse_ports(text: str) -> Ports:
    """Parse `default`, `auto` (free ports), or overrides of the defaults such as `prometheus=19090,grafana=13000`.

    Raises:
        UsageError: an unknown service, or an invalid port number.
    """
    if text == "default":
        return Ports()
    if text == "auto":
        return free_ports()
    chosen: dict[str, int] = {}
    for part in text.split(","):
        name, equals, port = part.strip().partition("=")
        if not equals:
            raise UsageError(f"--ports: {part.strip()!r} is not SERVICE=PORT; write auto, or prometheus=19090")
        if name not in SERVICES:
            raise UsageError(f"--ports: unknown service {name!r}; {nearest(name, SERVICES)}")
        if not port.isdecimal() or not 0 < int(port) < 65536:
            raise UsageError(f"--ports: {name}: {port!r} is not a port; write a number from 1 to 65535")
        chosen[name] = int(port)
    ports = Ports(**chosen)
    owners: dict[int, str] = {}
    for name in SERVICES:
        other = owners.setdefault(getattr(ports, name), name)
        if other != name:
            raise UsageError(f"--ports: {other} and {name} both use port {getattr(ports, name)}; change one")
    return ports


def free_ports() -> Ports:
    """A free port for each service."""
    return Ports(**dict(zip(SERVICES, unused(len(SERVICES)), strict=True)))


def unused(count: int) -> list[int]:
    """So many ports that are free at this moment; all are bound at the same time, so they differ."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def refuse_busy(ports: Ports, used: Iterable[str]) -> None:
    """Check that the ports of these services are free.

    Raises:
        UsageError: lists every port that is in use.
    """
    busy = [name for name in used if is_busy(getattr(ports, name))]
    if busy:
        raise UsageError(
            "\n".join(f"port {getattr(ports, name)} for {name} is already in use on {HOST}" for name in busy)
            + f"\nstop the other process, or choose another port: --ports {busy[0]}=PORT, or --ports auto"
        )


def is_busy(port: int) -> bool:
    """Whether another program uses the port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignores connections in TIME_WAIT
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False
