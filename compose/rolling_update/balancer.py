"""The round-robin balancer of a rolling update, whose replicas change at run time."""

import asyncio
from enum import StrEnum
from pathlib import Path

from compose.processes.child_processes import Service
from compose.programs.haproxy import Haproxy
from compose.rolling_update.pod_manifest import RELAY
from exporters.text.errors import UsageError

PORT, _PROBE_PORT = 8080, 8081
_CONFIG = """\
global
  stats socket {socket} mode 600 level admin
  maxconn 4000
defaults
  mode {mode}
  timeout connect 5s
  timeout client 10m
  timeout server 10m
  retries 3
  option redispatch
frontend readiness
  mode http
  bind {address}:{probe}
  monitor-uri /ready
frontend clients
  bind {address}:{port}
  default_backend replicas
backend replicas
  balance roundrobin
  server-template replica- {slots} 0.0.0.0:1 disabled
"""


class Balancing(StrEnum):
    """`http` balances requests, as a gateway does; `tcp` balances connections, as a Service does."""

    HTTP = "http"
    TCP = "tcp"


def balancer(haproxy: Haproxy, folder: Path, address: str, balancing: Balancing, slots: int) -> Service:
    """The process, which listens on `PORT` of the address; its configuration and its socket are in the folder."""
    text = _CONFIG.format(
        socket=_socket(folder), mode=balancing, address=address, port=PORT, probe=_PROBE_PORT, slots=slots
    )
    return haproxy.service(folder / "haproxy.cfg", text, f"http://{address}:{_PROBE_PORT}/ready")


async def add_replica(folder: Path, slot: int, address: str) -> None:
    """Send requests to the pod at this address; slots count from 1."""
    await _command(folder, f"set server replicas/replica-{slot} addr {address} port {RELAY}")
    await _command(folder, f"set server replicas/replica-{slot} state ready")


async def remove_replica(folder: Path, slot: int) -> None:
    """Send no further request, or with TCP no further connection, to the pod in this slot; open ones continue."""
    await _command(folder, f"set server replicas/replica-{slot} state drain")


async def _command(folder: Path, text: str) -> None:
    reader, writer = await asyncio.open_unix_connection(_socket(folder))
    writer.write(f"{text}\n".encode())
    response = (await reader.read()).decode().strip()
    writer.close()
    if response and not response.startswith(("IP changed", "port changed", "no need to change")):
        raise UsageError(f"haproxy: {text}: {response}")


def _socket(folder: Path) -> Path:
    return folder / "haproxy.sock"
