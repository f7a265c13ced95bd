"""Every series and label that a package writes or reads, declared once; imports only the standard library.

The docstring of a series is its help.
"""

import ast
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Self


class Kind(Enum):
    """The type of a series, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Endpoint(StrEnum):
    """The API of a request, in the label `route`.

    It is the path, or for `/v1/responses` also how the response is generated or retrieved.
    """

    CHAT_COMPLETIONS = "chat_completions"
    COMPLETIONS = "completions"
    RESPONSES = "responses"
    RESPONSES_BACKGROUND = "responses_background"  # generated after the request has ended
    RESPONSES_BY_ID = "responses_by_id"  # retrieve, cancel or delete
    MESSAGES = "messages"
    COUNT_TOKENS = "count_tokens"
    EMBEDDINGS = "embeddings"
    RERANK = "rerank"
    SCORE = "score"
    CLASSIFY = "classify"
    POOLING = "pooling"
    AUDIO_TRANSCRIPTIONS = "audio_transcriptions"
    AUDIO_TRANSLATIONS = "audio_translations"
    TOKENIZE = "tokenize"
    DETOKENIZE = "detokenize"
    MODELS = "models"
    REALTIME = "realtime"
    OTHER = "other"


MEASURED = tuple(
    endpoint
    for endpoint in Endpoint
    if endpoint
    not in {
        *(Endpoint.RESPONSES_BACKGROUND, Endpoint.RESPONSES_BY_ID),
        *(Endpoint.MODELS, Endpoint.REALTIME, Endpoint.OTHER),
    }
)
"""Endpoints of requests with a class and SLO events."""

GENERATING = frozenset(
    {
        Endpoint.CHAT_COMPLETIONS,
        Endpoint.COMPLETIONS,
        Endpoint.RESPONSES,
        Endpoint.RESPONSES_BACKGROUND,
        Endpoint.MESSAGES,
    }
)
"""Endpoints of requests with completion tokens and with queue, prefill and decode times of the engine."""


class Outcome(StrEnum):
    """The outcome of a request; every request has exactly one."""

    OK = "ok"
    CLIENT_ABORT = "client_abort"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105 - a label value, no secret
    TIMEOUT_IDLE = "timeout_idle"
    TIMEOUT_TOTAL = "timeout_total"
    TRUNCATED = "truncated"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    REJECTED = "rejected"
    CLIENT_ERROR = "client_error"


class LoadOutcome(StrEnum):
    """Outcomes that only the load generator reports, in addition to `Outcome`."""

    TIMEOUT = "timeout"  # cancelled by the client after the scenario's timeout
    CUT = "cut"  # still open when the run was stopped
    NOT_SENT = "not_sent"  # scheduled, but the generator could not open another connection


class Phase(StrEnum):
    """The phase of a request in flight: before or after its first token."""

    WAITING = "waiting"
    STREAMING = "streaming"


class Verdict(StrEnum):
    """The verdict of one SLO on one request; `ABANDONED` is not an SLO event."""

    GOOD = "good"
    BAD = "bad"
    ABANDONED = "abandoned"


class OutputKind(StrEnum):
    """What a request asked of the output: JSON, JSON of a schema, or a tool call, if the answer has one."""

    JSON = "json"
    JSON_SCHEMA = "json_schema"
    TOOL_CALL = "tool_call"


class OutputResult(StrEnum):
    """Whether the output of a complete answer is valid JSON."""

    VALID = "valid"
    INVALID = "invalid"
    TRUNCATED = "truncated"  # at the limit of tokens
    TOO_LARGE = "too_large"  # to be kept and parsed


OTHER = "other"
"""The label value for models, classes and tenants that are not in their bounded list."""

WARM_UP = "warm-up"
"""The class of requests that prepare an engine: they are logged, and counted by `WARM_UP_REQUESTS` only."""

SIZE_BOUNDS = (128, 512, 2048, 8192, 32768)
SIZES = (*(f"{bound:05}" for bound in SIZE_BOUNDS), "above")
"""Label values: the upper bound of each size in tokens, with leading zeros so that tables sort them."""
LENGTH_BOUNDS = tuple(sorted({64 << n for n in range(12)} | {96 << n for n in range(11)}))
LENGTHS = (*(f"{bound:06}" for bound in LENGTH_BOUNDS), "above")
"""Label values of finer sizes, two per doubling from 64 to 131,072 tokens, in the same form."""
NO_TOKENS = "none"
"""The size of a completion with no tokens or with an unknown number of tokens."""


class Label(StrEnum):
    """Every label name, with what its values mean."""

    help: str

    def __new__(cls, name: str, help: str = "") -> Self:  # noqa: A002 - named as the field
        member = str.__new__(cls, name)
        member._value_, member.help = name, help
        return member

    MODEL = (
        "model",
        "Model name, if the engine lists it or `--model` names it, up to `--max-models`; otherwise `other`.",
    )
    CLASS = "class", "Class of the request by the SLO file; otherwise `other`."
    TENANT = "tenant", "Tenant of the request, if the SLO file lists it; otherwise `other`."
    STREAM = "stream", "`true` for streams, `false` for unary requests."
    ROUTE = "route", "API of the request: " + ", ".join(f"`{endpoint}`" for endpoint in Endpoint) + "."
    OUTCOME = "outcome", "How the request ended: " + ", ".join(f"`{outcome}`" for outcome in Outcome) + "."
    PHASE = "phase", "`waiting` before the first token, `streaming` after it."
    SLO = "slo", "Name of the SLO in the SLO file."
    INSTANCE = "instance", "Address of the scraped sidecar; set by Prometheus."
    JOB = "job", "Scrape job; set by Prometheus."
    ENGINE = "engine", "Engine: its name by `--engine-name`, otherwise its address, `HOST:PORT`."
    RANK = "rank", "Data-parallel rank or replica of the engine; `0` if the engine has only one."
    ENGINE_TYPE = "engine_type", "Type of the engine, such as `vllm` or `sglang`."
    VERSION = "version", "Version of the engine or of the sidecar."
    REVISION = "revision", "Hash of the engine's visible settings; it differs after every config change."
    SETTING = "setting", "Name of a setting of the engine."
    VALUE = "value", "Current value of the setting."
    OLD = "old", "Value of the setting before the config change."
    NEW = "new", "Value of the setting after the config change."
    SIGNAL = "signal", "Name of a series of this reference, such as `llm_engine_requests_waiting`."
    REASON = "reason", "Why it happened; a fixed set of values for each series."
    STATUS = "status", "HTTP status of the response."
    SOURCE = "source", "`local_compute`, `local_cache_hit` or `external_kv_transfer`; otherwise `other`."
    STAGE = "stage", "`waiting_to_start`, `in_progress` or `completed_waiting`; otherwise `other`."
    STATE = (
        "state",
        "State of the engine; of sleep: `awake`, `weights_offloaded` (level 1), `discard_all` (level 2) or `other`.",
    )
    PROCESS = "process", "Process of the sidecar: `exporter` or `relay-0`, `relay-1`, ..."
    UPSTREAM = "upstream", "Address of `--upstream`, `HOST:PORT`."
    WINDOW = "window", "Length of the window that the value covers, such as `5m`."
    SEVERITY = "severity", "`page` or `ticket`; a label of alerts."
    ALERT_SOURCE = "alert_source", "`vllm-slo` on all alerts of the rendered rules."
    ALERTNAME = "alertname", "Name of the alert; set by Prometheus."
    BATCH = "batch", "Number of requests that are decoded together."
    RUN = "run", "Identifier of the load test."
    SCENARIO = "scenario", "Scenario of the load test."
    EXPERIMENT = "experiment", "Experiment that the load test is part of."
    CONFIGURATION = "configuration", "Configuration of the engine in the load test, as the experiment names it."
    GPU = "gpu", "Index of the GPU in its host; set by DCGM's exporter."
    GPU_UUID = "UUID", "Identifier of the GPU; set by DCGM's exporter."
    GPU_MODEL = "modelName", "Model of the GPU; set by DCGM's exporter."
    GPU_HOST = "Hostname", "Host of the GPU; set by DCGM's exporter."
    MIG_INSTANCE = "GPU_I_ID", "Number of the MIG instance; only with MIG."
    MIG_PROFILE = "GPU_I_PROFILE", "Profile of the MIG instance, such as `1g.10gb`; only with MIG."
    POD = "pod", "Pod that uses the GPU; only in Kubernetes, and if the scrape has `honor_labels: true`."
    NAMESPACE = "namespace", "Namespace of that pod."
    PROMPT_SIZE = "prompt_size", "Upper bound of the prompt tokens, with leading zeros, or `above`."
    PROMPT_LENGTH = (
        "prompt_length",
        "Upper bound of the prompt tokens, two per doubling, with leading zeros, or `above`.",
    )
    COMPLETION_SIZE = "completion_size", "Upper bound of the completion tokens, with leading zeros, `above`, or `none`."
    KIND = "kind", "What has to be JSON: `json` or `json_schema` (the text), or `tool_call` (its arguments)."
    RESULT = (
        "result",
        (
            "An answer is `valid`, `invalid`, `truncated` at the limit of tokens, or `too_large` to be checked. "
            "A line is `counted`, `ignored` (not a request of the relayed paths), or `bad`."
        ),
    )


@dataclass(frozen=True, slots=True, eq=False)  # created once and looked up by identity for every record
class Signal:
    """One exposed family: name, type, help, labels, and for a histogram its upper bounds without +Inf."""

    name: str
    kind: Kind
    help: str
    labels: tuple[Label, ...] = ()
    bounds: tuple[float, ...] = ()

    @property
    def bucket(self) -> str:
        return f"{self.name}_bucket"

    @property
    def sum(self) -> str:
        return f"{self.name}_sum"

    @property
    def count(self) -> str:
        return f"{self.name}_count"


def _texts(source: str) -> dict[str, str]:
    """The docstring below each series that this module declares, by the name of the series."""
    found = {}
    for declared, text in pairwise(ast.parse(source).body):
        match declared, text:
            case ast.Assign(value=ast.Call(args=[ast.Constant(str(name)), *_])), ast.Expr(ast.Constant(str(docstring))):
                found[name] = " ".join(docstring.split())
    return found


_TEXT = _texts(Path(__file__).read_text(encoding="utf-8"))


def _counter(name: str, *labels: Label) -> Signal:
    return Signal(name, Kind.COUNTER, _TEXT[name], labels)


def _gauge(name: str, *labels: Label) -> Signal:
    return Signal(name, Kind.GAUGE, _TEXT[name], labels)


def _histogram(name: str, bounds: tuple[float, ...], *labels: Label) -> Signal:
    return Signal(name, Kind.HISTOGRAM, _TEXT[name], labels, bounds)


# The SLO file's thresholds are added at start. Four bounds per doubling from 50 ms to 120 s are at most a factor of 1.2
# apart, so that p50 and p95 of TTFT and E2E are within 10 % of the requests' own.
REQUEST_SECONDS = (0.01, 0.025, *(float(f"{2 ** (step / 4):.3g}") for step in range(-18, 29)), 300.0, 600.0)
# The bounds range from a chat turn in the prefix cache to a saturated queue.
WAIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
GAP_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
WHOLE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
TOKENS = (1.0, 8.0, 32.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 131072.0)

_M, _C, _T, _S, _O = Label.MODEL, Label.CLASS, Label.TENANT, Label.SLO, Label.OUTCOME
_E, _P, _R, _W = Label.ENGINE, Label.PROCESS, Label.REASON, Label.WINDOW
_MC, _RANKED = (_M, _C), (_E, Label.RANK, _M)
_SLO_WINDOW, _CLASS_WINDOW = (_M, _C, _S, _W), (_M, _C, _W)

# Requests and their latencies.
REQUESTS = _counter("llm_requests_total", *_MC, _O, _T, Label.STREAM, Label.ROUTE)
"""Ended requests by outcome."""
WARM_UP_REQUESTS = _counter("llm_warm_up_requests_total", _M, _O)
"""Ended requests of the class warm-up, by outcome. They are in no other series of requests."""
IN_FLIGHT = _gauge("llm_requests_in_flight", *_MC, Label.PHASE)
"""Open requests: waiting before the first token, streaming after it."""
OLDEST_WAIT = _gauge("llm_oldest_wait_seconds", *_MC)
"""Age of the oldest open stream without a first token; 0 if every stream has one."""
TTFT = _histogram("llm_time_to_first_token_seconds", REQUEST_SECONDS, *_MC)
"""TTFT of streams, from the arrival of the request."""
WITHOUT_FIRST_TOKEN = _counter("llm_requests_without_first_token_total", *_MC, _O)
"""Streams that ended without a first token, by outcome; they are not in the histogram of TTFT."""
TTFT_ANSWER = _histogram("llm_time_to_first_answer_token_seconds", WAIT_SECONDS, *_MC)
"""Time from the arrival of the request to the first answer token of streams; reasoning is not an answer."""
TPOT = _histogram("llm_time_per_output_token_seconds", GAP_SECONDS, *_MC)
"""TPOT of streams: time from the first to the last output token, divided by (completion tokens - 1)."""
INTER_CHUNK = _histogram("llm_inter_chunk_seconds", GAP_SECONDS, *_MC)
"""Time between output chunks; a chunk may contain several tokens."""
DURATION = _histogram("llm_request_duration_seconds", REQUEST_SECONDS, *_MC)
"""E2E of streams and unary requests that ended with ok, from their arrival."""
FRONTEND = _histogram("llm_request_frontend_seconds", WAIT_SECONDS, *_MC)
"""Front-end time of streams: TTFT from the end of the upload, minus queue and prefill time of the engine."""
QUEUE = _histogram("llm_request_queue_seconds", WAIT_SECONDS, *_MC)
"""Queue time, as the engine reports it."""
PREFILL = _histogram("llm_request_prefill_seconds", WAIT_SECONDS, *_MC)
"""Time from scheduling to first token, as the engine reports it."""
DECODE = _histogram("llm_request_decode_seconds", WHOLE_SECONDS, *_MC)
"""Time from first to last token, as the engine reports it."""
REQUESTS_WITH_ENGINE_TIMES = _counter("llm_requests_with_engine_times_total", *_MC)
"""Ended requests with times from the engine; the front-end, queue, prefill and decode histograms count only these."""

# Tokens, from the `usage` of the response.
PROMPT_TOKENS = _counter("llm_prompt_tokens_total", *_MC, _T)
"""Prompt tokens of ended requests."""
COMPLETION_TOKENS = _counter("llm_completion_tokens_total", *_MC, _T)
"""Completion tokens of ended requests, including aborted ones."""
REASONING_TOKENS = _counter("llm_reasoning_tokens_total", *_MC, _T)
"""Completion tokens of reasoning, if the engine reports them."""
CACHED_TOKENS = _counter("llm_cached_prompt_tokens_total", *_MC, _T)
"""Prompt tokens served from the engine's prefix cache."""
SHAREABLE_PROMPT_TOKENS = _counter("llm_shareable_prompt_tokens_total", *_MC, _T)
"""Prompt tokens that a prefix cache of the last hour could share, estimated; only with `--log-prefix-hashes`."""
PROMPT_REPEATS = _counter("llm_prompt_repeats_total", *_MC)
"""Requests whose entire prompt equals one of the last 100,000 distinct prompts."""
BODY_REPEATS = _counter("llm_body_repeats_total", *_MC)
"""Requests whose body equals one of the last 100,000 distinct bodies, apart from `stream`, `stream_options`, `user` and
`metadata`."""
UNIQUE_PROMPTS = _gauge("llm_unique_prompts_estimate", _M)
"""Estimated distinct prompts since the exporter started; standard error 1.6 %."""
REQUEST_PROMPT_TOKENS = _histogram("llm_request_prompt_tokens", TOKENS, *_MC)
"""Prompt tokens per request."""
REQUEST_COMPLETION_TOKENS = _histogram("llm_request_completion_tokens", TOKENS, *_MC)
"""Completion tokens per request."""
REQUESTS_BY_SIZE = _counter("llm_requests_by_size_total", _M, Label.PROMPT_SIZE, Label.COMPLETION_SIZE, _O)
"""Ended requests by size; label values are upper bounds in tokens. Prompt sizes are estimated if usage is unknown."""
REQUESTS_BY_LENGTH = _counter("llm_requests_by_prompt_length_total", *_MC, Label.PROMPT_LENGTH)
"""Ended requests by prompt length, in finer steps than by size. Prompt lengths are estimated if usage is unknown."""
FAILED_BY_LENGTH = _counter("llm_failed_requests_by_prompt_length_total", *_MC, Label.PROMPT_LENGTH)
"""Requests by prompt length that ended with another outcome than ok."""

