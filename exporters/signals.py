"""Every series and label that a package writes or reads, declared once; imports only the standard library."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class Kind(Enum):
    """The type of a series, as Prometheus names it."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Label(StrEnum):
    """Every label name."""

    MODEL = "model"
    CLASS = "class"
    TENANT = "tenant"
    STREAM = "stream"
    OUTCOME = "outcome"
    PHASE = "phase"
    SLO = "slo"
    INSTANCE = "instance"  # set by Prometheus: the scraped sidecar
    JOB = "job"  # set by Prometheus: the scrape job
    ENGINE = "engine"
    RANK = "rank"
    ENGINE_TYPE = "engine_type"
    VERSION = "version"
    REVISION = "revision"
    SETTING = "setting"
    VALUE = "value"
    OLD = "old"
    NEW = "new"
    SIGNAL = "signal"
    REASON = "reason"
    PROCESS = "process"
    WINDOW = "window"
    SEVERITY = "severity"
    TIER = "tier"
    BATCH = "batch"
    RUN = "run"
    SCENARIO = "scenario"
    PROMPT_SIZE = "prompt_size"
    COMPLETION_SIZE = "completion_size"


class Outcome(StrEnum):
    """How a request ended: exactly one of these."""

    OK = "ok"
    CLIENT_ABORT = "client_abort"
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"  # noqa: S105 - a label value, no secret
    TIMEOUT_IDLE = "timeout_idle"
    TRUNCATED = "truncated"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_UNREACHABLE = "upstream_unreachable"
    REJECTED = "rejected"
    CLIENT_ERROR = "client_error"


class LoadOutcome(StrEnum):
    """The outcomes that only the load generator sees, besides those of `Outcome`."""

    TIMEOUT = "timeout"  # cancelled by the client after the scenario's timeout
    CUT = "cut"  # still open when the run was stopped
    NOT_SENT = "not_sent"  # scheduled, but the generator could not open another connection


class Phase(StrEnum):
    """The phase of a request in flight: before or after its first token."""

    WAITING = "waiting"
    STREAMING = "streaming"


class Verdict(StrEnum):
    """How one SLO judged one request; `ABANDONED` is no event."""

    GOOD = "good"
    BAD = "bad"
    ABANDONED = "abandoned"


OTHER = "other"
"""The label value for any model, class or tenant that is not in its bounded list."""

SIZE_BOUNDS = (128, 512, 2048, 8192, 32768)
SIZES = (*(f"{bound:05}" for bound in SIZE_BOUNDS), "above")
"""The largest number of tokens of each size, with leading zeros so that a table sorts them."""
NO_TOKENS = "none"
"""The size of a completion without tokens, or with an unknown number of them."""


@dataclass(frozen=True, slots=True, eq=False)  # created once, and looked up by identity for every record
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


def _counter(name: str, text: str, *labels: Label) -> Signal:
    return Signal(name, Kind.COUNTER, text, labels)


def _gauge(name: str, text: str, *labels: Label) -> Signal:
    return Signal(name, Kind.GAUGE, text, labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: Label) -> Signal:
    return Signal(name, Kind.HISTOGRAM, text, labels, bounds)


# From a cached chat turn to a collapsed queue; thresholds of the SLO file are added at start.
WAIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
GAP_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
WHOLE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
TOKENS = (1.0, 8.0, 32.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 131072.0)

_M, _C, _T, _S, _E, _W = Label.MODEL, Label.CLASS, Label.TENANT, Label.SLO, Label.ENGINE, Label.WINDOW

