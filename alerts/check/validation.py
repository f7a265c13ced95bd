"""Checks an SLO file: mistakes, and in a valid file warnings and notes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import ceil, inf
from pathlib import Path

from alerts.engine_only import UnsupportedSlo, evaluate_slos, unsupported_reason
from alerts.rules.wording import rescaled
from exporters.text.units import number, spell_duration
from exporters.text.yaml_reader import FileError, Node, Problem
from exporters.vocabulary.ceilings import Ceilings
from exporters.vocabulary.signals import GENERATING, MEASURED, OTHER
from exporters.vocabulary.slo_file import Bound, Latency, Measure, RequestClass, Slo, SloFile, Source, loads, open_slos
from exporters.vocabulary.verdicts import applicable_slos

_HEADER_ONLY = "so only the header x-request-class can select it"


class Level(StrEnum):
    """A file with a mistake is rejected; a warning is probably unintended; a note is for information."""

    MISTAKE = "mistake"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    at: Problem

    @property
    def problem_and_hint(self) -> tuple[str, str | None]:
        """The message, split at its last semicolon: the problem, and what would work."""
        problem, separator, hint = self.at.text.rpartition("; ")
        return (problem, hint) if separator else (hint, None)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The name, content and parsed form of a file (None with a mistake), and its findings in file order."""

    source: str
    content: str
    spec: SloFile | None
    findings: tuple[Finding, ...]


def check(
    path: Path,
    retention: float | None,
    apply_flags: Callable[[SloFile], SloFile] = lambda spec: spec,
    roofline: Ceilings | None = None,
) -> CheckResult:
    """Read the SLO file; `retention` is that of Prometheus in seconds, if known, as are the bounds of the hardware.

    `apply_flags` overrides the file by command-line flags.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        reader = open_slos(path)
        spec = apply_flags(loads(reader.content, reader.source))
    except FileError as error:
        mistakes = tuple(Finding(Level.MISTAKE, problem) for problem in error.problems)
        return CheckResult(str(path), error.content, None, mistakes)
    keys = dict(reader.node().entries())
    check_slos = _check_classes if spec.source is Source.SIDECAR else _check_engine_slos
    findings = (
        *_check_retention(spec, keys["period"], retention),
        *check_slos(spec, keys),
        *_check_first_token_timeout(spec, keys),
        *(_check_prefill(spec, keys, roofline) if roofline else ()),
        *_check_tiers(spec, keys),
        *_check_group_by(spec, keys),
    )
    in_order = tuple(sorted(findings, key=lambda finding: (finding.at.line, finding.at.column)))
    has_mistake = any(finding.level is Level.MISTAKE for finding in findings)
    return CheckResult(reader.source, reader.content, None if has_mistake else spec, in_order)


def _check_retention(spec: SloFile, period: Node, retention: float | None) -> Iterator[Finding]:
    if retention is not None and retention < spec.period:
        limit = spell_duration(retention)
        yield Finding(
            Level.WARNING,
            period.as_problem(
                f"is longer than the retention of {limit}, so Prometheus drops bad events and overstates the budget "
                f"left; use a period of at most {limit}, or a retention of {spell_duration(spec.period)}"
            ),
        )


def _check_classes(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Warnings for classes, and for an `other` with SLOs, that no request size matches."""
    assigned = _assigned_classes(spec)
    for item, request_class in zip(keys["classes"].items(), spec.classes, strict=True):
        others = assigned[request_class.name]
        if request_class.name in others:
            continue
        name = dict(item.entries())["name"]
        if others:
            earlier = " or ".join(repr(c.name) for c in spec.classes if c.name in others)
            text = (
                f"every request that fits {request_class.name!r} fits {earlier} before it, {_HEADER_ONLY}; "
                "move it up, or narrow the earlier bounds"
            )
        else:
            text = f"no request has such a size, {_HEADER_ONLY}; widen its bounds"
        yield Finding(Level.WARNING, name.as_problem(text))
    if assigned[OTHER]:
        return
    for item in keys["slos"].items():
        for name in dict(item.entries())["classes"].items():
            if name.text() == OTHER:
                text = f"every size of request fits one of the classes, {_HEADER_ONLY}; remove {OTHER!r}"
                yield Finding(Level.WARNING, name.as_problem(text))


def _assigned_classes(spec: SloFile) -> dict[str, set[str]]:
    """The classes that requests get if they fit the bounds of each class; for `other`, if they fit none."""
    assigned: dict[str, set[str]] = {name: set() for name in spec.class_names}
    # The class changes only at bounds, so the values next to each bound suffice. Estimates are quarters of a token.
    prompts = _values_near((c.prompt_tokens for c in spec.classes), 0.25)
    outputs = _values_near((c.max_tokens for c in spec.classes), 1)
    for endpoint in MEASURED:
        for prompt, output in product(prompts, outputs if endpoint in GENERATING else {0.0}):
            assigned_class = spec.classify(None, prompt, output, endpoint)
            for name in [c.name for c in spec.classes if c.fits(prompt, output, endpoint)] or [OTHER]:
                assigned[name].add(assigned_class)
    return assigned


def _values_near(bounds: Iterable[Bound | None], unit: float) -> set[float]:
    tokens_near = {bound.tokens + way * unit for bound in bounds if bound for way in (-1, 0, 1)}
    return {0.0, inf} | {tokens for tokens in tokens_near if tokens >= 0}


