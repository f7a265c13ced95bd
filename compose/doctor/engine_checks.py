"""Checks of the engine and the sidecar: what their flags and files make visible."""

from importlib import metadata

from compose.doctor.engine_reading import SEND, Answering, EngineReading
from compose.doctor.finding import Finding, State, Unread
from compose.doctor.sidecar_reading import SidecarPage, SidecarReading
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Endpoint, Label, Outcome

_WITH_TIMES = (Endpoint.CHAT_COMPLETIONS, Endpoint.COMPLETIONS)
"""The APIs in whose responses vLLM reports its times."""


def engine_metrics(engine: EngineReading) -> Finding:
    """Whether the metrics of a known engine can be read."""
    looked_at = f"{engine.place.url}/metrics"
    match engine.metrics:
        case Unread() as unread if engine.is_relay:
            return unread.not_checked(looked_at)
        case Unread() as unread:
            return engine.place.finding(unread, "engine panels are empty, and alerts on the engine are silent")
        case metrics if metrics.engine_type is None:
            return Finding(
                State.FAILED,
                looked_at,
                "it has no series of a known engine",
                "engine panels are empty, alerts on the engine are silent, and config changes are not detected",
                "start vLLM without --disable-log-stats",
            )
        case metrics:
            return Finding(State.OK, looked_at, f"{metrics.type_name}, {len(metrics.exposed)} of our series")


def exposure(engine: EngineReading) -> Finding:
    """Whether the engine responds without a key at an address that other machines reach.

    vLLM's `--api-key` protects the paths under /v1 only, so /metrics stays readable.
    """
    looked_at = f"{engine.place.url}/v1/models and /metrics, without a key"
    if engine.is_relay:
        return Unread(
            f"{engine.place.url} is a sidecar", f"set {engine.place.flag} to the URL of the engine"
        ).not_checked(looked_at)
    if isinstance(engine.answering, Unread):
        return engine.answering.not_checked(looked_at)
    if not engine.answering:
        return Finding(State.OK, looked_at, "it responds on this machine only")
    found = "; ".join(_shown(each) for each in engine.answering)
    public = [each for each in engine.answering if each.is_public]
    if any(each.models for each in public):
        return Finding(State.FAILED, looked_at, found, "anyone can use the GPU, past the sidecar", _CLOSE)
    if any(each.metrics for each in public):
        cost = "anyone can read the settings, the model and the load of the engine"
        return Finding(State.WARNING, looked_at, found, cost, _CLOSE)
    if any(each.beside and each.models for each in engine.answering):
        cost = "clients in this network, or behind a forwarded port, can use the engine past the sidecar"
        return Finding(State.WARNING, looked_at, found, cost, _CLOSE)
    return Finding(State.OK, looked_at, found)


_CLOSE = "a firewall, or vllm serve --host 127.0.0.1 beside its sidecar; with --api-key alone, /metrics stays open"


def _shown(each: Answering) -> str:
    paths = [path for path, shown in (("/v1/models", each.models), ("/metrics", each.metrics)) if shown]
    kind = "a public address" if each.is_public else "a private address"
    return f"{each.address}, {kind}, {'shows ' + ' and '.join(paths) if paths else 'needs a key'}"


def sidecar(reading: SidecarReading) -> Finding:
    """Whether the sidecar is ready, has read its SLO file, and has the version of this program."""
    url = reading.place.url
    match reading.page, reading.readiness:
        case (Unread() as unread, _) | (_, Unread() as unread):
            return reading.place.finding(unread, "requests are not measured")
        case SidecarPage() as page, response:
            pass
    if response.status != 200:
        found = f"not ready: {response.body.strip()[:80]}"
        return Finding(
            State.FAILED, f"{url}/readyz", found, "a load balancer sends it no requests", f"curl {url}/readyz"
        )
    if not page.total(signals.SIDECAR_RELOAD_SUCCESSFUL):
        return Finding(
            State.FAILED,
            signals.SIDECAR_RELOAD_SUCCESSFUL.name,
            "the last SLO file was invalid; the one before is in use",
            "requests are judged by old objectives and thresholds",
            "vllm-slo alerts check --slos FILE, then kill -HUP of the sidecar",
        )
    (version, *_), ours = page.values(signals.SIDECAR_BUILD, Label.VERSION), metadata.version("vllm-slo")
    if version != ours:
        return Finding(
            State.WARNING,
            signals.SIDECAR_BUILD.name,
            f"the sidecar is {version}, this program {ours}",
            "rules and dashboards of this program may read series that the sidecar does not have",
            f"restart the sidecar with version {ours}, or run the doctor of version {version}",
        )
    return Finding(State.OK, url, f"ready, version {version}")


