"""Every series and label that any room writes or reads, declared once; imports only the standard library."""

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
    INSTANCE = "instance"  # of Prometheus: which sidecar was scraped
    JOB = "job"  # of Prometheus: what for
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
    """What became of a request: exactly one of these."""

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
    """What only the load generator can say of a request; for all else it has the words of `Outcome`."""

    TIMEOUT = "timeout"  # given up by the client after the scenario's timeout
    CUT = "cut"  # still open when the run was stopped
    NOT_SENT = "not_sent"  # due, but the generator could not open one more


class Phase(StrEnum):
    """Where a request in flight is: before or after its first token."""

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
"""Up to how many tokens, with zeros in front so that a table sorts them."""
NO_TOKENS = "none"
"""The size of a completion without a token, or whose tokens nobody has counted."""


@dataclass(frozen=True, slots=True, eq=False)  # each is made once, and looked up by identity for every record
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


# Waits of users span a cached chat turn to a queue that has collapsed; thresholds of the SLO file are added at start.
WAIT_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0)
GAP_SECONDS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0)
WHOLE_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0)
LAG_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
TOKENS = (1.0, 8.0, 32.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 131072.0)

_M, _C, _T, _S, _E, _W = Label.MODEL, Label.CLASS, Label.TENANT, Label.SLO, Label.ENGINE, Label.WINDOW

# What was asked, and what became of it.
REQUESTS = _counter(
    "llm_requests_total", "Requests that have ended, by outcome.", _M, _C, Label.OUTCOME, _T, Label.STREAM
)
IN_FLIGHT = _gauge(
    "llm_requests_in_flight", "Requests open now: waiting before, streaming after the first token.", _M, _C, Label.PHASE
)
OLDEST_WAIT = _gauge(
    "llm_oldest_wait_seconds", "Age of the oldest open stream that has no first token, 0 when there is none.", _M, _C
)
TTFT = _histogram(
    "llm_time_to_first_token_seconds", "Streams: first token minus arrival of the request.", WAIT_SECONDS, _M, _C
)
TPOT = _histogram(
    "llm_time_per_output_token_seconds",
    "Streams: (last minus first token) / (completion tokens - 1).",
    GAP_SECONDS,
    _M,
    _C,
)
INTER_CHUNK = _histogram(
    "llm_inter_chunk_seconds", "Gaps between output chunks; a chunk may carry several tokens.", GAP_SECONDS, _M, _C
)
DURATION = _histogram(
    "llm_request_duration_seconds", "Arrival to end, streams and unary.", WHOLE_SECONDS, _M, _C, Label.OUTCOME
)
QUEUE = _histogram("llm_request_queue_seconds", "The engine's own queue time, finished requests.", WAIT_SECONDS, _M, _C)
PREFILL = _histogram(
    "llm_request_prefill_seconds", "The engine's own time from scheduled to first token.", WAIT_SECONDS, _M, _C
)
DECODE = _histogram(
    "llm_request_decode_seconds", "The engine's own time from first to last token.", WHOLE_SECONDS, _M, _C
)
REQUESTS_WITH_ENGINE_TIMES = _counter(
    "llm_requests_with_engine_times_total",
    "Ended requests whose times in the engine are known; the others are in none of the three above.",
    _M,
    _C,
)

# Tokens, as `usage` reports them.
PROMPT_TOKENS = _counter("llm_prompt_tokens_total", "Prompt tokens of ended requests.", _M, _C, _T)
COMPLETION_TOKENS = _counter(
    "llm_completion_tokens_total", "Completion tokens of ended requests, tokens before an abort included.", _M, _C, _T
)
CACHED_TOKENS = _counter(
    "llm_cached_prompt_tokens_total", "Prompt tokens that the engine took from its prefix cache.", _M, _C, _T
)
PROMPT_REPEATS = _counter(
    "llm_prompt_repeats_total", "Requests whose whole prompt one of the last 100,000 different ones had.", _M, _C
)
UNIQUE_PROMPTS = _gauge(
    "llm_unique_prompts_estimate", "Different prompts since the exporter's start, give or take 2 %.", _M
)
REQUEST_PROMPT_TOKENS = _histogram("llm_request_prompt_tokens", "Prompt tokens per request.", TOKENS, _M, _C)
REQUEST_COMPLETION_TOKENS = _histogram(
    "llm_request_completion_tokens", "Completion tokens per request.", TOKENS, _M, _C, Label.OUTCOME
)
REQUESTS_BY_SIZE = _counter(
    "llm_requests_by_size_total",
    "Ended requests by size: tokens of prompt (estimated where usage is not known) and completion, at most so many.",
    _M,
    Label.PROMPT_SIZE,
    Label.COMPLETION_SIZE,
    Label.OUTCOME,
)

