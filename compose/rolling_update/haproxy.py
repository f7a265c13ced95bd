"""HAProxy as the round-robin balancer: found on PATH or unpacked from Debian packages, and changed at run time."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

from compose.processes.child_processes import Service
from compose.programs.cache import default_cache, locked
from compose.programs.debian_packages import unpack_packages
from compose.rolling_update.pod_manifest import RELAY
from exporters.text.errors import UsageError

PORT, _PROBE_PORT = 8080, 8081
_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")
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


@dataclass(frozen=True, slots=True)
class Haproxy:
    """A program with the environment in which it finds its libraries."""

    program: Path
    environment: Mapping[str, str]

    def service(self, folder: Path, address: str, balancing: Balancing, slots: int) -> Service:
        """The process, which listens on `PORT` of the address; its configuration and its socket are in the folder."""
        config = folder / "haproxy.cfg"
        text = _CONFIG.format(
            socket=_socket(folder), mode=balancing, address=address, port=PORT, probe=_PROBE_PORT, slots=slots
        )
        config.write_text(text, encoding="utf-8")
        command = (str(self.program), "-db", "-f", str(config))
        ready_url = f"http://{address}:{_PROBE_PORT}/ready"
        return Service(name="haproxy", command=command, ready_url=ready_url, env=self.environment)


def find_haproxy(cache: Path | None = None) -> Haproxy:
    """The program on PATH; otherwise it is unpacked into `cache`, without root and without changing the system.

    Raises:
        UsageError: it is not there and cannot be unpacked; says what to install.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    if (program := shutil.which("haproxy", path=path)) is not None:
        return Haproxy(Path(program), {})
    cache = (cache or default_cache()).absolute()
    root = cache / "haproxy"
    try:
        with locked(cache, partial(print, file=sys.stderr)):
            if not root.is_dir():
                unpack_packages(root, _PACKAGES)
    except UsageError as error:
        raise UsageError(f"{error}; install haproxy and put it on PATH") from error
    libraries = ":".join(sorted({str(path.parent) for path in (root / "usr/lib").glob("*/*.so*")}))
    return Haproxy(root / "usr/sbin/haproxy", {"LD_LIBRARY_PATH": libraries})


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
