"""The evidence on a class and on its engine: each figure with its source, or the reason why it is unknown."""
# ruff: noqa: RUF009 - _fact returns dataclasses.field, which is evaluated for each class on purpose

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from enum import StrEnum
from typing import Any


class Quantity(StrEnum):
    """What a figure counts, which determines its unit."""

    COUNT = "count"
    SHARE = "share"  # 0 to 1
    SECONDS = "seconds"
    TOKENS = "tokens"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Fact:
    """A value and where it comes from; without a value, why it is unknown and what would give it."""

    value: float | None
    origin: str

    def reaches(self, threshold: float) -> bool:
        """False if the value is unknown."""
        return self.value is not None and self.value >= threshold

    def or_zero(self) -> float:
        return self.value or 0.0


ENGINE_TIMES = "vllm serve --enable-per-request-metrics, or sidecar --engine-spans"
CACHED_TOKENS = "vllm serve --enable-prompt-tokens-details"
PREFIX_HASHES = "sidecar --log-prefix-hashes"
STRUCTURED = "sidecar --check-structured-output"
PROMETHEUS = "diagnose --prometheus URL"
REQUEST_LOG = "diagnose --request-log FILE"
_HASHES = "no hashes: a log of an older sidecar, or of one with --log-content off"
USAGE = "streams without usage; do not set sidecar --no-inject-usage"


def _fact(title: str, quantity: Quantity, missing: str = "no data") -> Any:
    return field(default=Fact(None, missing), metadata={"title": title, "quantity": quantity})


def spell(value: float, quantity: Quantity) -> str:
    """A value with its unit: `94 %`, `120 ms`, `4.1 s`, `1,135`."""
    match quantity:
        case Quantity.SHARE:
            return f"{value:.1%}".replace(".0%", "%").replace("%", " %")
        case Quantity.SECONDS:
            return f"{value * 1000:.3g} ms" if value < 1 else f"{value:.3g} s" if value < 999.5 else f"{value:,.0f} s"
        case Quantity.RATIO:
            return f"{value:.3g}"
        case _:
            return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


class Facts:
    """Named facts with titles and units."""

    def say(self, name: str) -> str:
        """`queue time p50 4.1 s (queue_ms of 523 requests)`; the same with `unknown` if it is."""
        metadata = next(each.metadata for each in fields(self) if each.name == name)  # type: ignore[arg-type] # as below
        fact: Fact = getattr(self, name)
        value = "unknown" if fact.value is None else spell(fact.value, metadata["quantity"])
        return f"{metadata['title']} {value} ({fact.origin})"

    def shown(self) -> Iterator[tuple[str, str, Quantity, Fact]]:
        """The name, title, quantity and value of each fact."""
        each: Field[Any]
        for each in fields(self):  # type: ignore[arg-type] # only dataclasses inherit this
            if each.metadata:
                yield each.name, each.metadata["title"], each.metadata["quantity"], getattr(self, each.name)


_C, _S, _T, _N, _R = Quantity.SHARE, Quantity.SECONDS, Quantity.TOKENS, Quantity.COUNT, Quantity.RATIO