# What the SLOs say of it.
SLO_EVENTS = _counter("llm_slo_events_total", "Requests that an SLO has judged good or bad.", _M, _C, _S, _T)
SLO_BAD = _counter("llm_slo_bad_events_total", "Requests that an SLO has judged bad.", _M, _C, _S, _T)
SLO_ABANDONED = _counter(
    "llm_slo_abandoned_total", "Requests whose client left before the SLO could judge; no event.", _M, _C, _S, _T
)
GOODPUT_EVENTS = _counter("llm_goodput_events_total", "Requests with at least one verdict.", _M, _C, _T)
GOODPUT_REQUESTS = _counter("llm_goodput_requests_total", "Requests good for all their SLOs.", _M, _C, _T)
GOODPUT_TOKENS = _counter("llm_goodput_tokens_total", "Completion tokens of good requests.", _M, _C, _T)

# The engine's own state, one vocabulary over all engines.
ENGINE_UP = _gauge("llm_engine_up", "1 when the engine answered the last scrape.", _E)
ENGINE_INFO = _gauge("llm_engine_info", "What the engine says it is.", _E, Label.ENGINE_TYPE, Label.VERSION)
ENGINE_START_TIME = _gauge("llm_engine_start_time_seconds", "Unix time at which the engine process started.", _E)
ENGINE_SCRAPE_ERRORS = _counter(
    "llm_engine_scrape_errors_total", "Scrapes of the engine that failed or held something unusable.", _E, Label.REASON
)
ENGINE_SCRAPE_AGE = _gauge("llm_engine_last_good_scrape_age_seconds", "Time since the engine's metrics were read.", _E)
ENGINE_SIGNAL_EXPOSED = _gauge(
    "llm_engine_signal_exposed", "1 when the engine's metrics can give the series named by `signal`.", _E, Label.SIGNAL
)
ENGINE_COUNTS_LIVE = _gauge(
    "llm_engine_token_counts_live", "1 when the engine counts tokens as it works, 0 when at a request's end.", _E
)
ENGINE_RUNNING = _gauge("llm_engine_requests_running", "Requests in the engine's running batch.", _E, Label.RANK, _M)
ENGINE_WAITING = _gauge("llm_engine_requests_waiting", "Requests in the engine's waiting queue.", _E, Label.RANK, _M)
ENGINE_DEFERRED = _gauge(
    "llm_engine_requests_deferred",
    "Of those waiting, the ones that the scheduler passes over: the rest waits for capacity.",
    _E,
    Label.RANK,
    _M,
)
ENGINE_KV_USAGE = _gauge("llm_engine_kv_cache_usage_ratio", "KV cache in use, 0 to 1.", _E, Label.RANK, _M)
ENGINE_KV_CAPACITY = _gauge("llm_engine_kv_cache_capacity_tokens", "Tokens that the KV cache holds.", _E, Label.RANK)
ENGINE_PREEMPTIONS = _counter(
    "llm_engine_preemptions_total", "Running requests put back into the queue.", _E, Label.RANK, _M
)
ENGINE_CACHE_QUERIES = _counter(
    "llm_engine_prefix_cache_queries_tokens_total", "Prompt tokens looked up in the prefix cache.", _E, Label.RANK, _M
)
ENGINE_CACHE_HITS = _counter(
    "llm_engine_prefix_cache_hits_tokens_total", "Prompt tokens found in the prefix cache.", _E, Label.RANK, _M
)
ENGINE_PROMPT_TOKENS = _counter(
    "llm_engine_prompt_tokens_total", "Prompt tokens by the engine's count.", _E, Label.RANK, _M
)
ENGINE_GENERATION_TOKENS = _counter(
    "llm_engine_generation_tokens_total", "Generated tokens by the engine's count.", _E, Label.RANK, _M
)
ENGINE_SPEC_DRAFTED = _counter(
    "llm_engine_spec_decode_drafted_tokens_total", "Tokens proposed by speculative decoding.", _E, Label.RANK, _M
)
ENGINE_SPEC_ACCEPTED = _counter(
    "llm_engine_spec_decode_accepted_tokens_total", "Proposed tokens that were accepted.", _E, Label.RANK, _M
)
# The engine's own latencies, in its own bounds; what each engine means by them: exporters/engines/README.md.
ENGINE_TTFT = _histogram(
    "llm_engine_time_to_first_token_seconds", "Time to first token by the engine's clock.", (), _E, Label.RANK, _M
)
ENGINE_INTER_TOKEN = _histogram(
    "llm_engine_inter_token_seconds", "Gaps between outputs by the engine's clock.", (), _E, Label.RANK, _M
)
ENGINE_TPOT = _histogram(
    "llm_engine_time_per_output_token_seconds",
    "Mean time per output token of each request by the engine's clock.",
    (),
    _E,
    Label.RANK,
    _M,
)
ENGINE_DURATION = _histogram(
    "llm_engine_request_duration_seconds", "Duration of requests by the engine's clock.", (), _E, Label.RANK, _M
)
ENGINE_QUEUE = _histogram(
    "llm_engine_request_queue_seconds", "Time of requests in the engine's queue.", (), _E, Label.RANK, _M
)
ENGINE_PREFILL = _histogram(
    "llm_engine_request_prefill_seconds", "Time of requests from scheduled to first token.", (), _E, Label.RANK, _M
)
ENGINE_DECODE = _histogram(
    "llm_engine_request_decode_seconds", "Time of requests from first to last token.", (), _E, Label.RANK, _M
)
ENGINE_CONFIG_INFO = _gauge(
    "llm_engine_config_info", "Hash of all that can be seen of the engine's configuration.", _E, Label.REVISION
)
ENGINE_SETTING_INFO = _gauge(
    "llm_engine_setting_info", "One visible setting of the engine.", _E, Label.SETTING, Label.VALUE
)
ENGINE_CONFIG_CHANGE = _gauge(
    "llm_engine_config_change_timestamp_seconds",
    "Unix time at which a setting changed, as seen or declared; draw it with useValueForTime.",
    _E,
    Label.SETTING,
    Label.OLD,
    Label.NEW,
)