def _check_first_token_timeout(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Warnings for a first token that is still good for one SLO of a class and too late for another, and for none."""
    if spec.source is Source.ENGINE:
        return
    if spec.first_token_timeout == inf:
        if unlimited := [slo.name for slo in spec.slos if _awaits_first_token(slo)]:
            yield Finding(
                Level.WARNING,
                keys["first_token_timeout"].as_problem(
                    "without a first-token timeout, an engine that hangs uses no error budget of "
                    f"{', '.join(unlimited)}: a request that the client ends before its first token is abandoned; "
                    "write a duration, such as 60s"
                ),
            )
        return
    timeout = spell_duration(spec.first_token_timeout)
    for item, slo in zip(keys["slos"].items(), spec.slos, strict=True):
        match slo.sli:
            case Latency(Measure.TTFT, threshold) if threshold > spec.first_token_timeout:
                limit = spell_duration(threshold)
            case _:
                continue
        others = [each.name for each in spec.slos if _awaits_first_token(each) and {*each.classes} & {*slo.classes}]
        if others:
            yield Finding(
                Level.WARNING,
                dict(item.entries())["threshold"].as_problem(
                    f"{limit} is longer than first_token_timeout, so a first token after {timeout} is good for "
                    f"{slo.name} and bad for {', '.join(others)}; use a first_token_timeout of at least {limit}"
                ),
            )


def _awaits_first_token(slo: Slo) -> bool:
    return bool(applicable_slos([slo], stream=True, several=True).awaiting_first_token)


def _check_prefill(spec: SloFile, keys: dict[str, Node], roofline: Ceilings) -> Iterator[Finding]:
    """Findings for prompts that are too long for the threshold; a note if the class does not bound its prompts."""
    classes = {each.name: each for each in spec.classes}
    for item, slo in zip(keys["slos"].items(), spec.slos, strict=True):
        match slo.sli:
            case Latency(Measure.TTFT | Measure.TTFT_ANSWER | Measure.PREFILL, threshold):
                within = int(threshold * roofline.prefill)
            case _:
                continue
        for name in slo.classes:
            shortest, longest = _prompt_sizes(classes.get(name))
            if min(longest, roofline.kv_tokens) <= within:
                continue
            tokens, advice = longest if longest < inf else shortest, ""
            if tokens > within:
                advice = (
                    f"; use a threshold of at least {spell_duration(ceil(1000 * tokens / roofline.prefill) / 1000)}"
                )
                advice += f", or prompt_tokens of at most {within}" if shortest <= within else ""
            yield Finding(
                Level.WARNING if advice else Level.NOTE,
                dict(item.entries())["threshold"].as_problem(
                    f"a prompt of {name} over {within:,} tokens misses {spell_duration(threshold)}, as an idle "
                    f"engine can prefill at most {number(round(roofline.prefill))} tokens/s without prefix cache hits"
                    + advice
                ),
            )


def _prompt_sizes(request_class: RequestClass | None) -> tuple[float, float]:
    """The fewest and the most prompt tokens of a class by its own bounds; the most are infinite without a bound."""
    match request_class and request_class.prompt_tokens:
        case Bound("<", tokens):
            return 0, tokens - 1
        case Bound("<=", tokens):
            return 0, tokens
        case Bound(">", tokens):
            return tokens + 1, inf
        case Bound(">=", tokens):
            return tokens, inf
        case _:
            return 0, inf


def _check_tiers(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Notes for tiers that are rescaled because no outage could reach the published burn rate."""
    for item, slo in zip(keys["slos"].items(), spec.slos, strict=True):
        objective = dict(item.entries())["objective"]
        for text in rescaled(slo, spec.period):
            yield Finding(Level.NOTE, objective.as_problem(text))


def _check_group_by(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """A note that the labels must be on the series; nothing in the file shows whether they are."""
    if spec.group_by:
        names = ", ".join(spec.group_by)
        yield Finding(
            Level.NOTE,
            keys["group_by"].as_problem(
                f"rules do not see external labels of Prometheus, so targets need {names} as labels of their own; set "
                "them by relabel_configs, or evaluate the rules where remote_write has added them"
            ),
        )


def _check_engine_slos(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Findings for SLOs that vLLM counts differently or not at all."""
    if problem := unsupported_reason(spec):
        key, text = problem
        yield Finding(Level.MISTAKE, keys.get(key, keys["slos"]).as_problem(text))
    classes = [name for name in spec.class_names if name != OTHER or _assigned_classes(spec)[OTHER]]
    for item, evaluated in zip(keys["slos"].items(), evaluate_slos(spec), strict=True):
        places = dict(item.entries())
        if isinstance(evaluated, UnsupportedSlo):
            yield Finding(Level.WARNING, places[evaluated.key].as_problem(evaluated.note))
            continue
        if evaluated.is_adjusted:
            yield Finding(Level.NOTE, places["threshold"].as_problem(evaluated.note))
        if others := [name for name in classes if name not in evaluated.slo.classes]:
            text = f"vLLM does not distinguish classes, so requests of {', '.join(others)} are counted too"
            yield Finding(Level.NOTE, places["classes"].as_problem(text))
    if spec.alerting.per_tenant:
        text = "vLLM does not distinguish tenants, so per_tenant is ignored; run the sidecar for it"
        yield Finding(Level.WARNING, keys["alerting"].as_problem(text))
