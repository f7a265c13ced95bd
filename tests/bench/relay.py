"""What the sidecar costs per streamed chunk, as a ratio to other proxies in the same run: `make bench`.

One upstream process sends a chunk to every stream each 20 ms; one client process reads them through each proxy in turn.
CPU is the proxy's whole process tree (for the sidecar: supervisor, relay and exporter, all metering on). Each round
measures every proxy once, so that drift of the machine hits all alike; the medians and the spread are printed.
"""

import argparse
import asyncio
import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import uvloop
from aiohttp import ClientSession, ClientTimeout, TCPConnector, web
from rich.console import Console
from rich.table import Table

from tests.sidecar.running import free_port

PACE = 0.02
CHUNK = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
FRAMED = b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK)
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
ASK = b'{"model":"m","stream":true,"max_tokens":100000,"messages":[{"role":"user","content":"go"}]}'
REQUEST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: b\r\ncontent-length: %d\r\n\r\n%s" % (len(ASK), ASK)
NGINX = """
worker_processes 1; pid {folder}/pid; error_log {folder}/error.log; daemon off;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 1024; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; tcp_nodelay on;
    }}
  }}
}}
"""
SLOS = "version: 1\nperiod: 30d\nclasses: [{name: all}]\nslos:\n  - {name: itl, classes: [all], signal: itl_p95, threshold: 250ms, objective: 95%}\n"  # noqa: E501 - one string


CLI = "import sys; from compose.cli import main; sys.exit(main())"


class _Engine(asyncio.Protocol):
    """Any request gets a stream that never ends."""

    streams: set[asyncio.BaseTransport] = set()  # noqa: RUF012 - one process, one set

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"GET"):  # the sidecar looks at the engine's own pages
            self._transport.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")  # type: ignore[attr-defined]
        elif data.startswith(b"POST") and self._transport not in self.streams:
            self._transport.write(HEAD)  # type: ignore[attr-defined]  # a stream transport
            self.streams.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.streams.discard(self._transport)


async def upstream(port: int) -> None:
    """Spread the streams over the tick, as independent requests are."""
    loop = asyncio.get_running_loop()
    await loop.create_server(_Engine, "127.0.0.1", port)
    slots, due, turn = 10, time.monotonic(), 0
    while True:
        for stream in list(_Engine.streams)[turn::slots]:
            stream.write(FRAMED)  # type: ignore[attr-defined]  # as above
        turn = (turn + 1) % slots
        due += PACE / slots
        await asyncio.sleep(max(0.0, due - time.monotonic()))


async def aiohttp_proxy(port: int, upstream_port: int) -> None:
    """The plain way to write such a proxy in Python: no metering, one write a chunk."""
    session = ClientSession(connector=TCPConnector(limit=0), timeout=ClientTimeout(total=None))

    async def forward(request: web.Request) -> web.StreamResponse:
        url = f"http://127.0.0.1:{upstream_port}{request.path_qs}"
        async with session.post(url, data=await request.read()) as answer:
            response = web.StreamResponse(headers={"content-type": answer.headers["content-type"]})
            await response.prepare(request)
            with contextlib.suppress(ConnectionError):  # the client has gone
                async for data in answer.content.iter_any():
                    await response.write(data)
            return response

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


class _Reader(asyncio.Protocol):
    received = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(REQUEST)  # type: ignore[attr-defined]  # a stream transport

    def data_received(self, data: bytes) -> None:
        _Reader.received += data.count(b"data: ")


def tree_cpu(pid: int) -> float:
    """User and system seconds of a process and all below it."""
    seconds, ticks = 0.0, os.sysconf("SC_CLK_TCK")
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / ticks
            waiting += [int(c) for c in Path(f"/proc/{one}/task/{one}/children").read_text().split()]
    return seconds


async def measure(port: int, pid: int, streams: int, seconds: float) -> float:
    """Microseconds of the tree's CPU per chunk carried."""
    loop = asyncio.get_running_loop()
    open_now = [await loop.create_connection(_Reader, "127.0.0.1", port) for _ in range(streams)]
    await asyncio.sleep(1.0)
    cpu, chunks = tree_cpu(pid), _Reader.received
    await asyncio.sleep(seconds)
    cost = (tree_cpu(pid) - cpu) / max(1, _Reader.received - chunks)
    carried = (_Reader.received - chunks) / seconds
    for transport, _ in open_now:
        transport.abort()
    await asyncio.sleep(0.2)
    if carried < 0.9 * streams / PACE:
        print(f"  only {carried:.0f} of {streams / PACE:.0f} chunks/s were carried: a weak figure", file=sys.stderr)
    return cost * 1e6


@contextlib.contextmanager
def proxies(folder: Path) -> Iterator[dict[str, tuple[int, int]]]:
    """Everything started, as name -> (port, pid); nginx where it is installed."""
    up, own, plain, other, pages = (free_port() for _ in range(5))
    (folder / "slos.yaml").write_text(SLOS)
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, upstream=up, port=other))
    me = [sys.executable, "-m", "tests.bench.relay"]
    commands = {
        "upstream": ([*me, "--serve-upstream", str(up)], up),
        "vllm-slo sidecar": (
            [
                *(sys.executable, "-c", CLI, "sidecar", "--upstream", f"http://127.0.0.1:{up}"),
                *("--listen", f"127.0.0.1:{own}", "--metrics", f"127.0.0.1:{pages}"),
                *("--slos", str(folder / "slos.yaml"), "--request-log", str(folder / "requests.jsonl")),
            ],
            own,
        ),
        "aiohttp": ([*me, "--serve-aiohttp", str(plain), str(up)], plain),
    }
    if nginx := shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        commands["nginx"] = ([nginx, "-c", str(folder / "nginx.conf")], other)
    running = {}
    try:
        for name, (command, _) in commands.items():
            running[name] = subprocess.Popen(command)
        for _, port in commands.values():
            _await_port(port)
        yield {name: (port, running[name].pid) for name, (_, port) in commands.items() if name != "upstream"}
    finally:
        for process in running.values():
            process.terminate()
        for process in running.values():
            process.wait(30)


def _await_port(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--streams", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve-upstream", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--serve-aiohttp", type=int, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve_upstream:
        uvloop.run(upstream(arguments.serve_upstream))
    if arguments.serve_aiohttp:
        uvloop.run(aiohttp_proxy(*arguments.serve_aiohttp))
    with tempfile.TemporaryDirectory() as name, proxies(Path(name)) as started:
        costs: dict[str, list[float]] = {proxy: [] for proxy in started}
        for number in range(arguments.rounds):
            for proxy, (port, pid) in started.items():
                print(f"round {number + 1} of {arguments.rounds}: {proxy}", file=sys.stderr)
                costs[proxy].append(uvloop.run(measure(port, pid, arguments.streams, arguments.seconds)))
    peer = "nginx" if "nginx" in costs else "aiohttp"
    table = Table(title=f"CPU per chunk, {arguments.streams} streams x {PACE * 1000:.0f} ms, {arguments.rounds} rounds")
    for heading in ("proxy", "µs per chunk", "lowest to highest", f"ratio to {peer}"):
        table.add_column(heading)
    for proxy, values in costs.items():
        ratios = [value / other for value, other in zip(values, costs[peer], strict=True)]
        table.add_row(
            proxy,
            f"{statistics.median(values):.1f}",
            f"{min(values):.1f} to {max(values):.1f}",
            f"{statistics.median(ratios):.2f}",
        )
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