STRUCTURED_REQUESTS = _counter("llm_structured_requests_total", *_MC, Label.KIND, Label.RESULT)
"""Answers that have to be JSON, by result; only with `--check-structured-output`."""

# SLO events.
SLO_EVENTS = _counter("llm_slo_events_total", *_MC, _S, _T)
"""SLO events: requests with the verdict good or bad."""
SLO_BAD = _counter("llm_slo_bad_events_total", *_MC, _S, _T)
"""Bad SLO events: requests with the verdict bad."""
SLO_ABANDONED = _counter("llm_slo_abandoned_total", *_MC, _S, _T)
"""Requests aborted, or no longer measured, before the verdict; these are not SLO events."""
GOODPUT_EVENTS = _counter("llm_goodput_events_total", *_MC, _T)
"""Requests with at least one verdict, good or bad."""
GOODPUT_REQUESTS = _counter("llm_goodput_requests_total", *_MC, _T)
"""Requests that are good for all their SLOs."""
GOODPUT_TOKENS = _counter("llm_goodput_tokens_total", *_MC, _T)
"""Completion tokens of requests that are good for all their SLOs."""

# The engine's own state, with the same names for all engines.
ENGINE_UP = _gauge("llm_engine_up", _E)
"""1 if the last scrape of the engine succeeded."""
ENGINE_STATE = _gauge("llm_engine_state", _E, Label.STATE)
"""1 for the state of the engine, 0 for the others: `starting`, `serving`, `saturated`, `wedged`, `paused`, `down`."""
ENGINE_STATE_REASON = _gauge("llm_engine_state_reason", _E, _R)
"""1 for the reason of the engine's state."""
ENGINE_STATE_CHANGED = _gauge("llm_engine_state_change_timestamp_seconds", _E)
"""When the state of the engine last changed, in Unix seconds."""
ENGINE_WORKED = _gauge("llm_engine_last_progress_timestamp_seconds", _E)
"""When the engine last worked: its counters moved, or output arrived. In Unix seconds; absent before."""
ENGINE_PROBES = _counter("llm_engine_probes_total", _E, Label.RESULT)
"""Requests of one token that the sidecar sent with --probe, by result. They are in no other series of the sidecar."""
ENGINE_INFO = _gauge("llm_engine_info", _E, Label.ENGINE_TYPE, Label.VERSION)
"""Type and version of the engine."""
ENGINE_START_TIME = _gauge("llm_engine_start_time_seconds", _E)
"""Start time of the engine process, in Unix seconds."""
ENGINE_SCRAPE_ERRORS = _counter("llm_engine_scrape_errors_total", _E, _R)
"""Scrapes of the engine that failed, or skipped invalid content or a list of models."""
ENGINE_SCRAPE_AGE = _gauge("llm_engine_last_good_scrape_age_seconds", _E)
"""Time since the last successful scrape."""
ENGINE_SIGNAL_EXPOSED = _gauge("llm_engine_signal_exposed", _E, Label.SIGNAL)
"""1 if the engine exposes the source of the series in `signal`."""
ENGINE_COUNTS_LIVE = _gauge("llm_engine_token_counts_live", _E)
"""1 if the engine counts tokens as it generates them, 0 if it counts them when the request ends."""
ENGINE_RUNNING = _gauge("llm_engine_requests_running", *_RANKED)
"""Requests in the engine's running batch."""
ENGINE_WAITING = _gauge("llm_engine_requests_waiting", *_RANKED)
"""Requests in the engine's waiting queue."""
ENGINE_DEFERRED = _gauge("llm_engine_requests_deferred", *_RANKED)
"""Waiting requests that the scheduler defers; all other waiting requests wait for capacity."""
ENGINE_REJECTIONS = _counter("llm_engine_admission_rejections_total", *_RANKED, _R)
"""Requests that the engine rejected at admission, by the limit that was reached."""
ENGINE_SLEEP_STATE = _gauge("llm_engine_sleep_state", *_RANKED, Label.STATE)
"""1 for the current sleep state of the engine, 0 for the others."""
ENGINE_LORA_RUNNING = _gauge("llm_engine_lora_adapters_running", _E)
"""LoRA adapters with running requests."""
ENGINE_LORA_LIMIT = _gauge("llm_engine_lora_adapters_limit", _E)
"""Maximum of different LoRA adapters in one batch."""
ENGINE_KV_USAGE = _gauge("llm_engine_kv_cache_usage_ratio", *_RANKED)
"""Share of the KV cache in use, 0 to 1."""
ENGINE_KV_CAPACITY = _gauge("llm_engine_kv_cache_capacity_tokens", _E, Label.RANK)
"""KV cache capacity in tokens."""
ENGINE_PREEMPTIONS = _counter("llm_engine_preemptions_total", *_RANKED)
"""Preemptions of running requests."""
ENGINE_CACHE_QUERIES = _counter("llm_engine_prefix_cache_queries_tokens_total", *_RANKED)
"""Prompt tokens looked up in the prefix cache."""
ENGINE_CACHE_HITS = _counter("llm_engine_prefix_cache_hits_tokens_total", *_RANKED)
"""Prompt tokens found in the prefix cache."""
ENGINE_EXTERNAL_CACHE_QUERIES = _counter("llm_engine_external_prefix_cache_queries_tokens_total", *_RANKED)
"""Prompt tokens looked up in an external prefix cache through a KV connector."""
ENGINE_EXTERNAL_CACHE_HITS = _counter("llm_engine_external_prefix_cache_hits_tokens_total", *_RANKED)
"""Prompt tokens found in an external prefix cache."""
ENGINE_PROMPT_TOKENS = _counter("llm_engine_prompt_tokens_total", *_RANKED)
"""Prompt tokens processed, as the engine counts them."""
ENGINE_PROMPT_TOKENS_BY_SOURCE = _counter("llm_engine_prompt_tokens_by_source_total", *_RANKED, Label.SOURCE)
"""Prompt tokens by the source of their KV cache entries."""
ENGINE_GENERATION_TOKENS = _counter("llm_engine_generation_tokens_total", *_RANKED)
"""Generated tokens, as the engine counts them."""
ENGINE_SPEC_DRAFTED = _counter("llm_engine_spec_decode_drafted_tokens_total", *_RANKED)
"""Draft tokens proposed by speculative decoding."""
ENGINE_SPEC_ACCEPTED = _counter("llm_engine_spec_decode_accepted_tokens_total", *_RANKED)
"""Draft tokens accepted by speculative decoding."""
ENGINE_KV_TRANSFER_BYTES = _counter("llm_engine_kv_transfer_bytes_total", *_RANKED)
"""Bytes of KV cache transferred between engines."""
ENGINE_KV_FETCH = _gauge("llm_engine_requests_kv_fetch", *_RANKED, Label.STAGE)
"""Waiting requests by the stage of the load of their KV cache."""
ENGINE_KV_TRANSFER_FAILURES = _counter("llm_engine_kv_transfer_failures_total", *_RANKED)
"""Failed transfers of KV cache between engines."""
ENGINE_KV_EXPIRED = _counter("llm_engine_kv_expired_requests_total", *_RANKED)
"""Requests whose KV cache expired on the prefill engine before the decode engine had read it."""
ENGINE_OFFLOAD_STORED = _counter("llm_engine_kv_offload_stored_bytes_total", *_RANKED)
"""Bytes of KV cache written from the GPU to offload storage."""
ENGINE_OFFLOAD_LOADED = _counter("llm_engine_kv_offload_loaded_bytes_total", *_RANKED)
"""Bytes of KV cache read from offload storage to the GPU."""
ENGINE_OFFLOAD_PINNED = _gauge("llm_engine_kv_offload_pinned_ratio", *_RANKED)
"""Share of the offload space in CPU memory that active transfers use, 0 to 1."""
# Latencies with the engine's own bounds; docs/engines.md defines them for each engine.
ENGINE_TTFT = _histogram("llm_engine_time_to_first_token_seconds", (), *_RANKED)
"""TTFT as the engine measures it."""
ENGINE_INTER_TOKEN = _histogram("llm_engine_inter_token_seconds", (), *_RANKED)
"""ITL (time between outputs) as the engine measures it."""
ENGINE_TPOT = _histogram("llm_engine_time_per_output_token_seconds", (), *_RANKED)
"""Mean TPOT of each request as the engine measures it."""
ENGINE_DURATION = _histogram("llm_engine_request_duration_seconds", (), *_RANKED)
"""E2E as the engine measures it."""
ENGINE_QUEUE = _histogram("llm_engine_request_queue_seconds", (), *_RANKED)
"""Queue time as the engine measures it."""
ENGINE_PREFILL = _histogram("llm_engine_request_prefill_seconds", (), *_RANKED)
"""Time from scheduling to first token as the engine measures it."""
ENGINE_DECODE = _histogram("llm_engine_request_decode_seconds", (), *_RANKED)
"""Time from first to last token as the engine measures it."""
ENGINE_KV_TRANSFER = _histogram("llm_engine_kv_transfer_seconds", (), *_RANKED)
"""Duration of a transfer of KV cache between engines, as the engine measures it."""
ENGINE_CONFIG_INFO = _gauge("llm_engine_config_info", _E, Label.REVISION)
"""Hash of the engine's visible configuration."""
ENGINE_SETTING_INFO = _gauge("llm_engine_setting_info", _E, Label.SETTING, Label.VALUE)
"""A setting of the engine and its current value."""
ENGINE_CONFIG_CHANGE = _gauge("llm_engine_config_change_timestamp_seconds", _E, Label.SETTING, Label.OLD, Label.NEW)
"""Unix time of a config change, detected or declared. Grafana annotations need useValueForTime."""

