"""Starts the proxies in front of the engine, on the core of the proxy; pip installs some in the user's cache."""

import contextlib
import http.client
import os
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from exporters.text.errors import UsageError
from tests.bench import machine
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT, STOPS_QUICKLY, command, environment

REQUEST = b'{"model":"m","max_tokens":4,"messages":[{"role":"user","content":"ready?"}]}'
OURS, COPYING = "vllm-slo", "copying"
NGINX = """
worker_processes {workers};
worker_rlimit_nofile 32768; pid {folder}/nginx.pid; error_log {folder}/nginx.log; daemon off;
events {{ worker_connections 16384; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  keepalive_requests 1000000000;
  upstream engine {{ server 127.0.0.1:{upstream}; keepalive 1024; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_buffering off; tcp_nodelay on;
    }}
  }}
}}
"""
HAPROXY = """
global
  nbthread 1
  maxconn 9900
defaults
  mode http
  timeout connect 5s
  timeout client 5m
  timeout server 5m
listen engine
  bind 127.0.0.1:{port}
  server engine 127.0.0.1:{upstream}
"""
SLOS = """
version: 1
period: 30d
classes: [{name: all}]
slos:
  - {name: ttft, classes: [all], signal: ttft, threshold: 5s, objective: 95%}
  - {name: itl, classes: [all], signal: itl_p95, threshold: 250ms, objective: 95%}
  - {name: availability, classes: [all], signal: availability, objective: 99%}
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a proxy, and the ports of the engine, the proxy and its metrics."""

    folder: Path
    upstream: int
    port: int
    metrics_port: int


@dataclass(frozen=True, slots=True)
class Proxy:
    """A kind of proxy; `most_connections` is the maximum for one core."""

    name: str
    command: Callable[[Place], list[str]]
    most_connections: int = sys.maxsize


@dataclass(frozen=True, slots=True)
class Running:
    """A running proxy, or the engine itself, without a process id."""

    name: str
    port: int
    pid: int | None = None
    metrics_port: int = 0
    most_connections: int = sys.maxsize


def sidecar(*words: str, slos: str = SLOS, name: str = OURS, checkout: Path | None = None) -> Proxy:
    """The sidecar with metering and the request log; `checkout` is that of another release, with its .venv."""

    def start(place: Place) -> list[str]:
        (place.folder / f"{place.port}.yaml").write_text(slos)
        flags = {
            "--upstream": f"http://127.0.0.1:{place.upstream}",
            "--listen": f"127.0.0.1:{place.port}",
            "--metrics": f"127.0.0.1:{place.metrics_port}",
            "--slos": str(place.folder / f"{place.port}.yaml"),
            "--request-log": str(place.folder / f"{place.port}.jsonl"),
        }
        words_of_flags = [word for flag in flags.items() for word in flag]
        if checkout is not None:
            program = str(checkout / ".venv" / "bin" / "vllm-slo")
            return [program, "sidecar", *words_of_flags, *STOPS_QUICKLY, *words]
        return command(*words_of_flags, *STOPS_QUICKLY, *words)

    return Proxy(name, start)


def _system_program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def haproxy() -> Proxy | None:
    program = _system_program("haproxy")
    if not program:
        return None

    def start(place: Place) -> list[str]:
        config = place.folder / "haproxy.cfg"
        config.write_text(HAPROXY.format(upstream=place.upstream, port=place.port))
        return [program, "-db", "-f", str(config)]

    return Proxy("haproxy", start)


def nginx(workers: int = 1) -> Proxy | None:
    program = _system_program("nginx")
    if not program:
        return None

    def start(place: Place) -> list[str]:
        config = place.folder / "nginx.conf"
        words = {"folder": place.folder, "upstream": place.upstream, "port": place.port, "workers": workers}
        config.write_text(NGINX.format(**words))
        return [program, "-c", str(config)]

    return Proxy("nginx", start)