# What the hardware allows at the most, to hold what is measured against.
ROOFLINE_PREFILL = _gauge(
    "llm_roofline_prefill_tokens_per_second", "Prompt tokens per second that the GPUs can compute at the most."
)
ROOFLINE_DECODE = _gauge(
    "llm_roofline_decode_tokens_per_second",
    "Output tokens per second of all requests together that the GPUs can give at the most, by batch.",
    Label.BATCH,
)
ROOFLINE_KV_TOKENS = _gauge("llm_roofline_kv_tokens", "Tokens that fit beside the weights at the most.")

# The sidecar on itself.
SIDECAR_BUILD = _gauge("llm_sidecar_build_info", "The running version.", Label.VERSION)
SIDECAR_DROPPED = _counter(
    "llm_sidecar_dropped_records_total", "Records given up because the exporter was away too long.", Label.PROCESS
)
SIDECAR_LOST = _counter(
    "llm_sidecar_lost_requests_total",
    "Metered requests without a record because their relay died: those open in its last snapshot, usually less than "
    "0.3 s old; those of a relay that dies while the exporter is away are not known.",
    Label.PROCESS,
)
SIDECAR_RESTARTS = _counter("llm_sidecar_restarts_total", "Restarts of a child process.", Label.PROCESS)
SIDECAR_LOOP_LAG = _gauge(
    "llm_sidecar_loop_lag_seconds", "How late the event loop ran, worst of the last second.", Label.PROCESS
)
SIDECAR_UNMETERED = _counter(
    "llm_sidecar_unmetered_requests_total", "Requests forwarded although metering failed.", Label.REASON
)
SIDECAR_UNPARSED = _counter("llm_sidecar_unparsed_requests_total", "Request bodies that were not parsed.", Label.REASON)
SIDECAR_CERTIFICATE_EXPIRY = _gauge(
    "llm_sidecar_certificate_expiry_timestamp_seconds", "When the certificate that clients are shown ends."
)
SIDECAR_LOG_ERRORS = _counter("llm_sidecar_log_errors_total", "Batches that the request log could not take.")
SIDECAR_EXPORTED_SPANS = _counter("llm_sidecar_exported_spans_total", "Spans that the trace collector has taken.")
SIDECAR_DROPPED_SPANS = _counter(
    "llm_sidecar_dropped_spans_total", "Spans given up because the trace collector is down or slow.", Label.REASON
)
SIDECAR_UNJOINED_SPANS = _counter(
    "llm_sidecar_unjoined_spans_total", "Spans of the engine that gave no request its times.", Label.REASON
)
SIDECAR_REFUSED_MESSAGES = _counter(
    "llm_sidecar_refused_otlp_messages_total", "Messages to the receiver of spans that were not read.", Label.REASON
)
SIDECAR_CONNECTIONS = _gauge("llm_sidecar_client_connections", "Open client connections.", Label.PROCESS)
SIDECAR_CPU = _counter(
    "llm_sidecar_cpu_seconds_total", "Time on the processors since the process started.", Label.PROCESS
)
SIDECAR_MEMORY = _gauge("llm_sidecar_memory_bytes", "Resident memory; on Linux only.", Label.PROCESS)