# Upper limits of the hardware, to compare with measured rates.
ROOFLINE_PREFILL = _gauge("llm_roofline_prefill_tokens_per_second")
"""Theoretical upper limit of prompt tokens per second on these GPUs."""
ROOFLINE_DECODE = _gauge("llm_roofline_decode_tokens_per_second", Label.BATCH)
"""Theoretical upper limit of output tokens per second on these GPUs, for a whole batch of the given size."""
ROOFLINE_RUNNING = _gauge("llm_roofline_running_tokens_per_second", _E)
"""Theoretical upper limit of output tokens per second for the requests that the engine runs; 0 if it runs none."""
ROOFLINE_KV_TOKENS = _gauge("llm_roofline_kv_tokens")
"""Theoretical upper limit of tokens in the KV cache."""

# The sidecar itself.
SIDECAR_BUILD = _gauge("llm_sidecar_build_info", Label.VERSION)
"""Version of the sidecar."""
SIDECAR_BEGUN = _counter("llm_sidecar_begun_requests_total", Label.ROUTE)
"""Requests whose head was parsed: the sum of the open, recorded, dropped and lost requests."""
SIDECAR_RECORDED = _counter("llm_sidecar_recorded_requests_total", Label.ROUTE)
"""Requests whose line is in the request log, or that are counted if there is no log."""
SIDECAR_DROPPED = _counter("llm_sidecar_dropped_records_total", Label.ROUTE)
"""Requests whose record was dropped because the exporter was unavailable for too long. They are in no other series."""
SIDECAR_LOST = _counter("llm_sidecar_lost_requests_total", _R, Label.ROUTE)
"""Requests without a record because their relay crashed (`relay_crashed`), or because the sidecar ended before the
exporter had them (`sidecar_stopped`, counted at the next start)."""
SIDECAR_RESTARTS = _counter("llm_sidecar_restarts_total", _P)
"""Restarts of a child process."""
SIDECAR_LOOP_LAG = _gauge("llm_sidecar_loop_lag_seconds", _P)
"""Largest event loop delay in the last second."""
SIDECAR_UNMETERED = _counter("llm_sidecar_unmetered_requests_total", _R)
"""Requests forwarded without metering, by type of exception, or `encoded` for a compressed stream."""
SIDECAR_REFUSED = _counter("llm_sidecar_refused_requests_total", Label.STATUS, _R)
"""Requests that the sidecar itself refused, without forwarding them or all of their body."""
SIDECAR_UNPARSED = _counter("llm_sidecar_unparsed_requests_total", _R)
"""Request bodies that were not parsed."""
SIDECAR_DROPPED_VALUES = _counter("llm_sidecar_dropped_engine_values_total", Label.SIGNAL)
"""Values in responses and spans of the engine that were dropped, by the series that lack them: negative ones, counts
above 2^53, times above a day, and what is not a number."""
SIDECAR_MODELS_OVER_LIMIT = _gauge("llm_sidecar_models_over_limit")
"""Models that the engine lists or `--model` names and that count as `other`: above `--max-models`, or a long name."""
SIDECAR_CERTIFICATE_EXPIRY = _gauge("llm_sidecar_certificate_expiry_timestamp_seconds")
"""Expiry time of the server certificate, in Unix seconds."""
SIDECAR_CERTIFICATE_RELOAD = _gauge("llm_sidecar_certificate_last_reload_successful")
"""Whether the server certificate was valid at the start or at the last SIGHUP; if not, the previous one is in use."""
SIDECAR_LOG_ERRORS = _counter("llm_sidecar_log_errors_total")
"""Failed writes to the request log; they are retried."""
SIDECAR_TASK_ERRORS = _counter("llm_sidecar_task_errors_total", _P)
"""Exceptions in periodic tasks and in the processing of single records, which continue; each type is logged once."""
SIDECAR_RELOAD_SUCCESSFUL = _gauge("llm_sidecar_config_last_reload_successful")
"""Whether the SLO file was valid at the start or at the last SIGHUP; if not, the previous one remains in use."""
SIDECAR_RELOAD_TIME = _gauge("llm_sidecar_config_last_reload_success_timestamp_seconds")
"""When the sidecar last read a valid SLO file, in Unix seconds."""
SIDECAR_DROPPED_LINES = _counter("llm_sidecar_dropped_log_lines_total", _R, Label.ROUTE)
"""Lines dropped because the request log could not be written for too long. Their requests are in all other series."""
SIDECAR_EXPORTED_SPANS = _counter("llm_sidecar_exported_spans_total")
"""Spans accepted by the trace collector."""
SIDECAR_DROPPED_SPANS = _counter("llm_sidecar_dropped_spans_total", _R)
"""Spans dropped, usually because the trace collector is down or slow."""
SIDECAR_UNJOINED_SPANS = _counter("llm_sidecar_unjoined_spans_total", _R)
"""Engine spans that were not joined with a request."""
SIDECAR_REFUSED_MESSAGES = _counter("llm_sidecar_refused_otlp_messages_total", _R)
"""Messages rejected by the OTLP receiver."""
SIDECAR_CONNECTIONS = _gauge("llm_sidecar_client_connections", _P)
"""Open client connections."""
SIDECAR_CONNECTIONS_LIMIT = _gauge("llm_sidecar_client_connections_limit", _P)
"""Maximum of open client connections; follows from the limit of open files."""
SIDECAR_REJECTED_CONNECTIONS = _counter("llm_sidecar_rejected_connections_total", _P)
"""Client connections above the limit; their first request gets status 503."""
SIDECAR_UPSTREAM_ERRORS = _counter("llm_sidecar_upstream_connect_errors_total", _P, Label.UPSTREAM, _R)
"""Connections to the engine that could not be opened: `lookup` (its name cannot be resolved), `refused`, `timeout`,
`tls` or `other`."""
SIDECAR_CLOSED_CONNECTIONS = _counter("llm_sidecar_exporter_closed_connections_total")
"""Connections to the metrics port or to a port for spans by HTTP, closed because of its limit of connections."""
SIDECAR_BUFFERED = _gauge("llm_sidecar_buffered_bytes", _P)
"""Request bodies in memory that are incomplete, or that the engine has not read."""
SIDECAR_BUFFERED_LIMIT = _gauge("llm_sidecar_buffered_bytes_limit", _P)
"""Share of the relay in --max-buffered; from 7/8 of it on the relay reads no further bytes of uploads."""
SIDECAR_CPU = _counter("llm_sidecar_cpu_seconds_total", _P)
"""CPU time of the process since it started."""
SIDECAR_MEMORY = _gauge("llm_sidecar_memory_bytes", _P)
"""Resident memory of the process (Linux only)."""

