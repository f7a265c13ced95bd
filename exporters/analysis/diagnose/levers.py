"""The levers that a diagnosis can name: how to apply each one, its price, and what to measure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Lever:
    """One change to try; docs/diagnosis.md has the sources."""

    name: str
    how: str
    price: str
    measure: str


RESPONSE_CACHE = Lever(
    "response cache",
    "a cache in front of the engine, keyed by the body of the request",
    "repeated requests get the same answer, also with a temperature above 0; answers need an expiry time",
    "share of repeated bodies, goodput, running requests",
)
PREFIX_CACHING = Lever(
    "prefix caching",
    "--enable-prefix-caching",
    "no gain for prompts that differ in their first block, and none in decode; a full KV cache evicts the prefixes",
    "cache hit ratio, TTFT, also of other classes",
)
MORE_HITS = Lever(
    "keep prefixes in the cache",
    "send requests of one prefix to the same engine, or enlarge the KV cache (--gpu-memory-utilization, "
    "--kv-cache-dtype fp8)",
    "uneven load between engines, or less memory for activations and less accuracy",
    "cache hit ratio against the possible one, TTFT",
)
CHUNKED_PREFILL = Lever(
    "chunked prefill",
    "--enable-chunked-prefill",
    "long prompts prefill more slowly, and more requests run at once, so preemptions may rise; in a lasting overload "
    "TTFT does not improve",
    "TTFT and ITL p95 of the short class, TTFT of the long class, preemptions",
)
SMALLER_CHUNKS = Lever(
    "smaller prefill chunks",
    "a lower --max-num-batched-tokens, or --long-prefill-token-threshold",
    "TTFT of long prompts and throughput; the overhead of each step weighs more",
    "ITL p95, TTFT of long prompts, output tokens/s",
)
SEPARATE_ENGINES = Lever(
    "separate engines for long prompts",
    "route classes with long prompts to an engine of their own, or disaggregate prefill (--kv-transfer-config)",
    "a second engine; each has fewer spare resources, and disaggregation transfers the KV cache",
    "queue time and TTFT of the short class, throughput of both",
)
FASTER_PREFILL = Lever(
    "faster prefill",
    "FP8 weights and activations (--quantization fp8), or --tensor-parallel-size",
    "accuracy and a GPU with FP8 (Ada, Hopper or later), or more GPUs; 4-bit weights do not speed up prefill",
    "TTFT, prompt tokens/s, quality of answers",
)
MORE_SEQUENCES = Lever(
    "larger batch",
    "a higher --max-num-seqs",
    "TPOT rises with the batch, and so does the use of the KV cache: watch preemptions",
    "queue time, output tokens/s, TPOT, preemptions",
)
FEWER_SEQUENCES = Lever(
    "smaller batch",
    "a lower --max-num-seqs",
    "requests wait in the queue instead: TTFT rises, so classes with an SLO on the first token do not gain",
    "preemptions, ITL, TTFT",
)
FP8_KV = Lever(
    "KV cache in FP8",
    "--kv-cache-dtype fp8",
    "accuracy, and an attention backend that supports it; about twice the tokens fit, decode is hardly faster",
    "KV cache use, preemptions, quality of answers",
)
MORE_ENGINES = Lever(
    "more capacity",
    "another replica of the engine; until then, reject early (429) what cannot meet its SLO",
    "GPUs; rejected requests are bad events of their SLOs unless the SLO excludes them",
    "queue time, goodput over offered requests",
)
SPECULATIVE = Lever(
    "speculative decoding",
    "--speculative-config with a draft model or n-grams",
    "rejected draft tokens cost compute, so a low acceptance ratio or a large batch makes TPOT worse; memory for the "
    "draft model",
    "draft acceptance ratio, TPOT, output tokens/s",
)
SHORTER_REASONING = Lever(
    "less reasoning",
    "reasoning_effort or the switch of the chat template in the request, or speculative decoding",
    "quality of answers to difficult requests",
    "time to the first answer token, reasoning tokens",
)
FASTER_DECODE = Lever(
    "more memory bandwidth",
    "--tensor-parallel-size, FP8 weights (--quantization fp8), or fewer requests per engine",
    "more GPUs and communication between them, accuracy, or throughput per GPU",
    "TPOT, output tokens/s per GPU",
)
CUDA_GRAPHS = Lever(
    "CUDA graphs",
    "remove --enforce-eager",
    "GPU memory for the graphs and a longer start",
    "TPOT, start time",
)
API_SERVERS = Lever(
    "more front-end processes",
    "--api-server-count",
    "CPU cores and memory",
    "front-end time",
)
STRUCTURED_OUTPUTS = Lever(
    "structured outputs",
    "response_format of type json_schema instead of json_object or a prompt that asks for JSON",
    "the first request of a schema compiles it; some schemas lower the quality of answers",
    "share of invalid output",
)
TOOL_PARSER = Lever(
    "tool parser of the model",
    "--tool-call-parser and --chat-template as the model's documentation says, or tool_choice required",
    "a forced call may be wrong where text would do",
    "share of invalid output",
)
HIGHER_MAX_TOKENS = Lever(
    "higher max_tokens",
    "max_tokens of the requests above the length of a complete answer",
    "longer requests use the KV cache for longer",
    "share of output cut at max_tokens",
)
RAISE_LIMITS = Lever(
    "raise the limit that rejects",
    "the limit of requests at the gateway or engine that sends 429 or 503",
    "more requests wait and share the KV cache: TTFT and TPOT rise",
    "share of rejected requests, queue time, KV cache use",
)
ENGINE_FAULT = Lever(
    "the engine's fault",
    "read the log of the engine at the times of `vllm-slo requests --request-log FILE --status 5xx` before any tuning",
    "none",
    "share of failed requests",
)
FIX_REQUESTS = Lever(
    "the requests",
    "read the statuses with `vllm-slo requests --request-log FILE --outcome client_error`; a prompt above "
    "max_model_len is a 400",
    "a higher --max-model-len needs KV cache for one request of that length",
    "share of client errors",
)
FIX_CLIENT = Lever(
    "the client",
    "no setting of the engine helps: read the response faster, and compare the client's timeout with E2E",
    "none on the server",
    "time in which the client did not read, share of aborted requests",
)