# Requests and their latencies.
REQUESTS = _counter("llm_requests_total", "Ended requests, by outcome.", _M, _C, Label.OUTCOME, _T, Label.STREAM)
IN_FLIGHT = _gauge(
    "llm_requests_in_flight", "Open requests: waiting before the first token, streaming after it.", _M, _C, Label.PHASE
)
OLDEST_WAIT = _gauge(
    "llm_oldest_wait_seconds", "Age of the oldest open stream without a first token, 0 if there is none.", _M, _C
)
TTFT = _histogram(
    "llm_time_to_first_token_seconds",
    "Streams: arrival of the request to its first output token.",
    WAIT_SECONDS,
    _M,
    _C,
)
TPOT = _histogram(
    "llm_time_per_output_token_seconds",
    "Streams: time from the first to the last output token, divided by (completion tokens - 1).",
    GAP_SECONDS,
    _M,
    _C,
)
INTER_CHUNK = _histogram(
    "llm_inter_chunk_seconds", "Time between output chunks; a chunk may carry several tokens.", GAP_SECONDS, _M, _C
)
DURATION = _histogram(
    "llm_request_duration_seconds",
    "Arrival of the request to its end, streams and unary.",
    WHOLE_SECONDS,
    _M,
    _C,
    Label.OUTCOME,
)
QUEUE = _histogram("llm_request_queue_seconds", "Queue time of finished requests, by the engine.", WAIT_SECONDS, _M, _C)
PREFILL = _histogram(
    "llm_request_prefill_seconds", "Scheduling to the first token, by the engine.", WAIT_SECONDS, _M, _C
)
DECODE = _histogram("llm_request_decode_seconds", "First to last token, by the engine.", WHOLE_SECONDS, _M, _C)
REQUESTS_WITH_ENGINE_TIMES = _counter(
    "llm_requests_with_engine_times_total",
    "Ended requests with engine times; only these are in the histograms of queue, prefill and decode time.",
    _M,
    _C,
)

# Tokens, as `usage` reports them.
PROMPT_TOKENS = _counter("llm_prompt_tokens_total", "Prompt tokens of ended requests.", _M, _C, _T)
COMPLETION_TOKENS = _counter(
    "llm_completion_tokens_total", "Completion tokens of ended requests, including tokens before an abort.", _M, _C, _T
)
CACHED_TOKENS = _counter(
    "llm_cached_prompt_tokens_total", "Prompt tokens served from the engine's prefix cache.", _M, _C, _T
)
PROMPT_REPEATS = _counter(
    "llm_prompt_repeats_total", "Requests whose whole prompt equals one of the last 100,000 distinct prompts.", _M, _C
)
UNIQUE_PROMPTS = _gauge(
    "llm_unique_prompts_estimate", "Distinct prompts since the start of the exporter; the error is about 2 %.", _M
)
REQUEST_PROMPT_TOKENS = _histogram("llm_request_prompt_tokens", "Prompt tokens per request.", TOKENS, _M, _C)
REQUEST_COMPLETION_TOKENS = _histogram(
    "llm_request_completion_tokens", "Completion tokens per request.", TOKENS, _M, _C, Label.OUTCOME
)
REQUESTS_BY_SIZE = _counter(
    "llm_requests_by_size_total",
    "Ended requests by size: upper bounds of prompt tokens (estimated where usage is unknown) and completion tokens.",
    _M,
    Label.PROMPT_SIZE,
    Label.COMPLETION_SIZE,
    Label.OUTCOME,
)

# SLO events.
SLO_EVENTS = _counter("llm_slo_events_total", "Requests judged good or bad by an SLO.", _M, _C, _S, _T)
SLO_BAD = _counter("llm_slo_bad_events_total", "Requests judged bad by an SLO.", _M, _C, _S, _T)
SLO_ABANDONED = _counter(
    "llm_slo_abandoned_total", "Requests aborted before the SLO could judge them; no events.", _M, _C, _S, _T
)
GOODPUT_EVENTS = _counter("llm_goodput_events_total", "Requests with at least one verdict.", _M, _C, _T)
GOODPUT_REQUESTS = _counter("llm_goodput_requests_total", "Requests that are good for all their SLOs.", _M, _C, _T)
GOODPUT_TOKENS = _counter("llm_goodput_tokens_total", "Completion tokens of good requests.", _M, _C, _T)