# A followed log.
FOLLOWED_LINES = _counter("llm_sidecar_followed_lines_total", Label.RESULT)
"""Lines of the followed log; only with `--follow`."""
FOLLOW_UP = _gauge("llm_sidecar_follow_up")
"""1 if the followed log could be read at the last attempt; only with `--follow`."""
FOLLOW_LAG = _gauge("llm_sidecar_follow_lag_bytes")
"""Bytes of the followed log that are not counted yet; only with `--follow`."""

# The load generator: its schedule and its delays.
_OF_RUN = Label.EXPERIMENT, Label.CONFIGURATION
"""Empty for a run that is not part of an experiment."""
LOAD_RUN = _gauge("llm_load_run_info", Label.RUN, Label.SCENARIO, *_OF_RUN)
"""1 while a load test runs."""
LOAD_SCHEDULED = _counter("llm_load_scheduled_requests_total", _C, *_OF_RUN)
"""Requests that were due by the schedule."""
LOAD_SENT = _counter("llm_load_sent_requests_total", _C, *_OF_RUN)
"""Requests sent."""
LOAD_ENDED = _counter("llm_load_ended_requests_total", _C, _O, *_OF_RUN)
"""Ended requests, with the outcome that the load generator observed."""
LOAD_GOOD = _counter("llm_load_good_requests_total", _C, *_OF_RUN)
"""Ended requests that were good for all their SLOs, as the load generator judges them."""
LOAD_SEND_LAG = _histogram("llm_load_send_lag_seconds", LAG_SECONDS)
"""Delay between the scheduled and the actual send time."""
LOAD_SIGNALS = (LOAD_RUN, LOAD_SCHEDULED, LOAD_SENT, LOAD_ENDED, LOAD_GOOD, LOAD_SEND_LAG)
"""The series of the load generator; the sidecar exposes all others."""