# The load generator on itself: what the schedule asks, and whether it keeps up.
LOAD_RUN = _gauge("llm_load_run_info", "1 while a load test runs.", Label.RUN, Label.SCENARIO)
LOAD_SCHEDULED = _counter("llm_load_scheduled_requests_total", "Requests that the schedule has called for.", _C)
LOAD_SENT = _counter("llm_load_sent_requests_total", "Requests that have been sent.", _C)
LOAD_ENDED = _counter(
    "llm_load_ended_requests_total", "Requests that have ended, by the load generator's own outcome.", _C, Label.OUTCOME
)
LOAD_SEND_LAG = _histogram(
    "llm_load_send_lag_seconds", "How late requests were sent, after their time in the schedule.", LAG_SECONDS
)
LOAD_SIGNALS = (LOAD_RUN, LOAD_SCHEDULED, LOAD_SENT, LOAD_ENDED, LOAD_SEND_LAG)
"""What the load generator exposes; all else comes from the sidecar."""

SEND_LATE = 0.05
"""Seconds, a bound of the send lag: from here on latencies show the load generator as well as the server."""

SIGNALS: tuple[Signal, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Signal))
"""All of the above, in order."""


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
    "llm_slo:error_ratio", "Bad events over events in a window; absent without traffic.", (_M, _C, _S, Label.WINDOW)
)
SLO_BURN_RATE = Recorded(
    "llm_slo:burn_rate", "Error ratio over (1 - objective): 1 spends the budget exactly.", (_M, _C, _S, Label.WINDOW)
)
SLO_BUDGET_LEFT = Recorded(
    "llm_slo:budget_remaining_ratio", "1 is an untouched budget of the period, below 0 is overspent.", (_M, _C, _S)
)
SLO_OBJECTIVE = Recorded("llm_slo:objective_ratio", "The objective, 0 to 1.", (_C, _S))
SLO_THRESHOLD = Recorded("llm_slo:threshold_seconds", "The threshold of a latency SLO.", (_C, _S))
GOODPUT_EVENTS_IN = Recorded("llm_goodput:events:increase", "Judged requests in a window.", (_M, _C, Label.WINDOW))
GOODPUT_REQUESTS_IN = Recorded("llm_goodput:requests:increase", "Good requests in a window.", (_M, _C, Label.WINDOW))
GOODPUT_RATIO = Recorded(
    "llm_goodput:ratio", "Good over judged requests in a window; absent without traffic.", (_M, _C, Label.WINDOW)
)
GOODPUT_OBJECTIVE = Recorded(
    "llm_goodput:objective_ratio", "The share of requests good for all their SLOs that must be met if each is.", (_C,)
)
# Without a sidecar nobody sees which SLOs one request met, so the ratio is only known to lie between these two.
GOODPUT_AT_LEAST = Recorded("llm_goodput:ratio_at_least", "Good share, if no request missed two SLOs.", (_M, _C, _W))
GOODPUT_AT_MOST = Recorded("llm_goodput:ratio_at_most", "Good share, if who missed one missed all.", (_M, _C, _W))