# The engine's own state, one vocabulary over all engines.
ENGINE_UP = _gauge("llm_engine_up", "1 if the last scrape of the engine succeeded.", _E)
ENGINE_INFO = _gauge("llm_engine_info", "Type and version of the engine.", _E, Label.ENGINE_TYPE, Label.VERSION)
ENGINE_START_TIME = _gauge("llm_engine_start_time_seconds", "Unix time at which the engine process started.", _E)
ENGINE_SCRAPE_ERRORS = _counter(
    "llm_engine_scrape_errors_total", "Scrapes of the engine that failed or had unusable content.", _E, Label.REASON
)
ENGINE_SCRAPE_AGE = _gauge("llm_engine_last_good_scrape_age_seconds", "Time since the last successful scrape.", _E)
ENGINE_SIGNAL_EXPOSED = _gauge(
    "llm_engine_signal_exposed", "1 if the engine exposes the source of the series named by `signal`.", _E, Label.SIGNAL
)
ENGINE_COUNTS_LIVE = _gauge(
    "llm_engine_token_counts_live",
    "1 if the engine counts tokens as they are generated, 0 if at the request's end.",
    _E,
)
ENGINE_RUNNING = _gauge("llm_engine_requests_running", "Requests in the engine's running batch.", _E, Label.RANK, _M)
ENGINE_WAITING = _gauge("llm_engine_requests_waiting", "Requests in the engine's waiting queue.", _E, Label.RANK, _M)
ENGINE_DEFERRED = _gauge(
    "llm_engine_requests_deferred",
    "Waiting requests that the scheduler skips; the other waiting requests wait for capacity.",
    _E,
    Label.RANK,
    _M,
)
ENGINE_KV_USAGE = _gauge("llm_engine_kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.", _E, Label.RANK, _M)
ENGINE_KV_CAPACITY = _gauge("llm_engine_kv_cache_capacity_tokens", "Tokens that the KV cache can hold.", _E, Label.RANK)
ENGINE_PREEMPTIONS = _counter("llm_engine_preemptions_total", "Preemptions of running requests.", _E, Label.RANK, _M)
ENGINE_CACHE_QUERIES = _counter(
    "llm_engine_prefix_cache_queries_tokens_total", "Prompt tokens looked up in the prefix cache.", _E, Label.RANK, _M
)
ENGINE_CACHE_HITS = _counter(
    "llm_engine_prefix_cache_hits_tokens_total", "Prompt tokens found in the prefix cache.", _E, Label.RANK, _M
)
ENGINE_PROMPT_TOKENS = _counter(
    "llm_engine_prompt_tokens_total", "Prompt tokens, as the engine counts them.", _E, Label.RANK, _M
)
ENGINE_GENERATION_TOKENS = _counter(
    "llm_engine_generation_tokens_total", "Generated tokens, as the engine counts them.", _E, Label.RANK, _M
)
ENGINE_SPEC_DRAFTED = _counter(
    "llm_engine_spec_decode_drafted_tokens_total", "Tokens proposed by speculative decoding.", _E, Label.RANK, _M
)
ENGINE_SPEC_ACCEPTED = _counter(
    "llm_engine_spec_decode_accepted_tokens_total", "Proposed tokens that were accepted.", _E, Label.RANK, _M
)
# Latencies as the engine measures them, with its own bounds; definitions by engine: docs/engines.md.
ENGINE_TTFT = _histogram(
    "llm_engine_time_to_first_token_seconds", "Time to first token, as the engine measures it.", (), _E, Label.RANK, _M
)
ENGINE_INTER_TOKEN = _histogram(
    "llm_engine_inter_token_seconds", "Time between outputs, as the engine measures it.", (), _E, Label.RANK, _M
)
ENGINE_TPOT = _histogram(
    "llm_engine_time_per_output_token_seconds",
    "Mean time per output token of each request, as the engine measures it.",
    (),
    _E,
    Label.RANK,
    _M,
)
ENGINE_DURATION = _histogram(
    "llm_engine_request_duration_seconds", "Duration of requests, as the engine measures it.", (), _E, Label.RANK, _M
)
ENGINE_QUEUE = _histogram(
    "llm_engine_request_queue_seconds", "Time in the engine's queue, as the engine measures it.", (), _E, Label.RANK, _M
)
ENGINE_PREFILL = _histogram(
    "llm_engine_request_prefill_seconds",
    "Scheduling to the first token, as the engine measures it.",
    (),
    _E,
    Label.RANK,
    _M,
)
ENGINE_DECODE = _histogram(
    "llm_engine_request_decode_seconds", "First to last token, as the engine measures it.", (), _E, Label.RANK, _M
)
ENGINE_CONFIG_INFO = _gauge("llm_engine_config_info", "Hash of the engine's visible configuration.", _E, Label.REVISION)
ENGINE_SETTING_INFO = _gauge(
    "llm_engine_setting_info", "One visible setting of the engine.", _E, Label.SETTING, Label.VALUE
)
ENGINE_CONFIG_CHANGE = _gauge(
    "llm_engine_config_change_timestamp_seconds",
    "Unix time of a config change, detected or declared; draw it with useValueForTime.",
    _E,
    Label.SETTING,
    Label.OLD,
    Label.NEW,
)