SEND_LATE = 0.05
"""A bound of the send lag in seconds; above it, latencies include delays of the load generator."""

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))
"""All series that the sidecar and the load generator expose, in order."""

# GPUs, as DCGM's exporter exposes them: under the names of DCGM's fields. Its CSV file selects which of them exist.
_OF_GPU = (
    *(Label.GPU_HOST, Label.GPU, Label.GPU_UUID, Label.GPU_MODEL, Label.MIG_INSTANCE, Label.MIG_PROFILE),
    *(Label.POD, Label.NAMESPACE),
)
GPU_SM_CLOCK = _gauge("DCGM_FI_DEV_SM_CLOCK", *_OF_GPU)
"""Clock of the multiprocessors in MHz."""
GPU_MEMORY_CLOCK = _gauge("DCGM_FI_DEV_MEM_CLOCK", *_OF_GPU)
"""Clock of the memory in MHz."""
GPU_POWER = _gauge("DCGM_FI_DEV_POWER_USAGE", *_OF_GPU)
"""Power draw in W."""
GPU_TEMPERATURE = _gauge("DCGM_FI_DEV_GPU_TEMP", *_OF_GPU)
"""Temperature in °C."""
GPU_MEMORY_USED = _gauge("DCGM_FI_DEV_FB_USED", *_OF_GPU)
"""Memory in use in MiB."""
GPU_MEMORY_FREE = _gauge("DCGM_FI_DEV_FB_FREE", *_OF_GPU)
"""Free memory in MiB."""
GPU_UTILISATION = _gauge("DCGM_FI_DEV_GPU_UTIL", *_OF_GPU)
"""Share of time with a kernel on the GPU in percent; not for MIG instances."""
GPU_CLOCK_REASONS = _gauge("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", *_OF_GPU)
"""Why the clock is reduced, as a bit mask; not in the default CSV file."""
GPU_THROTTLE_REASONS = _gauge("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", *_OF_GPU)
"""The same bit mask, as exporters with DCGM 3 name it."""
GPU_XID = _gauge("DCGM_FI_DEV_XID_ERRORS", *_OF_GPU)
"""Number of the last Xid error, 0 if there was none; it remains until the exporter restarts."""
GPU_POWER_VIOLATION = _counter("DCGM_FI_DEV_POWER_VIOLATION", *_OF_GPU)
"""Time at a clock reduced by the power limit, in ns; not in the default CSV file."""
GPU_THERMAL_VIOLATION = _counter("DCGM_FI_DEV_THERMAL_VIOLATION", *_OF_GPU)
"""Time at a clock reduced by the temperature, in ns; not in the default CSV file."""
GPU_ENGINE_ACTIVE = _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", *_OF_GPU)
"""Share of time in which the GPU or MIG instance computed."""
GPU_TENSOR_ACTIVE = _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", *_OF_GPU)
"""Share of cycles in which the tensor cores were active."""
GPU_DRAM_ACTIVE = _gauge("DCGM_FI_PROF_DRAM_ACTIVE", *_OF_GPU)
"""Share of cycles in which the memory was read or written."""