@dataclass(frozen=True, kw_only=True)
class ClassEvidence(Facts):
    """The requests of one class; p50 and p95 are nearest-rank percentiles."""

    name: str
    requests: Fact = _fact("requests", _N)
    goodput: Fact = _fact("goodput", _C, "no request has a verdict")
    # Bad share / (1 - objective) of the SLO that is missed most: above 1, the class misses it.
    first_token_burn: Fact = _fact("burn rate, SLOs on the first token", _R, "no such SLO judged the class")
    decode_burn: Fact = _fact("burn rate, SLOs on decode", _R, "no such SLO judged the class")
    other_burn: Fact = _fact("burn rate, other SLOs", _R, "no such SLO judged the class")
    rejected: Fact = _fact("rejected (429, 503)", _C)
    failed: Fact = _fact("failed by the engine", _C)
    failed_time: Fact = _fact("share of the time in which 95 % of them failed", _C, "no failed requests, or no log")
    client_errors: Fact = _fact("client errors (other 4xx)", _C)
    aborted: Fact = _fact("aborted after the first token", _C)
    no_first_token: Fact = _fact("streams without a first token in time", _C, "no streams")
    open_waiting: Fact = _fact("open requests without a first token, at the end", _N, PROMETHEUS)
    oldest_wait: Fact = _fact("age of the oldest of them", _S, PROMETHEUS)
    client_paused: Fact = _fact("time in which the client did not read", _C)
    invalid_output: Fact = _fact("invalid structured output", _C, f"not checked: {STRUCTURED}")
    invalid_tool_calls: Fact = _fact("invalid tool calls / invalid output", _C, "no invalid output")
    truncated_output: Fact = _fact("structured output cut at max_tokens", _C, f"not checked: {STRUCTURED}")
    engine_times: Fact = _fact("requests with times of the engine", _C, f"none reported: {ENGINE_TIMES}")
    ttft: Fact = _fact("TTFT p50", _S, "no streams")
    queue: Fact = _fact("queue time p50", _S, f"no times of the engine: {ENGINE_TIMES}")
    prefill: Fact = _fact("prefill p50", _S, f"no times of the engine: {ENGINE_TIMES}")
    frontend: Fact = _fact("front-end time p50", _S, f"no times of the engine: {ENGINE_TIMES}")
    queue_share: Fact = _fact("queue time / TTFT", _C, f"no times of the engine: {ENGINE_TIMES}")
    prefill_share: Fact = _fact("prefill / TTFT", _C, f"no times of the engine: {ENGINE_TIMES}")
    frontend_share: Fact = _fact("front-end time / TTFT", _C, f"no times of the engine: {ENGINE_TIMES}")
    e2e: Fact = _fact("E2E p50", _S)
    decode: Fact = _fact("decode p50", _S, f"no streams and no times of the engine: {ENGINE_TIMES}")
    decode_share: Fact = _fact("decode / E2E", _C, f"no streams and no times of the engine: {ENGINE_TIMES}")
    tpot: Fact = _fact("TPOT p50", _S, USAGE)
    stall_ratio: Fact = _fact("ITL p95 / ITL p50", _R, "no streams")
    prompt_p50: Fact = _fact("prompt tokens p50", _T, USAGE)
    prompt_p95: Fact = _fact("prompt tokens p95", _T, USAGE)
    output_p50: Fact = _fact("completion tokens p50", _T, USAGE)
    output_p95: Fact = _fact("completion tokens p95", _T, USAGE)
    reasoning: Fact = _fact("reasoning / completion tokens", _C, "the engine does not report reasoning tokens")
    cached_p50: Fact = _fact("cached tokens p50", _T, f"the engine does not report them: {CACHED_TOKENS}")
    cached_p95: Fact = _fact("cached tokens p95", _T, f"the engine does not report them: {CACHED_TOKENS}")
    longest: Fact = _fact("longest request", _T, USAGE)
    other_prompt: Fact = _fact("prompt tokens p50 of the longest other class", _T, "no other class")
    repeated_prompts: Fact = _fact("repeated prompts", _C, _HASHES)
    repeated_bodies: Fact = _fact("repeated bodies", _C, _HASHES)
    cached_answers: Fact = _fact("repeated bodies answered as by a response cache", _C, REQUEST_LOG)
    possible_hits: Fact = _fact("hit ratio, possible", _C, f"no prefix hashes: {PREFIX_HASHES}")
    actual_hits: Fact = _fact("hit ratio, actual", _C, f"the engine does not report it: {CACHED_TOKENS}")


_FLAG = "diagnose --set {}=VALUE, or --prometheus URL if vLLM exposes it"


@dataclass(frozen=True, kw_only=True)
class EngineEvidence(Facts):
    """The engine, over all classes; of several engines, the busiest."""

    unusable: Fact = _fact("time in which an engine was wedged or down", _C, PROMETHEUS)
    waiting: Fact = _fact("waiting requests, mean", _N, PROMETHEUS)
    running: Fact = _fact("running requests, p95", _N, PROMETHEUS)
    running_p50: Fact = _fact("running requests, p50", _N, PROMETHEUS)
    kv_use: Fact = _fact("KV cache use, p95", _C, PROMETHEUS)
    kv_capacity: Fact = _fact("KV cache capacity", _T, PROMETHEUS)
    preemptions: Fact = _fact("preemptions / requests", _R, PROMETHEUS)
    possible_hits: Fact = _fact("hit ratio, possible, all classes", _C, f"no prefix hashes: {PREFIX_HASHES}")
    cache_hits: Fact = _fact("hit ratio, actual, all classes", _C, f"{PROMETHEUS}, or {CACHED_TOKENS}")
    queue: Fact = _fact("queue time p50, all classes", _S, PROMETHEUS)
    prefill: Fact = _fact("prefill p50, all classes", _S, PROMETHEUS)
    draft_acceptance: Fact = _fact("accepted / draft tokens", _C, PROMETHEUS)
    tpot_floor: Fact = _fact("TPOT floor at the running batch", _S, "diagnose --roofline FILE, with running requests")
    draft_floor: Fact = _fact(
        "the same with 3 draft tokens per request / without", _R, "diagnose --roofline FILE, with running requests"
    )
    max_model_len: Fact = _fact("max_model_len", _T, _FLAG.format("max_model_len"))
    max_num_seqs: Fact = _fact("max_num_seqs", _N, _FLAG.format("max_num_seqs"))
    max_num_batched_tokens: Fact = _fact("max_num_batched_tokens", _T, _FLAG.format("max_num_batched_tokens"))
    settings: Mapping[str, str] = field(default_factory=dict)
    """The known settings of the engine by vLLM's names."""

    def switch(self, name: str) -> bool | None:
        """A setting that is on or off; None if unknown."""
        return {"true": True, "1": True, "false": False, "0": False}.get(self.settings.get(name, "").lower())