# Upper limits of the hardware, for comparison with measured rates.
ROOFLINE_PREFILL = _gauge(
    "llm_roofline_prefill_tokens_per_second", "Upper limit of prompt tokens per second on these GPUs."
)
ROOFLINE_DECODE = _gauge(
    "llm_roofline_decode_tokens_per_second",
    "Upper limit of output tokens per second of all requests together on these GPUs, by batch size.",
    Label.BATCH,
)
ROOFLINE_KV_TOKENS = _gauge("llm_roofline_kv_tokens", "Upper limit of tokens that fit beside the weights.")

# The sidecar itself.
SIDECAR_BUILD = _gauge("llm_sidecar_build_info", "Version of the sidecar.", Label.VERSION)
SIDECAR_DROPPED = _counter(
    "llm_sidecar_dropped_records_total", "Records dropped after the exporter was away for too long.", Label.PROCESS
)
SIDECAR_LOST = _counter(
    "llm_sidecar_lost_requests_total",
    "Metered requests without a record because their relay died: those open in its last snapshot, usually less than "
    "0.3 s old. Requests of a relay that dies while the exporter is unavailable are not counted.",
    Label.PROCESS,
)
SIDECAR_RESTARTS = _counter("llm_sidecar_restarts_total", "Restarts of a child process.", Label.PROCESS)
SIDECAR_LOOP_LAG = _gauge(
    "llm_sidecar_loop_lag_seconds", "Largest delay of the event loop in the last second.", Label.PROCESS
)
SIDECAR_UNMETERED = _counter(
    "llm_sidecar_unmetered_requests_total", "Requests forwarded without metering because metering failed.", Label.REASON
)
SIDECAR_UNPARSED = _counter("llm_sidecar_unparsed_requests_total", "Request bodies that were not parsed.", Label.REASON)
SIDECAR_CERTIFICATE_EXPIRY = _gauge(
    "llm_sidecar_certificate_expiry_timestamp_seconds", "Unix time at which the server certificate expires."
)
SIDECAR_LOG_ERRORS = _counter("llm_sidecar_log_errors_total", "Batches that could not be written to the request log.")
SIDECAR_EXPORTED_SPANS = _counter("llm_sidecar_exported_spans_total", "Spans accepted by the trace collector.")
SIDECAR_DROPPED_SPANS = _counter(
    "llm_sidecar_dropped_spans_total", "Spans dropped because the trace collector is down or slow.", Label.REASON
)
SIDECAR_UNJOINED_SPANS = _counter(
    "llm_sidecar_unjoined_spans_total", "Engine spans that could not be joined with a request.", Label.REASON
)
SIDECAR_REFUSED_MESSAGES = _counter(
    "llm_sidecar_refused_otlp_messages_total", "Messages refused by the OTLP receiver.", Label.REASON
)
SIDECAR_CONNECTIONS = _gauge("llm_sidecar_client_connections", "Open client connections.", Label.PROCESS)
SIDECAR_CPU = _counter("llm_sidecar_cpu_seconds_total", "CPU time since the start of the process.", Label.PROCESS)
SIDECAR_MEMORY = _gauge("llm_sidecar_memory_bytes", "Resident memory; on Linux only.", Label.PROCESS)