# A tenant's share of the counts above, in the windows of the pages; only where the SLO file asks for it.
_TENANT_SLO = (_M, _C, _S, _T, _W)
TENANT_EVENTS_IN = Recorded("llm_slo_tenant:events:increase", "SLO events of a tenant in a window.", _TENANT_SLO)
TENANT_BAD_IN = Recorded("llm_slo_tenant:bad_events:increase", "Bad SLO events of a tenant in a window.", _TENANT_SLO)
TENANT_BURN_RATE = Recorded("llm_slo_tenant:burn_rate", "Burn rate by the events of one tenant.", _TENANT_SLO)

REQUESTS_IN = Recorded("llm_requests:increase", "Ended requests in a window.", (Label.INSTANCE, _C, Label.OUTCOME, _W))

# What one sidecar is compared with: the others. Of raw counters this would be too much over weeks.
REQUESTS_AT = Recorded("llm_instance:requests_per_second", "Requests that end at a sidecar.", (Label.INSTANCE,))
GOODPUT_AT = Recorded(
    "llm_instance:goodput_ratio", "Good over judged requests of a sidecar; absent without traffic.", (Label.INSTANCE,)
)

# What a class or a model is compared with: its own last week.
TOKENS_IN = Recorded(
    "llm_completion_tokens:increase", "Completion tokens in a window; absent without any.", (_M, _C, _W)
)
TOKENS_MEDIAN = Recorded(
    "llm_completion_tokens:weekly_median", "Completion tokens of the median busy step of the last week.", (_M, _C)
)
ENGINE_PROMPT_TOKENS_IN = Recorded("llm_engine_prompt_tokens:increase", "Prompt tokens in a window, if any.", (_M, _W))
ENGINE_CACHE_HITS_IN = Recorded(
    "llm_engine_prefix_cache_hits_tokens:increase", "Prompt tokens found in the prefix cache in a window.", (_M, _W)
)
CACHE_WEEKLY_RATIO = Recorded(
    "llm_engine_prefix_cache:weekly_hit_ratio", "Share of last week's prompt tokens found in the prefix cache.", (_M,)
)

# What it costs, where the rules are rendered with a price; in the price's currency.
COST_IN = Recorded("llm_cost:money:increase", "What the GPUs cost in a window.", (_W,))
COST_IDLE_IN = Recorded("llm_cost:idle_money:increase", "The part of it that bought no output token.", (_W,))
COST_TOKENS_IN = Recorded("llm_cost:output_tokens:increase", "Output tokens in a window; absent without any.", (_W,))
COST_GOOD_IN = Recorded("llm_cost:good_requests:increase", "Requests in a window that were good for all SLOs.", (_W,))
COST_PER_MILLION = Recorded(
    "llm_cost:per_million_output_tokens", "Money per million output tokens; absent without any.", (_W,)
)
COST_PER_GOOD = Recorded("llm_cost:per_good_request", "Money per good request; absent without any.", (_W,))

COLD_START = Recorded(
    "llm_engine:cold_start", "1 while an engine starts, and until it is warm.", (Label.INSTANCE, Label.ENGINE)
)
PAGE_HELD = Recorded(
    "llm_slo:page_held", "Bad events of the last step, if all were at engines that start: no page.", (_M, _C, _S)
)

RECORDED: tuple[Recorded, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Recorded))
"""All recorded series, in order."""

FIRING = "ALERTS"
"""The series that Prometheus itself writes for every pending and firing alert."""

UP, SCRAPE_SECONDS, SCRAPED_SAMPLES = "up", "scrape_duration_seconds", "scrape_samples_scraped"
"""Those that Prometheus itself writes for every target."""

REQUEST_CLASS_HEADER = "x-request-class"
REQUEST_START_HEADER = "x-request-start"
"""`t=<unix seconds>`: when the sender meant to send, so that waiting before the sidecar counts."""
