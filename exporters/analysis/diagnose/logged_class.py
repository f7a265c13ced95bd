"""The logged requests of one class, and the evidence that they give."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import isfinite
from typing import Any

from exporters.analysis.diagnose.evidence import ClassEvidence, Fact
from exporters.requestlog.entry import LogEntry
from exporters.vocabulary.signals import Outcome, OutputKind, OutputResult, Verdict
from exporters.vocabulary.slo_file import Measure, Slo
from exporters.vocabulary.token_pace import FEWEST_TOKENS, cache_pace
from exporters.vocabulary.verdicts import nearest_rank

FIRST_TOKEN = frozenset({Measure.TTFT, Measure.TTFT_ANSWER, Measure.QUEUE, Measure.PREFILL})
DECODE = frozenset({Measure.TPOT, Measure.ITL_P95, Measure.DECODE})

FAILED = frozenset({Outcome.UPSTREAM_ERROR, Outcome.UPSTREAM_UNREACHABLE, Outcome.TRUNCATED})
WAITED = frozenset({Outcome.CLIENT_ABORT, Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE, Outcome.TIMEOUT_TOTAL})

FEW = 20
"""Requests; with fewer that missed an SLO, the parts of TTFT are those of all requests."""


class LoggedClass:
    """Collects the numbers of a class in one pass over the log; times in seconds."""

    def __init__(self, name: str, slos: Iterable[Slo], first_token_timeout: float) -> None:
        self.name = name
        self._timeout = first_token_timeout
        self._slos = tuple(slos)
        self.requests = 0
        self._start, self._end = float("inf"), float("-inf")
        self._counts: Counter[str] = Counter()
        self._verdicts: Counter[tuple[str, Verdict, bool]] = Counter()
        self._values: dict[str, list[float]] = {}
        self._parts: list[tuple[bool, float, float, float]] = []
        self._failed_at: list[float] = []
        self._statuses: Counter[int | None] = Counter()
        self.revisions: Counter[str] = Counter()

    def add(self, entry: LogEntry, shareable: float | None) -> None:
        self.requests += 1
        self._start, self._end = min(self._start, entry.arrived), max(self._end, entry.ended)
        count, outcome = self._counts, entry.outcome
        count["rejected"] += outcome is Outcome.REJECTED
        if outcome in FAILED:
            count["failed"] += 1
            self._failed_at.append(entry.ended)
        if outcome is Outcome.CLIENT_ERROR:
            count["client_errors"] += 1
            self._statuses[entry.status] += 1
        count["aborted"] += outcome is Outcome.CLIENT_ABORT and entry.ttft_ms is not None
        count["streams"] += entry.stream
        late = outcome in WAITED if entry.ttft_ms is None else entry.ttft_ms > self._timeout * 1000
        count["no_first_token"] += entry.stream and late
        count["structured"] += entry.structured_result is not None
        count["truncated_output"] += entry.structured_result is OutputResult.TRUNCATED
        if entry.structured_result is OutputResult.INVALID:
            count["invalid_output"] += 1
            count["invalid_tool_calls"] += entry.structured_kind is OutputKind.TOOL_CALL
        for name in ("prompt_repeat", "body_repeat"):
            repeat = getattr(entry, name)
            count[f"{name}_known"] += repeat is not None
            count[name] += bool(repeat)
        self._verdicts.update((name, verdict, outcome in FAILED) for name, verdict in entry.slo.items())
        judged = [verdict for verdict in entry.slo.values() if verdict is not Verdict.ABANDONED]
        count["judged"] += bool(judged)
        count["good"] += bool(judged) and Verdict.BAD not in judged
        self.revisions[entry.config_revision or "unknown"] += 1
        self._add_times(entry)
        self._add_tokens(entry, shareable)

    def _add_times(self, entry: LogEntry) -> None:
        queue, prefill, decode = entry.queue_ms, entry.prefill_ms, entry.decode_ms
        # A response from a response cache repeats the times of the first one.
        if (queue or 0.0) + (prefill or 0.0) + (decode or 0.0) > entry.e2e_ms:
            queue = prefill = decode = None
        self._add("e2e", entry.e2e_ms / 1000)
        self._add("paused", (entry.client_paused_ms or 0.0) / 1000)
        for name, milliseconds in (
            ("ttft", entry.ttft_ms),
            ("tpot", entry.tpot_ms),
            ("queue", queue),
            ("prefill", prefill),
        ):
            if milliseconds is not None:
                self._add(name, milliseconds / 1000)
        if entry.itl_p50_ms and entry.itl_p95_ms is not None:
            self._add("stall_ratio", entry.itl_p95_ms / entry.itl_p50_ms)
        if decode is None and entry.ttft_ms is not None:
            decode = max(0.0, entry.e2e_ms - entry.ttft_ms - (entry.client_paused_ms or 0.0))
        if decode is not None:
            self._add("decode", decode / 1000)
            self._add("decoded_e2e", entry.e2e_ms / 1000)
        if queue is not None and prefill is not None:
            self._add_parts(entry, queue, prefill)

    def _add_parts(self, entry: LogEntry, queue: float, prefill: float) -> None:
        frontend = entry.frontend_ms
        if frontend is None and entry.ttft_ms is not None:
            frontend = max(0.0, entry.ttft_ms - queue - prefill)
        if frontend is not None:
            self._add("frontend", frontend / 1000)
        missed = any(entry.slo.get(slo.name) is Verdict.BAD for slo in self._slos if slo.measure in FIRST_TOKEN)
        self._parts.append((missed, queue, prefill, frontend or 0.0))

    def _add_tokens(self, entry: LogEntry, shareable: float | None) -> None:
        prompt, completion = entry.prompt_tokens, entry.completion_tokens
        if entry.outcome is Outcome.OK and (completion or 0) >= FEWEST_TOKENS:
            self._add_pace(entry, completion or 1)
        if prompt is not None:
            self._add("prompt", prompt)
            self._add("length", prompt + (completion or 0))
        if completion is not None:
            self._add("output", completion)
            if entry.reasoning_tokens is not None:
                self._add("reasoning", entry.reasoning_tokens)
                self._add("reasoned", completion)
        if prompt is not None and entry.cached_tokens is not None:
            self._add("cached", entry.cached_tokens)
            self._add("looked_up", prompt)
        if prompt is not None and shareable is not None:
            self._add("shareable", shareable)
            self._add("hashed", prompt)

    def _add_pace(self, entry: LogEntry, tokens: int) -> None:
        if entry.body_repeat:
            self._add("repeated_pace", entry.e2e_ms / 1000 / tokens)
        elif entry.body_repeat is False and entry.tpot_ms is not None:
            self._add("decode_pace", entry.tpot_ms / 1000)

    def _add(self, name: str, value: float) -> None:
        self._values.setdefault(name, []).append(value)

    @property
    def prompt_p50(self) -> float:
        """0 if no prompt tokens are known."""
        return nearest_rank(sorted(self._values.get("prompt", [0.0])), 50)

    def total(self, name: str) -> float:
        """The sum of `shareable` tokens and `hashed` prompts, or of `cached` tokens and `looked_up` prompts."""
        return sum(self._values.get(name, ()))

    def evidence(self, others: Mapping[str, float]) -> ClassEvidence:
        """The evidence; `others` has the median prompt of each other class."""
        late = f"above {self._timeout:g} s or " if isfinite(self._timeout) else ""
        facts: dict[str, Fact | None] = {
            "requests": Fact(self.requests, "lines of the request log"),
            "goodput": self._share("good", "judged", "slo of {:,} requests"),
            **self._burns(),
            **{name: self._share(name, None, "outcome of {:,} requests") for name in _OUTCOMES},
            **self._failed(),
            "client_errors": self._client_errors(),
            "no_first_token": self._share("no_first_token", "streams", f"ttft_ms {late}null, {{:,}} streams"),
            "client_paused": self._ratio("paused", "e2e", "client_paused_ms / e2e_ms of {:,} requests"),
            "invalid_output": self._share("invalid_output", "structured", "structured_result of {:,} requests"),
            "truncated_output": self._share("truncated_output", "structured", "structured_result of {:,} requests"),
            "invalid_tool_calls": self._share("invalid_tool_calls", "invalid_output", "structured_kind of {:,}"),
            **self._times(),
            **self._tokens(),
            "repeated_prompts": self._share("prompt_repeat", "prompt_repeat_known", "prompt_repeat of {:,} requests"),
            "repeated_bodies": self._share("body_repeat", "body_repeat_known", "body_repeat of {:,} requests"),
            "cached_answers": self._cached_answers(),
        }
        if others:
            name, tokens = max(others.items(), key=lambda each: each[1])
            facts["other_prompt"] = Fact(tokens, f"prompt_tokens of class {name}")
        return ClassEvidence(name=self.name, **{name: fact for name, fact in facts.items() if fact is not None})

    def _cached_answers(self) -> Fact | None:
        paces = self._values.get("repeated_pace")
        if not paces:
            return None
        limit = cache_pace(self._values.get("decode_pace", ()))
        origin = f"e2e_ms / completion_tokens below {limit * 1000:.3g} ms, of {len(paces):,} with body_repeat"
        return Fact(sum(pace < limit for pace in paces) / len(paces), origin)

    def _failed(self) -> dict[str, Fact]:
        """The share of failures with the time of most of them, because those of a restart are not a reason to tune."""
        origin = f"outcome of {self.requests:,} requests"
        share = len(self._failed_at) / self.requests
        if not self._failed_at:
            return {"failed": Fact(share, origin)}
        ordered, outside = sorted(self._failed_at), len(self._failed_at) // 40
        first, last = ordered[outside], ordered[-1 - outside]
        since, until = (datetime.fromtimestamp(at, UTC).isoformat(" ", "seconds")[:19] for at in (first, last))
        time = (last - first) / max(self._end - self._start, 1e-9)
        return {
            "failed": Fact(share, f"{origin}; 95 % of them failed from {since} to {until} UTC"),
            "failed_time": Fact(time, f"{origin}, from the first arrival to the last end"),
        }

    def _client_errors(self) -> Fact:
        statuses = ", ".join(f"{count:,} with status {status}" for status, count in self._statuses.most_common(3))
        share = self._counts["client_errors"] / self.requests
        return Fact(share, f"outcome of {self.requests:,} requests{statuses and f': {statuses}'}")

    def _burns(self) -> dict[str, Fact]:
        burns: dict[str, Fact] = {}
        for slo in self._slos:
            name = burn_name(slo.measure)
            # A failure is bad for every SLO; it shows nothing of the first token or of decode.
            counted = (False, True) if name == "other_burn" else (False,)
            bad, good = (
                sum(self._verdicts[slo.name, verdict, failed] for failed in counted)
                for verdict in (Verdict.BAD, Verdict.GOOD)
            )
            if bad + good:
                without = "" if name == "other_burn" or not self._failed_at else ", without failed requests"
                said = f"SLO {slo.name}: {bad:,} of {bad + good:,} bad{without}"
                burn = Fact(bad / (bad + good) / slo.budget, said)
                burns[name] = max(burns.get(name, burn), burn, key=Fact.or_zero)
        return burns

    def _times(self) -> dict[str, Fact | None]:
        named: dict[str, Any] = {name: self._percentile(name, 50, f"{name}_ms of {{:,}} requests") for name in _TIMES}
        slow = [part for part in self._parts if part[0]]
        which, parts = ("that missed an SLO on TTFT", slow) if len(slow) >= FEW else ("with engine times", self._parts)
        whole = sum(sum(part[1:]) for part in parts)
        if whole:
            for at, name in enumerate(("queue", "prefill", "frontend"), 1):
                origin = f"{name}_ms, sum of {len(parts):,} requests {which}"
                named[f"{name}_share"] = Fact(sum(part[at] for part in parts) / whole, origin)
        if self._parts:
            named["engine_times"] = Fact(len(self._parts) / self.requests, f"queue_ms of {self.requests:,} requests")
        named["stall_ratio"] = self._percentile("stall_ratio", 50, "median of itl_p95_ms / itl_p50_ms, {:,} streams")
        named["decode_share"] = self._ratio("decode", "decoded_e2e", "decode_ms or e2e_ms - ttft_ms of {:,} requests")
        return named

    def _tokens(self) -> dict[str, Fact | None]:
        return {
            **{
                f"{name}_p{percent}": self._percentile(name, percent, f"{field} of {{:,}} requests")
                for name, field in (
                    ("prompt", "prompt_tokens"),
                    ("output", "completion_tokens"),
                    ("cached", "cached_tokens"),
                )
                for percent in (50, 95)
            },
            "longest": self._percentile("length", 100, "prompt_tokens + completion_tokens of {:,} requests"),
            "reasoning": self._ratio("reasoning", "reasoned", "reasoning_tokens of {:,} requests"),
            "possible_hits": self._ratio("shareable", "hashed", "prefix_hashes of {:,} requests, unlimited cache"),
            "actual_hits": self._ratio("cached", "looked_up", "cached_tokens of {:,} requests"),
        }

    def _share(self, part: str, whole: str | None, origin: str) -> Fact | None:
        total = self.requests if whole is None else self._counts[whole]
        return Fact(self._counts[part] / total, origin.format(total)) if total else None

    def _percentile(self, name: str, percent: int, origin: str) -> Fact | None:
        values = self._values.get(name)
        return Fact(nearest_rank(sorted(values), percent), origin.format(len(values))) if values else None

    def _ratio(self, part: str, whole: str, origin: str) -> Fact | None:
        total = self.total(whole)
        return Fact(self.total(part) / total, origin.format(len(self._values[whole]))) if total else None


_OUTCOMES = ("rejected", "aborted")
_TIMES = ("ttft", "queue", "prefill", "frontend", "e2e", "decode", "tpot")


def burn_name(measure: Measure) -> str:
    """The figure that has the burn rate of an SLO on this signal."""
    return "first_token_burn" if measure in FIRST_TOKEN else "decode_burn" if measure in DECODE else "other_burn"