# The load generator itself: its schedule, and whether it keeps up.
LOAD_RUN = _gauge("llm_load_run_info", "1 while a load test runs.", Label.RUN, Label.SCENARIO)
LOAD_SCHEDULED = _counter("llm_load_scheduled_requests_total", "Requests that were due by the schedule.", _C)
LOAD_SENT = _counter("llm_load_sent_requests_total", "Requests sent.", _C)
LOAD_ENDED = _counter(
    "llm_load_ended_requests_total", "Ended requests, by the outcome that the load generator saw.", _C, Label.OUTCOME
)
LOAD_SEND_LAG = _histogram(
    "llm_load_send_lag_seconds", "Delay between the scheduled and the actual time of sending.", LAG_SECONDS
)
LOAD_SIGNALS = (LOAD_RUN, LOAD_SCHEDULED, LOAD_SENT, LOAD_ENDED, LOAD_SEND_LAG)
"""The series of the load generator; all others are the sidecar's."""

SEND_LATE = 0.05
"""Seconds, a bound of the send lag: above it, latencies include delays of the load generator."""

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))
"""Every declared series, in order."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One series that a recording rule writes."""

    name: str
    help: str
    labels: tuple[Label, ...]


# Counts are recorded beside ratios: a budget from a mean of ratios is wrong under uneven load.
SLO_EVENTS_IN = Recorded("llm_slo:events:increase", "SLO events in a window.", (_M, _C, _S, Label.WINDOW))
SLO_BAD_IN = Recorded("llm_slo:bad_events:increase", "Bad SLO events in a window.", (_M, _C, _S, Label.WINDOW))
SLO_ERROR_RATIO = Recorded(
    "llm_slo:error_ratio", "Bad events / events in a window; absent without traffic.", (_M, _C, _S, Label.WINDOW)
)
SLO_BURN_RATE = Recorded(
    "llm_slo:burn_rate", "Error ratio / (1 - objective); 1 spends the budget in the period.", (_M, _C, _S, Label.WINDOW)
)
SLO_BUDGET_LEFT = Recorded(
    "llm_slo:budget_remaining_ratio",
    "Error budget left in the period: 1 is untouched, below 0 overspent.",
    (_M, _C, _S),
)
SLO_OBJECTIVE = Recorded("llm_slo:objective_ratio", "The objective, 0 to 1.", (_C, _S))
SLO_THRESHOLD = Recorded("llm_slo:threshold_seconds", "The threshold of a latency SLO.", (_C, _S))
GOODPUT_EVENTS_IN = Recorded("llm_goodput:events:increase", "Judged requests in a window.", (_M, _C, Label.WINDOW))
GOODPUT_REQUESTS_IN = Recorded("llm_goodput:requests:increase", "Good requests in a window.", (_M, _C, Label.WINDOW))
GOODPUT_RATIO = Recorded(
    "llm_goodput:ratio", "Good / judged requests in a window; absent without traffic.", (_M, _C, Label.WINDOW)
)
GOODPUT_OBJECTIVE = Recorded(
    "llm_goodput:objective_ratio", "The goodput that is guaranteed if every SLO is met.", (_C,)
)
# Without a sidecar, the SLOs that a single request met are unknown; the ratio lies between these two.
GOODPUT_AT_LEAST = Recorded("llm_goodput:ratio_at_least", "Goodput if no request missed two SLOs.", (_M, _C, _W))
GOODPUT_AT_MOST = Recorded("llm_goodput:ratio_at_most", "Goodput if every bad request missed all SLOs.", (_M, _C, _W))

