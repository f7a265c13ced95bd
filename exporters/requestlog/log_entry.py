"""One line of the request log: its fields in order, each with its type, unit and meaning."""

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from exporters.signals import Outcome, Verdict

Text = str | None
Count = int | None
Flag = bool | None
Number = float | None


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request of the sidecar's request log. The sidecar writes every field; an unknown value is null, never 0."""

    time: Annotated[
        datetime,
        Meta(
            tz=True,
            description="Time zero, in UTC: the last byte of the request's body arrived, or the sender's "
            "`X-Request-Start` where that is trusted.",
        ),
    ]
    request_id: Annotated[
        str, Meta(description="The client's `x-request-id`, or the id that the sidecar gave the request.")
    ] = ""
    trace_id: Annotated[
        Text, Meta(description="Trace of the client's `traceparent`, or of the sidecar's span where spans are made.")
    ] = None
    model: Annotated[Text, Meta(description="Model that the request names.")] = None
    request_class: Annotated[
        str, Meta(description="Class of the SLO file that the request belongs to, or `other`.")
    ] = msgspec.field(name="class")
    tenant: Annotated[str, Meta(description="Tenant of the SLO file's list, or `other`.")] = ""
    endpoint: Annotated[str, Meta(description="Path of the request, at most 256 characters.")] = ""
    stream: Annotated[bool, Meta(description="Whether the client asked for an event stream, or the response is one.")]
    status: Annotated[Count, Meta(description="HTTP status of the response.")] = None
    outcome: Annotated[Outcome, Meta(description="How the request ended.")]
    finish_reason: Annotated[Text, Meta(description="`finish_reason` of the response.")] = None
    prompt_tokens: Annotated[Count, Meta(description="Prompt tokens by the response's `usage`.")] = None
    completion_tokens: Annotated[Count, Meta(description="Completion tokens by the response's `usage`.")] = None
    cached_tokens: Annotated[Count, Meta(description="Prompt tokens found in the prefix cache, by `usage`.")] = None
    cache_hit: Annotated[Flag, Meta(description="Whether `cached_tokens` is above 0.")] = None
    max_tokens: Annotated[Count, Meta(description="Limit of completion tokens in the request.")] = None
    temperature: Annotated[Number, Meta(description="Sampling temperature in the request.")] = None
    prompt_sha256: Annotated[
        Text, Meta(description="Salted hash of model and prompt; each start of the sidecar has another salt.")
    ] = None
    prompt_repeat: Annotated[
        Flag, Meta(description="Whether the same prompt came before, among the last 100,000 different ones.")
    ] = None
    upload_ms: Annotated[Number, Meta(description="From the first to the last byte of the request.")] = None
    ttft_ms: Annotated[Number, Meta(description="TTFT: from `time` to the first token of a stream.")] = None
    ttft_answer_ms: Annotated[
        Number, Meta(description="From `time` to the first token of the answer, after any reasoning.")
    ] = None
    tpot_ms: Annotated[
        Number,
        Meta(
            description="TPOT: from first to last token over `completion_tokens` - 1; null for fewer than 2 tokens or "
            "several choices."
        ),
    ] = None
    itl_p50_ms: Annotated[
        Number, Meta(description="Median gap between output chunks of this request (a chunk may hold several tokens).")
    ] = None
    itl_p95_ms: Annotated[Number, Meta(description="95th percentile of the same gaps.")] = None
    e2e_ms: Annotated[float, Meta(ge=0, description="From `time` to the end of the request.")]
    queue_ms: Annotated[Number, Meta(description="Queue time, by the engine's own measurement.")] = None
    prefill_ms: Annotated[Number, Meta(description="Prefill time, by the engine's own measurement.")] = None
    decode_ms: Annotated[Number, Meta(description="Decode time, by the engine's own measurement.")] = None
    wait_ms_at_least: Annotated[
        Number, Meta(description="How long a stream without a first token waited for one: a lower bound of its TTFT.")
    ] = None
    client_paused_ms: Annotated[
        Number, Meta(description="How long the client did not read; part of `e2e_ms`, of no other latency.")
    ] = None
    slo: Annotated[
        dict[str, Verdict], Meta(description="Verdict of each SLO that judged the request; `abandoned` is no event.")
    ] = {}
    config_revision: Annotated[
        Text, Meta(description="Revision of the engine's configuration when the request was logged.")
    ] = None
    record: Annotated[
        str, Meta(description="`<relay life>:<number>`, which no other line has: identifies the line.")
    ] = ""

    @property
    def arrived(self) -> float:
        """`time` in unix seconds."""
        return self.time.timestamp()

    @property
    def ended(self) -> float:
        """Unix seconds."""
        return self.arrived + self.e2e_ms / 1000
