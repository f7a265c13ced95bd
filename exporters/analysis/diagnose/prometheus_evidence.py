"""Prometheus as a source of evidence: counters and histograms of the sidecar, and the engine's signals."""

import math
from collections.abc import Iterator

from exporters.analysis.diagnose.engine_series import SeriesWindow, Values, engine_evidence
from exporters.analysis.diagnose.evidence import REQUEST_LOG, ClassEvidence, EngineEvidence, Fact
from exporters.analysis.diagnose.logged_class import FAILED, WAITED, burn_name
from exporters.text.errors import UsageError
from exporters.vocabulary import signals
from exporters.vocabulary.signals import Label, Outcome, OutputKind, OutputResult, Phase, Signal
from exporters.vocabulary.slo_file import SloFile


class PrometheusEvidence:
    """The series of sidecars and engines from `start` to `end` (unix seconds)."""

    def __init__(self, url: str, spec: SloFile, start: float, end: float) -> None:
        self.name = url
        self.start, self.end = start, end
        self._window = SeriesWindow(url, start, end)
        self._spec = spec

    def classes(self) -> list[ClassEvidence]:
        """Evidence of each class, in the order of the SLO file.

        Raises:
            UsageError: a query failed, or no request ended in this time or is open.
        """
        ended, waits = self._window.sums(signals.REQUESTS), self.open_requests()
        waiting = {name for name, each in waits.items() if each["open_waiting"].value}
        requests = {name: ended.get(name, 0.0) for name in ended.keys() | waiting if ended.get(name) or name in waiting}
        if not requests:
            raise UsageError(
                f"--prometheus: {self.name} has no {signals.REQUESTS.name} that increased in the {self._window.length} "
                f"before {self.end:.0f} (unix seconds); is the sidecar scraped? Another time: --since and --until"
            )
        facts: dict[str, dict[str, Fact]] = {
            name: {"requests": Fact(round(count), signals.REQUESTS.name), **waits.get(name, {})}
            for name, count in requests.items()
        }
        self._add_outcomes(facts, requests)
        self._add_burns(facts)
        self._add_times(facts, requests)
        self._add_tokens(facts, requests)
        unknown = {name: Fact(None, REQUEST_LOG) for name in ("client_paused", "longest", "cached_p50", "cached_p95")}
        return [ClassEvidence(name=name, **{**unknown, **facts[name]}) for name in self._spec.in_order(requests)]

    def open_requests(self) -> dict[str, dict[str, Fact]]:
        """The requests of each class that wait for a first token at the end: they are in no log and no histogram."""
        waiting = self._window.query(f'sum by (class) ({signals.IN_FLIGHT.name}{{phase="{Phase.WAITING}"}})')
        oldest = self._window.query(f"max by (class) ({signals.OLDEST_WAIT.name})")
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
            these = self._window.sums(signals.REQUESTS, _one_of(Label.OUTCOME, outcomes))
            _add(facts, name, {**none, **these}, requests, _OUTCOME)
        waited = _one_of(Label.OUTCOME, sorted(WAITED))
        stuck = self._window.sums(signals.WITHOUT_FIRST_TOKEN, waited)
        bound = next((each for each in signals.TTFT.bounds if each >= self._spec.first_token_timeout), math.inf)
        timely = self._window.sums(signals.TTFT.bucket, f'{{le=~"{bound:g}([.]0)?"}}')
        late = {
            name: max(0.0, count - timely.get(name, count)) + stuck.get(name, 0.0)
            for name, count in self._window.sums(signals.TTFT.count).items()
        }
        streams = self._window.sums(signals.REQUESTS, '{stream="true"}')
        above = f"above {bound:g} s, or " if math.isfinite(bound) else ""
        _add(facts, "no_first_token", {**stuck, **late}, streams, f"{signals.TTFT.name} {above}none")
        abort = _one_of(Label.OUTCOME, [Outcome.CLIENT_ABORT])
        before = self._window.sums(signals.WITHOUT_FIRST_TOKEN, abort)
        aborts = {
            name: max(0.0, count - before.get(name, 0.0))
            for name, count in self._window.sums(signals.REQUESTS, abort).items()
        }
        _add(facts, "aborted", {**none, **aborts}, requests, _OUTCOME)
        structured = self._window.sums(signals.STRUCTURED_REQUESTS)
        for result in (OutputResult.INVALID, OutputResult.TRUNCATED):
            these = self._window.sums(signals.STRUCTURED_REQUESTS, f'{{result="{result}"}}')
            _add(facts, f"{result}_output", these, structured, signals.STRUCTURED_REQUESTS.name)
        where = f'{{result="{OutputResult.INVALID}"'
        tools = self._window.sums(signals.STRUCTURED_REQUESTS, f'{where},kind="{OutputKind.TOOL_CALL}"}}')
        invalid = self._window.sums(signals.STRUCTURED_REQUESTS, f"{where}}}")
        _add(facts, "invalid_tool_calls", tools, invalid, signals.STRUCTURED_REQUESTS.name)

    def _add_burns(self, facts: dict[str, dict[str, Fact]]) -> None:
        good = self._window.sums(signals.GOODPUT_REQUESTS)
        _add(facts, "goodput", good, self._window.sums(signals.GOODPUT_EVENTS), signals.GOODPUT_REQUESTS.name)
        for slo in self._spec.slos:
            where = f'{{slo="{slo.name}"}}'
            bad = self._window.sums(signals.SLO_BAD, where)
            for name, events in self._window.sums(signals.SLO_EVENTS, where).items():
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
            self._window.sums(signals.REQUESTS_WITH_ENGINE_TIMES),
            requests,
            signals.REQUESTS_WITH_ENGINE_TIMES.name,
            zero=False,
        )
        # These histograms have only requests with times of the engine, so TTFT of all requests is not a denominator.
        parts = {name: self._window.sums(signal.sum) for name, signal in _PARTS.items()}
        whole = {name: sum(part.get(name, 0.0) for part in parts.values()) for name in parts["queue"]}
        for name, part in parts.items():
            origin = f"sum of {_PARTS[name].name} / (queue + prefill + front end)"
            _add(facts, f"{name}_share", part, whole, origin)
        first = self._window.sums(signals.TTFT.sum)
        durations = self._window.sums(signals.DURATION.sum)
        decode = {name: max(0.0, total - first.get(name, 0.0)) for name, total in durations.items()}
        _add(facts, "decode_share", decode, durations, f"1 - {signals.TTFT.name} / {signals.DURATION.name}, sums")
        p50, p95 = (self._window.quantiles(signals.INTER_CHUNK, share) for share in (0.5, 0.95))
        _add(facts, "stall_ratio", p95, p50, f"{signals.INTER_CHUNK.name}, all chunks")

    def _add_tokens(self, facts: dict[str, dict[str, Fact]], requests: Values) -> None:
        for name, signal in (("prompt", signals.REQUEST_PROMPT_TOKENS), ("output", signals.REQUEST_COMPLETION_TOKENS)):
            self._add_quantile(facts, f"{name}_p50", signal, 0.5)
            self._add_quantile(facts, f"{name}_p95", signal, 0.95)
        prompt, completion = self._window.sums(signals.PROMPT_TOKENS), self._window.sums(signals.COMPLETION_TOKENS)
        for name, signal, whole in (
            ("actual_hits", signals.CACHED_TOKENS, prompt),
            ("possible_hits", signals.SHAREABLE_PROMPT_TOKENS, prompt),
            ("reasoning", signals.REASONING_TOKENS, completion),
            ("repeated_prompts", signals.PROMPT_REPEATS, requests),
            ("repeated_bodies", signals.BODY_REPEATS, requests),
        ):
            # The sidecar counts 0 also if nothing reports these, so 0 is unknown.
            keep_zero = name.startswith("repeated")
            _add(facts, name, self._window.sums(signal), whole, signal.name, zero=keep_zero)
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
        return engine_evidence(self._window)

    def notes(self) -> Iterator[str]:
        yield (
            "From Prometheus: percentiles are interpolated in the buckets of histograms; requests without times of the "
            "engine or without a first token are in none of them. --request-log has every request that ended."
        )

    def _add_quantile(self, facts: dict[str, dict[str, Fact]], name: str, signal: Signal, share: float) -> None:
        for class_name, value in self._window.quantiles(signal, share).items():
            if class_name in facts and math.isfinite(value):
                facts[class_name][name] = Fact(value, signal.name)


_OUTCOME = f"outcome of {signals.REQUESTS.name}"
_PARTS = {"queue": signals.QUEUE, "prefill": signals.PREFILL, "frontend": signals.FRONTEND}


def _one_of(label: Label, values: list[Outcome]) -> str:
    return f'{{{label}=~"{"|".join(values)}"}}'


def _add(
    facts: dict[str, dict[str, Fact]], name: str, part: Values, whole: Values, origin: str, *, zero: bool = True
) -> None:
    """Add part / whole of each class; a class without a part has 0, if any class has one."""
    for class_name, known in facts.items():
        total, count = whole.get(class_name, 0.0), part.get(class_name, 0.0)
        if total > 0 and part and math.isfinite(count) and (zero or count):
            known[name] = Fact(count / total, origin)