GPU_SIGNALS: tuple[Signal, ...] = tuple(
    value for value in list(globals().values()) if isinstance(value, Signal) and value not in SIGNALS
)
"""All series of DCGM's exporter, in order."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One series that a recording rule writes."""

    name: str
    help: str
    labels: tuple[Label, ...]


def _recorded(name: str, *labels: Label) -> Recorded:
    return Recorded(name, _TEXT[name], labels)


# Counts are recorded beside ratios: a budget from a mean of ratios is wrong under uneven load.
SLO_EVENTS_IN = _recorded("llm_slo:events:increase", *_SLO_WINDOW)
"""SLO events in a window."""
SLO_BAD_IN = _recorded("llm_slo:bad_events:increase", *_SLO_WINDOW)
"""Bad SLO events in a window."""
SLO_ERROR_RATIO = _recorded("llm_slo:bad_events:ratio", *_SLO_WINDOW)
"""Bad events / events in a window; absent without traffic."""
SLO_BURN_RATE = _recorded("llm_slo:error_budget:burn_rate", *_SLO_WINDOW)
"""Error ratio / (1 - objective); at 1 the error budget lasts one period."""
SLO_BUDGET_LEFT = _recorded("llm_slo:error_budget:remaining_ratio", _M, _C, _S)
"""Remaining share of the error budget; negative if overspent."""
SLO_OBJECTIVE = _recorded("llm_slo:objective:ratio", _C, _S)
"""Objective of the SLO, from 0 to 1."""
SLO_THRESHOLD = _recorded("llm_slo:threshold:seconds", _C, _S)
"""Threshold of a latency SLO."""
WINDOW_SECONDS = _recorded("llm_slo:window:seconds", Label.WINDOW)
"""Length of a window; the longest is the period."""
SLO_MEASURED = _recorded("llm_slo:measured_time:ratio", _M, _C, _S)
"""Share of the period with counts of SLO events."""
SLO_DOZENS = _recorded("llm_slo:dozens:count", _M, _C, _S)
"""Dozens of steps in the period with counts of SLO events."""
GOODPUT_EVENTS_IN = _recorded("llm_goodput:events:increase", *_CLASS_WINDOW)
"""Requests in a window with at least one verdict."""
GOODPUT_REQUESTS_IN = _recorded("llm_goodput:requests:increase", *_CLASS_WINDOW)
"""Requests in a window that are good for all their SLOs."""
GOODPUT_RATIO = _recorded("llm_goodput:requests:ratio", *_CLASS_WINDOW)
"""Good requests / requests with a verdict in a window; absent without traffic."""
GOODPUT_OBJECTIVE = _recorded("llm_goodput:objective:ratio", _C)
"""Lowest goodput ratio that is possible while every SLO meets its objective."""
# Without a sidecar the verdicts of a single request are unknown; the goodput ratio is between these two.
GOODPUT_AT_LEAST = _recorded("llm_goodput:requests:ratio_at_least", *_CLASS_WINDOW)
"""Lower bound of the goodput ratio: no request missed two SLOs."""
GOODPUT_AT_MOST = _recorded("llm_goodput:requests:ratio_at_most", *_CLASS_WINDOW)
"""Upper bound of the goodput ratio: every bad request missed all SLOs."""

