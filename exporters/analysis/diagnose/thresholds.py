"""The thresholds of the rules, each with its source; docs/diagnosis.md explains them."""

FEWEST_REQUESTS = 20
"""Requests of a class; with fewer, a p95 is the largest value."""

FAILING = 0.05
"""Share of requests that were rejected, failed, or waited without a first token: ten times the budget of 99.5 %."""

FEWEST_FAILING = 5
"""Requests that must have failed, were rejected, or waited, besides their share."""

UNUSABLE = 0.05
"""Share of the time in which an engine was wedged or down: as long as 5 % of the requests may fail."""

INTERRUPTION = 0.1
"""Share of the time in which 95 % of the failures ended: below it, they are those of one stop or restart."""

LONG_WAIT = 60.0
"""Seconds that an open request has waited: the default of first_token_timeout."""

ABORTING = 0.1
"""Share of requests that the client aborted after the first token."""

CLIENT_PAUSING = 0.25
"""Share of E2E in which the client did not read."""

INVALID = 0.01
"""Share of structured outputs that are invalid or truncated; each fails a parser."""

KV_FULL = 0.95
"""KV cache use; vLLM preempts when no block is free."""

PREEMPTING = 0.01
"""Preemptions per request; each computes a prompt and its output again."""

KV_FREE = 0.8
"""KV cache use below which a larger batch fits."""

BATCH_FULL = 0.95
"""Running requests / max_num_seqs."""

STEADY = 0.95
"""Running requests p50 / p95: a batch at its limit is constant, one limited by the KV cache varies with the lengths."""

REPEATING = 0.5
"""Share of repeated bodies from which a response cache answers most requests."""

CACHED = 0.05
"""Share of repeated bodies that were answered in less time per token than any decode takes: no engine has one."""

SHAREABLE = 0.3
"""Possible hit ratio: the least of a chatbot with one system prompt; new documents in each prompt give 0 to 15 %."""

MISSED_HITS = 0.2
"""Possible minus actual hit ratio."""

LONG_PROMPT = 2048
"""Tokens: vLLM's default of max_num_batched_tokens, so a longer prompt fills more than a step."""

LONGER = 4
"""Prompt tokens of another class, relative to this one, that delay its requests."""

SHORT_REQUEST = 1024
"""Prompt and completion tokens (p95): 256 such requests, vLLM's default of max_num_seqs, have 262k tokens at most."""

STALLING = 3.0
"""ITL p95 / p50; a steady decode is below 2, and a step with a prefill takes several times as long."""

NEAR_FLOOR = 2.0
"""TPOT / the floor of the roofline; above it, memory bandwidth is not the limit."""

SMALL_BATCH = 32
"""Running requests up to which draft tokens are assumed to be nearly free, if no roofline is given."""

DRAFTS_FREE = 1.5
"""Floor of a step with 3 draft tokens per request / without."""

REASONING = 0.5
"""Share of completion tokens that are reasoning, from which it dominates the time to the first answer token."""
