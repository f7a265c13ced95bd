"""HAProxy in front of the engines of a cell in real time: a backend for each pool, with its routing."""

from collections.abc import Sequence
from pathlib import Path

from compose.experiments.setup.pools import Pools, Routing
from compose.lab.ports import HOST
from compose.processes.child_processes import Service
from compose.programs.haproxy import find_haproxy
from exporters.vocabulary.signals import REQUEST_CLASS_HEADER
from loadgen.schedule.requests import SESSION_HEADER

_READY = "/balancer/ready"
_PREFIX_BYTES = 1024
"""The beginning of a body that identifies its prefix: about 250 tokens of the first message."""
_LOAD_FACTOR = 150
"""Percent of the mean load of the engines above which the next one on the hash ring is taken."""
_RING = f"  hash-type consistent\n  hash-balance-factor {_LOAD_FACTOR}\n"
_BALANCE = {
    Routing.ROUND_ROBIN: "  balance roundrobin\n",
    Routing.LEAST_REQUESTS: "  balance leastconn\n",
    Routing.PREFIX: f"  balance hash req.body,bytes(0,{_PREFIX_BYTES})\n{_RING}",
    Routing.SESSION: f"  balance hdr({SESSION_HEADER})\n{_RING}",
}
_CONFIG = """\
global
  maxconn 8000
defaults
  mode http
  option http-buffer-request
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend clients
  bind {address}
  monitor-uri {ready}
"""


def balancer(folder: Path, pools: Pools, ports: Sequence[int], port: int) -> Service:
    """The process, which listens on `port`; the engines listen on `ports`, in the order of the pools.

    A class without a pool, such as that of the warm-up, has the first one.

    Raises:
        UsageError: HAProxy is not there and cannot be unpacked.
    """
    address = f"{HOST}:{port}"
    lines, backends, rest = [_CONFIG.format(address=address, ready=_READY)], [], list(ports)
    for number, pool in enumerate(pools):
        if pool.classes:
            condition = f"{{ req.hdr({REQUEST_CLASS_HEADER}) -m str {' '.join(pool.classes)} }}"
            lines.append(f"  use_backend pool-{number} if {condition}\n")
        own, rest = rest[: pool.replicas], rest[pool.replicas :]
        servers = "".join(f"  server engine-{each} {HOST}:{each}\n" for each in own)
        backends.append(f"backend pool-{number}\n{_BALANCE[pool.routing]}{servers}")
    text = "".join([*lines, "  default_backend pool-0\n", *backends])
    return find_haproxy().service(folder / "haproxy.cfg", text, f"http://{address}{_READY}")