# The counts above by tenant, in the windows of page alerts; only with `alerting.per_tenant`.
_TENANT_SLO = (_M, _C, _S, _T, _W)
TENANT_EVENTS_IN = _recorded("llm_slo_tenant:events:increase", *_TENANT_SLO)
"""SLO events of a tenant in a window."""
TENANT_BAD_IN = _recorded("llm_slo_tenant:bad_events:increase", *_TENANT_SLO)
"""Bad SLO events of a tenant in a window."""
TENANT_BURN_RATE = _recorded("llm_slo_tenant:error_budget:burn_rate", *_TENANT_SLO)
"""Burn rate of one tenant."""

REQUESTS_IN = _recorded("llm_instance:requests:increase", Label.INSTANCE, _M, _C, _O, _W)
"""Ended requests in a window."""
ALL_REQUESTS_IN = _recorded("llm_instance:all_requests:increase", Label.INSTANCE, _M, _C, _W)
"""Ended requests of all outcomes in a window."""
SURGE_AT = _recorded("llm_instance:surge_requests:ratio", Label.INSTANCE, _M, _C, _O, _W)
"""Share of client errors or rejections at a sidecar, from the share of a ticket on. The shares of the shortest window
are relative to the mean of the longer one."""
SURGE_BEFORE = _recorded("llm_class:surge_requests:ratio", _M, _C, _O, _W)
"""Share of client errors or rejections at all sidecars, from the share on that excludes a ticket a day later."""
OTHER_REQUESTS_IN = _recorded("llm_class:other_requests:increase", _C, _W)
"""Ended requests in a window, except client errors."""
MODEL_REQUESTS_IN = _recorded("llm_model:requests:increase", _M, _W)
"""Ended requests of a model in a window."""