def required_nginx(workers: int = 1) -> Proxy:
    """Raises: UsageError: nginx is not installed."""
    if (peer := nginx(workers)) is None:
        raise UsageError("nginx is the peer, and is not installed; on Debian: apt-get install nginx-light")
    return peer


def plain() -> Proxy:
    return Proxy(
        "aiohttp", lambda place: [sys.executable, "-m", "tests.bench.plain", str(place.port), str(place.upstream)]
    )


def copying() -> Proxy:
    return Proxy(
        COPYING, lambda place: [sys.executable, "-m", "tests.bench.copying", str(place.port), str(place.upstream)]
    )


LITELLM = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:{upstream}/v1", api_key: sk-bench}}
general_settings: {{dangerously_permit_weak_or_unset_master_key: true}}  # on loopback only
"""


def vllm_router() -> Proxy:
    home, version = installed("vllm-router", "vllm-router")

    def start(place: Place) -> list[str]:
        return [
            *(str(home / "bin" / "vllm-router"), "--worker-urls", f"http://127.0.0.1:{place.upstream}"),
            *("--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(place.metrics_port)),
            *("--policy", "round_robin", "--log-level", "error"),
        ]

    return Proxy(f"vllm-router {version}", start)


def litellm() -> Proxy:
    home, version = installed("litellm", "litellm[proxy]")

    def start(place: Place) -> list[str]:
        config = place.folder / "litellm.yaml"
        config.write_text(LITELLM.format(upstream=place.upstream))
        return [
            *("env", "LITELLM_LOCAL_MODEL_COST_MAP=True", str(home / "bin" / "litellm"), "--config", str(config)),
            *("--host", "127.0.0.1", "--port", str(place.port), "--telemetry", "False"),
        ]

    return Proxy(f"litellm {version}", start, most_connections=20)


PEERS: dict[str, Callable[[], Proxy]] = {COPYING: copying, "vllm-router": vllm_router, "litellm": litellm}


def installed(name: str, requirement: str) -> tuple[Path, str]:
    """The virtual environment, created at the first use, and the installed version."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "vllm-slo" / f"bench-{name}"
    if not (home / "bin" / name).exists():
        venv.create(home, clear=True, with_pip=True)
        done = subprocess.run(
            [home / "bin" / "pip", "install", "--disable-pip-version-check", requirement], check=False
        )
        if done.returncode:
            raise UsageError(f"pip could not install {requirement} into {home}; see its output above")
    ask = f"from importlib.metadata import version; print(version({name!r}))"
    version = subprocess.run([home / "bin" / "python", "-c", ask], check=True, capture_output=True, text=True).stdout
    return home, version.strip()


@contextlib.contextmanager
def running(proxy: Proxy, folder: Path, upstream: int, cores: frozenset[int]) -> Iterator[Running]:
    """Start a proxy and wait until it responds; if it does not, the error contains the end of its output."""
    place = Place(folder, upstream, free_port(), free_port())
    stderr = folder / f"{proxy.name}.log"
    arguments = proxy.command(place)
    with stderr.open("wb") as output, machine.pinned(cores):
        process = subprocess.Popen(
            arguments, cwd=ROOT, stdout=output, stderr=output, stdin=subprocess.DEVNULL, env=environment()
        )
    try:
        if not _responds(process, place.port):
            raise UsageError(f"{proxy.name} did not respond; its output:\n{stderr.read_text()[-2000:]}")
        yield Running(proxy.name, place.port, process.pid, place.metrics_port, proxy.most_connections)
    finally:
        below = machine.tree(process.pid)[1:]
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            for pid in (process.pid, *below):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, 9)
            process.wait()


def _responds(process: subprocess.Popen[bytes], port: int) -> bool:
    # LiteLLM takes 30 s on a slow core.
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        headers = {"content-type": "application/json", "authorization": "Bearer sk-bench"}
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("POST", "/v1/chat/completions", REQUEST, headers)
            if connection.getresponse().status == 200:
                return True
        connection.close()
        time.sleep(0.2)
    return False