def upstream(page: SidecarPage | Unread) -> Finding:
    """Whether the sidecar reaches the engine of its `--upstream`, reads the metrics of all engines, and they serve."""
    looked_at = f"{signals.ENGINE_UP.name}, {signals.ENGINE_STATE.name}, {signals.SIDECAR_UPSTREAM_ERRORS.name}"
    if isinstance(page, Unread):
        return page.not_checked(looked_at)
    up = page.values(signals.ENGINE_UP, Label.ENGINE)
    down = sorted(name for name, value in up.items() if not value)
    errors = _connect_errors(page)
    states = page.names(signals.ENGINE_STATE, Label.STATE)
    useless = [name for name, state in sorted(states.items()) if state == "wedged" or (state == "down" and up[name])]
    if useless:
        reasons = page.names(signals.ENGINE_STATE_REASON, Label.REASON)
        found = ", ".join(f"{name} is {states[name]} ({reasons[name]})" for name in useless)
        restart = "look at the GPU and the end of its log, then restart it; /engine/livez has the evidence"
        return Finding(State.FAILED, looked_at, found, "its requests hang or fail, though /health may succeed", restart)
    fix = "correct --upstream and --engine-metrics of the sidecar; its log has each URL and the reason"
    if down:
        found = f"the sidecar cannot read the metrics of {', '.join(down)}{errors and '; ' + errors}"
        cost = "if requests fail too, clients get status 502; engine panels are empty"
        return Finding(State.FAILED, looked_at, found, cost, fix)
    if errors and not page.total(signals.REQUESTS, **{Label.OUTCOME: (Outcome.OK,)}):
        return Finding(State.FAILED, looked_at, f"{errors}; no request has succeeded", "clients get status 502", fix)
    serving = ", ".join(f"{name} {states.get(name, 'up')}" for name in up)
    return Finding(State.OK, looked_at, f"{serving}{errors and '; since its start ' + errors}")


def _connect_errors(page: SidecarPage) -> str:
    """The failed connections by upstream and reason; empty if there are none."""
    reasons = page.values(signals.SIDECAR_UPSTREAM_ERRORS, Label.REASON)
    failed = ", ".join(f"{count:,.0f} {reason}" for reason, count in reasons.items() if count)
    addresses = ", ".join(page.values(signals.SIDECAR_UPSTREAM_ERRORS, Label.UPSTREAM))
    return f"connections to {addresses} failed: {failed}" if failed else ""


def cached_tokens(engine: EngineReading, page: SidecarPage | Unread) -> Finding:
    """Whether responses report cached prompt tokens: `--enable-prompt-tokens-details`."""
    cost = "cached tokens are unknown: no hit ratio per class, and no cost of uncached tokens"
    fix = "vllm serve MODEL --enable-prompt-tokens-details"
    if not isinstance(engine.answer, Unread):
        if engine.answer["usage"].get("prompt_tokens_details") is not None:
            return Finding(State.OK, "usage of a response", "a response has prompt_tokens_details")
        return Finding(State.WARNING, "usage of a response", "a response has no prompt_tokens_details", cost, fix)
    looked_at = signals.CACHED_TOKENS.name
    if isinstance(page, Unread):
        return _no_evidence(engine, page).not_checked(looked_at)
    cached, hits, requests = page.total(signals.CACHED_TOKENS), page.total(signals.ENGINE_CACHE_HITS), _finished(page)
    if cached:
        return Finding(State.OK, looked_at, f"responses reported {cached:,.0f} cached tokens")
    if hits and requests:
        found = f"{requests:,.0f} responses reported none, and the engine found {hits:,.0f} prompt tokens in its cache"
        return Finding(State.WARNING, looked_at, found, cost, fix)
    return _no_evidence(engine, Unread("no request has hit the prefix cache")).not_checked(looked_at)


def engine_times(engine: EngineReading, page: SidecarPage | Unread) -> Finding:
    """Whether the engine's queue, prefill and decode times arrive: `--enable-per-request-metrics`, or its spans."""
    cost = "it is unknown whether a slow request waited, prefilled or decoded; SLOs on queue time have no events"
    fix = "vllm serve MODEL --enable-per-request-metrics (vLLM 0.25 or newer)"
    looked_at = signals.REQUESTS_WITH_ENGINE_TIMES.name
    if not isinstance(page, Unread) and (timed := page.total(signals.REQUESTS_WITH_ENGINE_TIMES)):
        return Finding(State.OK, looked_at, f"{timed:,.0f} requests have times of the engine")
    if not isinstance(engine.answer, Unread):
        if engine.answer.get("metrics") is not None:
            return Finding(State.OK, "metrics of a response", "a response has times of the engine")
        return Finding(State.WARNING, "metrics of a response", "a response has no times of the engine", cost, fix)
    if isinstance(page, Unread):
        return _no_evidence(engine, page).not_checked(looked_at)
    if requests := _finished(page):
        return Finding(State.WARNING, looked_at, f"0 of {requests:,.0f} finished requests have times", cost, fix)
    return _no_evidence(engine, Unread("no request has finished")).not_checked(looked_at)


def engine_spans(engine: EngineReading) -> Finding:
    """Whether vLLM exports spans: `--otlp-traces-endpoint`."""
    looked_at = f"{engine.place.url}/server_info"
    if isinstance(engine.observability, Unread):
        return engine.observability.not_checked(looked_at)
    if endpoint := engine.observability["otlp_traces_endpoint"]:
        return Finding(State.OK, looked_at, f"spans go to {endpoint}")
    return Finding(
        State.WARNING,
        looked_at,
        "otlp_traces_endpoint is not set",
        "traces end at the sidecar: the engine's span of a request is missing",
        "vllm serve MODEL --otlp-traces-endpoint grpc://HOST:4317, and --engine-spans of the sidecar",
    )


def _finished(page: SidecarPage) -> float:
    return page.total(signals.REQUESTS, **{Label.OUTCOME: (Outcome.OK,), Label.ROUTE: _WITH_TIMES})


def _no_evidence(engine: EngineReading, reason: Unread) -> Unread:
    """The reason why there is no evidence: no request was sent, or it gave no answer."""
    if isinstance(engine.answer, Unread) and not engine.answer.fix.endswith(SEND):
        return engine.answer
    return Unread(reason.reason, f"vllm-slo doctor --upstream {engine.place.url} {SEND}")
