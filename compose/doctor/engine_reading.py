"""Reads what an engine shows of its configuration: metrics, `/server_info`, and if allowed one response."""

import ipaddress
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from compose.doctor.finding import Place, Unread
from compose.doctor.http_fetch import Response, fetch
from exporters.engines.bearer_token import DENIED
from exporters.engines.normalisation import EngineMetrics, normalise
from exporters.engines.settings import SERVER_INFO
from exporters.processes.worker_threads import WorkerThreads
from exporters.text.errors import system_reason

SEND = "--send-request"
_MESSAGE = "vllm-slo:"
"""The start of the sidecar's own error messages."""


_MODELS = "/v1/models"
_OUTSIDE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Addresses for documentation. The route to them has the address from which this machine reaches others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """An address beyond this machine at which the engine responds, and what it shows there without a key."""

    address: str
    beside: bool
    """Whether it is another address of this machine than the one of the URL, which is local."""
    models: bool
    metrics: bool

    @property
    def is_public(self) -> bool:
        return ipaddress.ip_address(self.address).is_global


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """The content of each response, or why there is none."""

    place: Place
    page: Response | Unread
    """The response to `GET /metrics`, with any status."""
    metrics: EngineMetrics | Unread
    observability: Mapping[str, Any] | Unread
    """`observability_config` of vLLM's `/server_info`."""
    answer: Mapping[str, Any] | Unread
    """The response to one small chat completion."""
    answering: Sequence[Answering] | Unread
    """The addresses at which it responds; none if it responds on this machine only."""

    @property
    def is_relay(self) -> bool:
        """Whether the URL is a sidecar's address for clients."""
        return isinstance(self.page, Response) and _is_refusal(self.page)


def read_engine(place: Place, headers: Mapping[str, str], *, send_request: bool) -> EngineReading:
    """Read an engine; only with `send_request` it computes something."""
    with WorkerThreads(4, "doctor") as pool:
        page = pool.submit(fetch, place, "/metrics", headers)
        info = pool.submit(fetch, place, SERVER_INFO, headers)
        answer = pool.submit(_ask, place, headers) if send_request else None
        answering = pool.submit(_answering, place)
        return EngineReading(
            place=place,
            page=page.result(),
            metrics=_metrics(place, page.result()),
            observability=_observability(place, page.result(), info.result()),
            answer=Unread("no request was sent", f"vllm-slo doctor --upstream {place.url} {SEND}")
            if answer is None
            else answer.result(),
            answering=answering.result(),
        )


def _answering(place: Place) -> Sequence[Answering] | Unread:
    """The addresses of the URL; if it is one of this machine, all others of this machine with the same port."""
    parts = urlsplit(place.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        return place.unreachable(system_reason(error))
    named = [str(entry[4][0]).partition("%")[0] for entry in found]
    local = any(ipaddress.ip_address(address).is_loopback for address in named)
    if isinstance(unread := fetch(place, _MODELS), Unread):
        return unread
    answering = []
    for address in own_addresses() if local else named[:1]:
        host = f"[{address}]" if ":" in address else address
        at = Place(f"{parts.scheme}://{host}:{port}{parts.path}", place.flag, named=False) if local else place
        models, metrics = fetch(at, _MODELS), fetch(at, "/metrics")
        if isinstance(models, Response):
            shows = isinstance(metrics, Response) and metrics.status == 200
            answering.append(Answering(address=address, beside=local, models=models.status == 200, metrics=shows))
    return answering


def own_addresses() -> Iterator[str]:
    """The addresses from which this machine reaches others; nothing is sent."""
    for family, outside in _OUTSIDE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as route:
                route.connect((outside, 9))
                yield str(route.getsockname()[0])
        except OSError:
            continue  # without a route, or without this version of IP


def _metrics(place: Place, page: Response | Unread) -> EngineMetrics | Unread:
    if isinstance(page, Unread):
        return page
    if page.status != 200:
        return _rejected(place, "/metrics", page)
    try:
        return normalise(page.body)
    except ValueError as error:
        return Unread(f"{place.url}/metrics is not an exposition: {error}", f"set {place.flag} to the URL of an engine")


def _observability(place: Place, page: Response | Unread, response: Response | Unread) -> Mapping[str, Any] | Unread:
    if isinstance(page, Unread):
        return page
    if isinstance(response, Unread):
        # vLLM collects its environment before the first response.
        return Unread(f"{response.reason} to /server_info, whose first response takes longer", "repeat this command")
    if _is_refusal(response):
        return _rejected(place, "/server_info", response)
    if response.status != 200:
        return Unread(
            f"{place.url}/server_info: HTTP {response.status}; vLLM serves it only with VLLM_SERVER_DEV_MODE=1",
            "look for --otlp-traces-endpoint in the command line of the engine",
        )
    try:
        config: Mapping[str, Any] = json.loads(response.body)["vllm_config"]["observability_config"]
        config["otlp_traces_endpoint"]
    except (ValueError, KeyError, TypeError):
        return Unread(
            f"{place.url}/server_info has no observability_config.otlp_traces_endpoint in this version",
            "look for --otlp-traces-endpoint in the command line of the engine",
        )
    return config


def _ask(place: Place, headers: Mapping[str, str]) -> Mapping[str, Any] | Unread:
    models = fetch(place, _MODELS, headers)
    if isinstance(models, Unread):
        return models
    if models.status != 200:
        return _rejected(place, "/v1/models", models)
    try:
        model = json.loads(models.body)["data"][0]["id"]
    except (ValueError, LookupError, TypeError):
        return Unread(f"{place.url}/v1/models lists no model", "wait until the engine has loaded one")
    body = {"model": model, "messages": [{"role": "user", "content": "ping"}], "max_tokens": 1}
    response = fetch(place, "/v1/chat/completions", headers, json.dumps(body))
    if isinstance(response, Unread):
        return response
    if response.status != 200:
        return _rejected(place, "/v1/chat/completions", response)
    try:
        answer = json.loads(response.body)
        answer["usage"]["prompt_tokens"]
    except (ValueError, KeyError, TypeError):
        return Unread(f"{place.url}/v1/chat/completions: the response has no usage", "send a request by hand")
    return dict(answer)


def _is_refusal(response: Response) -> bool:
    """Whether a sidecar has refused to relay the path."""
    return response.status == 403 and _MESSAGE in response.body


def _rejected(place: Place, path: str, response: Response) -> Unread:
    if _is_refusal(response):
        return Unread(
            f"{place.url} is a sidecar, which does not relay {path}", f"set {place.flag} to the URL of the engine"
        )
    fix = "set --engine-token-file FILE" if response.status in DENIED else f"check {place.flag}"
    return Unread(f"{place.url}{path}: HTTP {response.status}", fix)