# Short windows only: there is one series per sidecar, class and SLO.
_INSTANCE_SLO = (Label.INSTANCE, _M, _C, _S, _W)
INSTANCE_EVENTS_IN = _recorded("llm_instance:slo_events:increase", *_INSTANCE_SLO)
"""SLO events of a sidecar in a window."""
INSTANCE_BAD_IN = _recorded("llm_instance:slo_bad_events:increase", *_INSTANCE_SLO)
"""Bad SLO events of a sidecar in a window."""
INSTANCE_ERROR_RATIO = _recorded("llm_instance:slo_bad_events:ratio", *_INSTANCE_SLO)
"""Bad events / events of a sidecar in a window; absent without traffic."""
OUTLIER_ERROR_RATIO = _recorded("llm_instance:outlier_bad_events:ratio", *_INSTANCE_SLO)
"""Error ratio of each sidecar at which half or more of the events are bad; compared with those of its peers."""
REPLICAS_ERROR_RATIO = _recorded("llm_slo:outlier_bad_events:ratio", *_SLO_WINDOW)
"""Error ratio of all sidecars, while one of them may be an outlier."""
STEP_TIME = _recorded("llm_rules:steps:timestamp")
"""Time of the last evaluation of the rules that count steps."""

# These series compare sidecars over weeks; raw counters have too many series for this.
REQUESTS_AT = _recorded("llm_instance:requests:rate", Label.INSTANCE)
"""Ended requests per second of a sidecar."""
GOODPUT_AT = _recorded("llm_instance:good_requests:ratio", Label.INSTANCE)
"""Goodput ratio of a sidecar; absent without traffic."""

# The baseline of a class or a model is its last week.
TOKENS_IN = _recorded("llm_class:completion_tokens:increase", *_CLASS_WINDOW)
"""Completion tokens in a window; absent if none."""
TOKENS_MEDIAN = _recorded("llm_class:completion_tokens:weekly_median", _M, _C)
"""Weekly median of completion tokens per step with traffic."""
ENGINE_PROMPT_TOKENS_IN = _recorded("llm_model:engine_prompt_tokens:increase", _M, _W)
"""Prompt tokens in a window; absent if none."""
ENGINE_CACHE_HITS_IN = _recorded("llm_model:engine_prefix_cache_hits:increase", _M, _W)
"""Prompt tokens found in the prefix cache in a window."""
CACHE_WEEKLY_RATIO = _recorded("llm_model:engine_prefix_cache:weekly_hit_ratio", _M)
"""Prefix cache hit ratio of the last week, in prompt tokens."""

# Costs in the currency of the price; only if the rules are rendered with a price.
COST_IN = _recorded("llm_cost:money:increase", _W)
"""Cost of the GPUs in a window."""
COST_IDLE_IN = _recorded("llm_cost:idle_money:increase", _W)
"""Cost of the GPUs in steps without output tokens."""
COST_TOKENS_IN = _recorded("llm_cost:output_tokens:increase", _W)
"""Output tokens in a window; absent if none."""
COST_GOOD_IN = _recorded("llm_cost:good_requests:increase", _W)
"""Good requests in a window."""
COST_PER_MILLION = _recorded("llm_cost:money:per_million_output_tokens", _W)
"""Cost per million output tokens; absent without output tokens."""
COST_PER_GOOD = _recorded("llm_cost:money:per_good_request", _W)
"""Cost per good request; absent without good requests."""
COST_API_IN = _recorded("llm_cost:api_money:increase", _W)
"""Cost of the tokens of a window at the price of an API; absent if none."""
COST_API_PER_MILLION = _recorded("llm_cost:api_money:per_million_output_tokens", _W)
"""Cost of input and output at the price of an API, per million output tokens; absent without output tokens."""

# These series are for autoscalers; they exist only if the rules are rendered with --autoscaling.
SIGNAL_P90 = _recorded("llm_slo:signal:p90_threshold_ratio", _M, _C, _S)
"""90th percentile of the SLO's signal / threshold, over the shortest window; absent without requests."""
OLDEST_WAIT_RATIO = _recorded("llm_slo:oldest_wait:threshold_ratio", _M, _C, _S)
"""Oldest wait for a first token / threshold of TTFT."""

ENGINE_MODEL = _recorded("llm_engine:model:group", Label.INSTANCE, Label.ENGINE, _M)
"""1 for each model of an engine, also while it is down."""
TARGET_MODEL = _recorded("llm_target:model:group", _M)
"""1 for each model of a group of targets, and without a model while none is known; only with `group_by`."""
COLD_START = _recorded("llm_engine:cold_start:group", Label.INSTANCE, Label.ENGINE)
"""1 while an engine starts or warms up."""
PAGE_HELD = _recorded("llm_slo:held_bad_events:increase", _M, _C, _S)
"""Bad events of the last step and the two evaluations before, if all are from engines in cold start."""
HELD_PAGE = _recorded("llm_slo:held_page:group", _M, _C, _S)
"""1 while the page of the SLO is held back."""
LONG_ERROR_RATIO = _recorded("llm_slo:long_window_bad_events:ratio", *_SLO_WINDOW)
"""Error ratio in the long window of each tier that burns there."""
LOW_TRAFFIC_EVENTS_IN = _recorded("llm_slo:low_traffic_events:increase", *_SLO_WINDOW)
"""Events of each class with too few for a page, for SLOs that pool such classes."""
TIER_ERROR_RATIO = _recorded("llm_slo:tier_bad_events:ratio", *_SLO_WINDOW)
"""Error ratio in the short window of each tier that burns."""
PAGE_ERROR_RATIO = _recorded("llm_slo:page_bad_events:ratio", _M, _C, _S)
"""Error ratio of each SLO that pages."""

RECORDED: tuple[Recorded, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Recorded))
"""All recorded series, in order."""

FIRING = "ALERTS"
"""The series that Prometheus writes for each pending or firing alert."""

ACTIVE_SINCE = "ALERTS_FOR_STATE"
"""The series that Prometheus writes with the time at which each alert became active, in Unix seconds."""

UP, SCRAPE_SECONDS, SCRAPED_SAMPLES = "up", "scrape_duration_seconds", "scrape_samples_scraped"
"""The series that Prometheus writes for every target."""

REQUEST_CLASS_HEADER = "x-request-class"
REQUEST_START_HEADER = "x-request-start"
"""`t=<unix seconds>`: the intended send time, so that latencies include the time before the sidecar."""
