"""Prometheus as a source of evidence: counters and histograms of the sidecar, and the engine's signals."""

import math
from collections.abc import Iterator, Mapping

from exporters import signals
from exporters.diagnosis.evidence import REQUEST_LOG, ClassEvidence, EngineEvidence, Fact
from exporters.diagnosis.logged_class import FAILED, burn_name
from exporters.errors import UsageError
from exporters.prometheus_api import Prometheus, QueryError, Sample
from exporters.quantities import spell_duration
from exporters.signals import Label, Outcome, OutputKind, OutputResult, Phase, Signal
from exporters.slos import SloFile

Values = Mapping[str, float]
"""By class."""


class PrometheusEvidence:
    """The series of sidecars from `start` to `end` (unix seconds); of several engines, the busiest."""

    def __init__(self, url: str, spec: SloFile, start: float, end: float) -> None:
        self.name = url
        self.start, self.end = start, end
        self._prometheus = Prometheus(url)
        self._spec = spec
        self._window = spell_duration(max(1, round(end - start)))

    def classes(self) -> list[ClassEvidence]:
        """In the order of the SLO file.

        Raises:
            UsageError: a query failed, or no request ended in this time.
        """
        requests = {name: count for name, count in self._sums(signals.REQUESTS).items() if count}
        if not requests:
            raise UsageError(
                f"--prometheus: {self.name} has no {signals.REQUESTS.name} that increased in the {self._window} before "
                f"{self.end:.0f} (unix seconds); is the sidecar scraped? Another time: --since and --until"
            )
        facts: dict[str, dict[str, Fact]] = {
            name: {"requests": Fact(round(count), signals.REQUESTS.name)} for name, count in requests.items()
        }
        for name, waits in self.open_requests().items():
            facts.get(name, {}).update(waits)
        self._add_outcomes(facts, requests)
        self._add_burns(facts)
        self._add_times(facts, requests)
        self._add_tokens(facts, requests)
        unknown = {name: Fact(None, REQUEST_LOG) for name in ("client_paused", "longest", "cached_p50", "cached_p95")}
        order = [name for name in self._spec.class_names if name in requests]
        return [
            ClassEvidence(name=name, **{**unknown, **facts[name]})
            for name in [*order, *sorted(requests.keys() - set(order))]
        ]

    def open_requests(self) -> dict[str, dict[str, Fact]]:
        """The requests of each class that wait for a first token at the end: they are in no log and no histogram."""
        waiting = self._query(f'sum by (class) ({signals.IN_FLIGHT.name}{{phase="{Phase.WAITING}"}})')
        oldest = self._query(f"max by (class) ({signals.OLDEST_WAIT.name})")
        return {
            name: {
                "open_waiting": Fact(count, signals.IN_FLIGHT.name),
                **({"oldest_wait": Fact(oldest[name], signals.OLDEST_WAIT.name)} if name in oldest else {}),
            }
            for name, count in waiting.items()
        }

    def _add_outcomes(self, facts: dict[str, dict[str, Fact]], requests: Values) -> None:
        groups = {
            "rejected": [Outcome.REJECTED],
            "failed": sorted(FAILED),
            "client_errors": [Outcome.CLIENT_ERROR],
        }
        none = dict.fromkeys(requests, 0.0)
        for name, outcomes in groups.items():
            these = self._sums(signals.REQUESTS, _one_of(Label.OUTCOME, outcomes))
            _add(facts, name, {**none, **these}, requests, _OUTCOME)
        waited = _one_of(Label.OUTCOME, [Outcome.CLIENT_ABORT, Outcome.TIMEOUT_FIRST_TOKEN, Outcome.TIMEOUT_IDLE])
        stuck = self._sums(signals.WITHOUT_FIRST_TOKEN, waited)
        bound = next((each for each in signals.TTFT.bounds if each >= self._spec.first_token_timeout), math.inf)
        timely = self._query(
            f'sum by (class) (increase({signals.TTFT.bucket}{{le=~"{bound:g}([.]0)?"}}[{self._window}]))'
        )
        late = {
            name: max(0.0, count - timely.get(name, count)) + stuck.get(name, 0.0)
            for name, count in self._query(f"sum by (class) (increase({signals.TTFT.count}[{self._window}]))").items()
        }
        streams = self._sums(signals.REQUESTS, '{stream="true"}')
        _add(facts, "no_first_token", {**stuck, **late}, streams, f"{signals.TTFT.name} above {bound:g} s, or none")
        abort = _one_of(Label.OUTCOME, [Outcome.CLIENT_ABORT])
        before = self._sums(signals.WITHOUT_FIRST_TOKEN, abort)
        aborts = {
            name: max(0.0, count - before.get(name, 0.0)) for name, count in self._sums(signals.REQUESTS, abort).items()
        }
        _add(facts, "aborted", {**none, **aborts}, requests, _OUTCOME)
        structured = self._sums(signals.STRUCTURED_REQUESTS)
        for result in (OutputResult.INVALID, OutputResult.TRUNCATED):
            these = self._sums(signals.STRUCTURED_REQUESTS, f'{{result="{result}"}}')
            _add(facts, f"{result}_output", these, structured, signals.STRUCTURED_REQUESTS.name)
        where = f'{{result="{OutputResult.INVALID}"'
        tools = self._sums(signals.STRUCTURED_REQUESTS, f'{where},kind="{OutputKind.TOOL_CALL}"}}')
        invalid = self._sums(signals.STRUCTURED_REQUESTS, f"{where}}}")
        _add(facts, "invalid_tool_calls", tools, invalid, signals.STRUCTURED_REQUESTS.name)

    def _add_burns(self, facts: dict[str, dict[str, Fact]]) -> None:
        good = self._sums(signals.GOODPUT_REQUESTS)
        _add(facts, "goodput", good, self._sums(signals.GOODPUT_EVENTS), signals.GOODPUT_REQUESTS.name)
        for slo in self._spec.slos:
            where = f'{{slo="{slo.name}"}}'
            bad = self._sums(signals.SLO_BAD, where)
            for name, events in self._sums(signals.SLO_EVENTS, where).items():
                if events and name in facts:
                    count = bad.get(name, 0.0)
                    burn = Fact(count / events / slo.budget, f"SLO {slo.name}: {count:,.0f} of {events:,.0f} bad")
                    figure = burn_name(slo.measure)
                    facts[name][figure] = max(facts[name].get(figure, burn), burn, key=Fact.or_zero)

    def _add_times(self, facts: dict[str, dict[str, Fact]], requests: Values) -> None:
        for name, signal in (
            ("ttft", signals.TTFT),
            ("queue", signals.QUEUE),
            ("prefill", signals.PREFILL),
            ("frontend", signals.FRONTEND),
            ("decode", signals.DECODE),
            ("tpot", signals.TPOT),
            ("e2e", signals.DURATION),
        ):
            self._add_quantile(facts, name, signal, 0.5)
        _add(
            facts,
            "engine_times",
            self._sums(signals.REQUESTS_WITH_ENGINE_TIMES),
            requests,
            signals.REQUESTS_WITH_ENGINE_TIMES.name,
            zero=False,
        )
        # Only requests with times of the engine are in these histograms, so TTFT of all requests is no denominator.
        parts = {name: self._sums(signal, part=".sum") for name, signal in _PARTS.items()}
        whole = {name: sum(part.get(name, 0.0) for part in parts.values()) for name in parts["queue"]}
        for name, part in parts.items():
            origin = f"sum of {_PARTS[name].name} / (queue + prefill + front end)"
            _add(facts, f"{name}_share", part, whole, origin)
        first, durations = self._sums(signals.TTFT, part=".sum"), self._sums(signals.DURATION, part=".sum")
        decode = {name: max(0.0, total - first.get(name, 0.0)) for name, total in durations.items()}
        _add(facts, "decode_share", decode, durations, f"1 - {signals.TTFT.name} / {signals.DURATION.name}, sums")
        p50, p95 = (self._quantiles(signals.INTER_CHUNK, share) for share in (0.5, 0.95))
        _add(facts, "stall_ratio", p95, p50, f"{signals.INTER_CHUNK.name}, all chunks")

    def _add_tokens(self, facts: dict[str, dict[str, Fact]], requests: Values) -> None:
        for name, signal in (("prompt", signals.REQUEST_PROMPT_TOKENS), ("output", signals.REQUEST_COMPLETION_TOKENS)):
            self._add_quantile(facts, f"{name}_p50", signal, 0.5)
            self._add_quantile(facts, f"{name}_p95", signal, 0.95)
        prompt, completion = self._sums(signals.PROMPT_TOKENS), self._sums(signals.COMPLETION_TOKENS)
        for name, signal, whole in (
            ("actual_hits", signals.CACHED_TOKENS, prompt),
            ("possible_hits", signals.SHAREABLE_PROMPT_TOKENS, prompt),
            ("reasoning", signals.REASONING_TOKENS, completion),
            ("repeated_prompts", signals.PROMPT_REPEATS, requests),
            ("repeated_bodies", signals.BODY_REPEATS, requests),
        ):
            # The sidecar counts 0 also if nothing reports these, so 0 is unknown.
            keep_zero = name.startswith("repeated")
            _add(facts, name, self._sums(signal), whole, signal.name, zero=keep_zero)
        for name, known in facts.items():
            others = {
                other: tokens
                for other, each in facts.items()
                if other != name and (fact := each.get("prompt_p50")) and (tokens := fact.value)
            }
            if others:
                other, tokens = max(others.items(), key=lambda each: each[1])
                known["other_prompt"] = Fact(tokens, f"{signals.REQUEST_PROMPT_TOKENS.name} of class {other}")

    def engine(self) -> EngineEvidence:
        """Raises UsageError if a query failed."""
        window = self._window
        found = {
            "waiting": (f"max(avg_over_time({signals.ENGINE_WAITING.name}[{window}]))", signals.ENGINE_WAITING),
            "running": (
                f"max(quantile_over_time(0.95, {signals.ENGINE_RUNNING.name}[{window}]))",
                signals.ENGINE_RUNNING,
            ),
            "running_p50": (
                f"max(quantile_over_time(0.5, {signals.ENGINE_RUNNING.name}[{window}]))",
                signals.ENGINE_RUNNING,
            ),
            "kv_use": (
                f"max(quantile_over_time(0.95, {signals.ENGINE_KV_USAGE.name}[{window}]))",
                signals.ENGINE_KV_USAGE,
            ),
            "kv_capacity": (f"max({signals.ENGINE_KV_CAPACITY.name})", signals.ENGINE_KV_CAPACITY),
            "preemptions": (
                f"{self._increase(signals.ENGINE_PREEMPTIONS)} / {self._increase(signals.REQUESTS)}",
                signals.ENGINE_PREEMPTIONS,
            ),
            "possible_hits": (
                f"{self._increase(signals.SHAREABLE_PROMPT_TOKENS)} / {self._increase(signals.PROMPT_TOKENS)} > 0",
                signals.SHAREABLE_PROMPT_TOKENS,
            ),
            "cache_hits": (
                f"{self._increase(signals.ENGINE_CACHE_HITS)} / {self._increase(signals.ENGINE_CACHE_QUERIES)}",
                signals.ENGINE_CACHE_HITS,
            ),
            "draft_acceptance": (
                f"{self._increase(signals.ENGINE_SPEC_ACCEPTED)} / {self._increase(signals.ENGINE_SPEC_DRAFTED)}",
                signals.ENGINE_SPEC_ACCEPTED,
            ),
            **{
                name: (f"histogram_quantile(0.5, sum by (le) (increase({signal.bucket}[{window}])))", signal)
                for name, signal in (("queue", signals.ENGINE_QUEUE), ("prefill", signals.ENGINE_PREFILL))
            },
        }
        facts = {
            name: _known(self._query(query).get("", math.nan), signal.name, f"Prometheus has no {signal.name}")
            for name, (query, signal) in found.items()
        }
        return EngineEvidence(settings=self._settings(), **facts)

    def _settings(self) -> dict[str, str]:
        """The engine's settings; of several engines, their different values are joined by `|`."""
        values: dict[str, set[str]] = {}
        for sample in self._samples(f"last_over_time({signals.ENGINE_SETTING_INFO.name}[{self._window}])"):
            values.setdefault(sample.labels[Label.SETTING], set()).add(sample.labels[Label.VALUE])
        return {name: "|".join(sorted(each)) for name, each in sorted(values.items())}

    def notes(self) -> Iterator[str]:
        yield (
            "From Prometheus: percentiles are interpolated in the buckets of histograms; requests without times of the "
            "engine or without a first token are in none of them. --request-log has every request that ended."
        )

    def _increase(self, signal: Signal) -> str:
        return f"sum(increase({signal.name}[{self._window}]))"

    def _add_quantile(self, facts: dict[str, dict[str, Fact]], name: str, signal: Signal, share: float) -> None:
        for class_name, value in self._quantiles(signal, share).items():
            if class_name in facts and math.isfinite(value):
                facts[class_name][name] = Fact(value, signal.name)

    def _quantiles(self, signal: Signal, share: float) -> Values:
        return self._query(
            f"histogram_quantile({share}, sum by (class, le) (increase({signal.bucket}[{self._window}])))"
        )

    def _sums(self, signal: Signal, where: str = "", part: str = "") -> Values:
        name = signal.sum if part else signal.name
        return self._query(f"sum by (class) (increase({name}{where}[{self._window}]))")

    def _query(self, query: str) -> dict[str, float]:
        """By class; an aggregate over all classes has the name ``."""
        return {each.labels.get(Label.CLASS, ""): each.value for each in self._samples(query)}

    def _samples(self, query: str) -> list[Sample]:
        try:
            return self._prometheus.query(query, self.end)
        except QueryError as error:
            raise UsageError(f"--prometheus: a query of {self.name} failed: {error.reason}") from error


_OUTCOME = f"outcome of {signals.REQUESTS.name}"
_PARTS = {"queue": signals.QUEUE, "prefill": signals.PREFILL, "frontend": signals.FRONTEND}


def _one_of(label: Label, values: list[Outcome]) -> str:
    return f'{{{label}=~"{"|".join(values)}"}}'


def _known(value: float, origin: str, missing: str) -> Fact:
    return Fact(value, origin) if math.isfinite(value) else Fact(None, missing)


def _add(
    facts: dict[str, dict[str, Fact]], name: str, part: Values, whole: Values, origin: str, *, zero: bool = True
) -> None:
    """Add part / whole of each class; a class without a part has 0, if any class has one."""
    for class_name, known in facts.items():
        total, count = whole.get(class_name, 0.0), part.get(class_name, 0.0)
        if total > 0 and part and math.isfinite(count) and (zero or count):
            known[name] = Fact(count / total, origin)