# The counts above by tenant, in the windows of the pages; only with `alerting.per_tenant`.
_TENANT_SLO = (_M, _C, _S, _T, _W)
TENANT_EVENTS_IN = Recorded("llm_slo_tenant:events:increase", "SLO events of a tenant in a window.", _TENANT_SLO)
TENANT_BAD_IN = Recorded("llm_slo_tenant:bad_events:increase", "Bad SLO events of a tenant in a window.", _TENANT_SLO)
TENANT_BURN_RATE = Recorded("llm_slo_tenant:burn_rate", "Burn rate of one tenant.", _TENANT_SLO)

REQUESTS_IN = Recorded("llm_requests:increase", "Ended requests in a window.", (Label.INSTANCE, _C, Label.OUTCOME, _W))

# For the comparison of sidecars over weeks, for which raw counters have too many series.
REQUESTS_AT = Recorded("llm_instance:requests_per_second", "Rate of ended requests of a sidecar.", (Label.INSTANCE,))
GOODPUT_AT = Recorded(
    "llm_instance:goodput_ratio", "Good / judged requests of a sidecar; absent without traffic.", (Label.INSTANCE,)
)

# The baseline of a class or a model: its own last week.
TOKENS_IN = Recorded(
    "llm_completion_tokens:increase", "Completion tokens in a window; absent without any.", (_M, _C, _W)
)
TOKENS_MEDIAN = Recorded(
    "llm_completion_tokens:weekly_median", "Median of completion tokens per busy step of the last week.", (_M, _C)
)
ENGINE_PROMPT_TOKENS_IN = Recorded(
    "llm_engine_prompt_tokens:increase", "Prompt tokens in a window; absent without any.", (_M, _W)
)
ENGINE_CACHE_HITS_IN = Recorded(
    "llm_engine_prefix_cache_hits_tokens:increase", "Prompt tokens found in the prefix cache in a window.", (_M, _W)
)
CACHE_WEEKLY_RATIO = Recorded(
    "llm_engine_prefix_cache:weekly_hit_ratio", "Prefix cache hit ratio of the last week, by prompt tokens.", (_M,)
)

# Costs, where the rules are rendered with a price; in the currency of the price.
COST_IN = Recorded("llm_cost:money:increase", "Cost of the GPUs in a window.", (_W,))
COST_IDLE_IN = Recorded("llm_cost:idle_money:increase", "Cost of the GPUs in steps without an output token.", (_W,))
COST_TOKENS_IN = Recorded("llm_cost:output_tokens:increase", "Output tokens in a window; absent without any.", (_W,))
COST_GOOD_IN = Recorded("llm_cost:good_requests:increase", "Requests in a window that are good for all SLOs.", (_W,))
COST_PER_MILLION = Recorded(
    "llm_cost:per_million_output_tokens", "Cost per million output tokens; absent without output tokens.", (_W,)
)
COST_PER_GOOD = Recorded("llm_cost:per_good_request", "Cost per good request; absent without good requests.", (_W,))

COLD_START = Recorded("llm_engine:cold_start", "1 while an engine starts and warms up.", (Label.INSTANCE, Label.ENGINE))
PAGE_HELD = Recorded("llm_slo:page_held", "Bad events of the last step, if all are at starting engines.", (_M, _C, _S))

RECORDED: tuple[Recorded, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Recorded))
"""All recorded series, in order."""

FIRING = "ALERTS"
"""The series that Prometheus writes for every pending and firing alert."""

UP, SCRAPE_SECONDS, SCRAPED_SAMPLES = "up", "scrape_duration_seconds", "scrape_samples_scraped"
"""The series that Prometheus writes for every target."""

REQUEST_CLASS_HEADER = "x-request-class"
REQUEST_START_HEADER = "x-request-start"
"""`t=<unix seconds>`: the intended time of sending, so that waiting in front of the sidecar counts."""
