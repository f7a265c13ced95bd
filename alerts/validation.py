"""All that there is to say about an SLO file: mistakes, and in a file without any, warnings and notes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import product
from math import inf
from pathlib import Path

from alerts.burn_alerts import rescaled
from alerts.engine_only import LeftOut, judged, refused
from exporters.quantities import spell_duration
from exporters.signals import OTHER
from exporters.slos import Bound, SloFile, Source, loads
from exporters.yaml_reader import FileError, Node, Problem, open_yaml

_ONLY_THE_HEADER = "so only the header x-request-class can name it"


class Level(StrEnum):
    """A mistake bars the file from use; a warning is probably none of what was meant; a note is good to know."""

    MISTAKE = "mistake"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    level: Level
    at: Problem

    @property
    def what(self) -> str:
        return self._parts[0]

    @property
    def hint(self) -> str | None:
        """What would work, which every message has after its last semicolon, if it has one."""
        return self._parts[1]

    @property
    def _parts(self) -> tuple[str, str | None]:
        what, found, hint = self.at.text.rpartition("; ")
        return (what, hint) if found else (hint, None)


@dataclass(frozen=True, slots=True)
class Checked:
    """A file's name and content, what it says (nothing, with a mistake in it), and the findings in its order."""

    source: str
    content: str
    spec: SloFile | None
    findings: tuple[Finding, ...]

    def has(self, level: Level) -> bool:
        return any(finding.level is level for finding in self.findings)


def check(path: Path, retention: float | None, chosen: Callable[[SloFile], SloFile] = lambda spec: spec) -> Checked:
    """Read the SLO file; `retention` is for how many seconds Prometheus keeps samples, if that is known.

    `chosen` is what flags say against the file.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        reader = open_yaml(path)
        spec = chosen(loads(reader.content, reader.source))
    except FileError as error:
        mistakes = tuple(Finding(Level.MISTAKE, problem) for problem in error.problems)
        return Checked(str(path), error.content, None, mistakes)
    keys = dict(reader.node().entries())
    judging = _classes if spec.source is Source.SIDECAR else _uncounted
    found = (*_forgotten(spec, keys["period"], retention), *judging(spec, keys), *_tiers(spec, keys))
    in_order = tuple(sorted(found, key=lambda finding: (finding.at.line, finding.at.column)))
    barred = any(finding.level is Level.MISTAKE for finding in found)
    return Checked(reader.source, reader.content, None if barred else spec, in_order)


def _forgotten(spec: SloFile, period: Node, retention: float | None) -> Iterator[Finding]:
    if retention is not None and retention < spec.period:
        kept = spell_duration(retention)
        yield Finding(
            Level.WARNING,
            period.problem_here(
                f"is longer than the {kept} that Prometheus keeps, so bad events are forgotten and the budget left "
                f"looks too good; use a period of at most {kept}, or keep samples for {spell_duration(spec.period)}"
            ),
        )


def _classes(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Classes to which no size of request leads, and SLOs on such an `other`."""
    takers = _takers(spec)
    for item, one in zip(keys["classes"].items(), spec.classes, strict=True):
        before = takers[one.name]
        if one.name in before:
            continue
        name = dict(item.entries())["name"]
        if before:
            earlier = [repr(c.name) for c in spec.classes if c.name in before]
            text = (
                f"whatever fits {one.name!r} fits {_list(earlier)} before it, {_ONLY_THE_HEADER}; "
                "put it further up, or leave it some sizes"
            )
        else:
            text = f"no request is of such a size, {_ONLY_THE_HEADER}; widen its bounds"
        yield Finding(Level.WARNING, name.problem_here(text))
    if takers[OTHER]:
        return
    for item in keys["slos"].items():
        for name in dict(item.entries())["classes"].items():
            if name.text() == OTHER:
                text = f"every size of request fits one of the classes, {_ONLY_THE_HEADER}; leave {OTHER!r} out"
                yield Finding(Level.WARNING, name.problem_here(text))


def _takers(spec: SloFile) -> dict[str, set[str]]:
    """The classes to which the requests go that fit a class; for `other`, those that fit none."""
    takers: dict[str, set[str]] = {name: set() for name in spec.class_names}
    # Estimates come in quarters of a token. What fits changes at bounds alone, so their surroundings say it all.
    prompts = _around((c.prompt_tokens for c in spec.classes), 0.25)
    outputs = _around((c.max_tokens for c in spec.classes), 1)
    for prompt, output in product(prompts, outputs):
        taker = spec.classify(None, prompt, output)
        for name in [c.name for c in spec.classes if c.fits(prompt, output)] or [OTHER]:
            takers[name].add(taker)
    return takers


def _around(bounds: Iterable[Bound | None], unit: float) -> set[float]:
    near = {bound.tokens + way * unit for bound in bounds if bound for way in (-1, 0, 1)}
    return {0.0, inf} | {tokens for tokens in near if tokens >= 0}


def _tiers(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Which tiers no outage could reach as published, and what they are rescaled to."""
    for item, slo in zip(keys["slos"].items(), spec.slos, strict=True):
        objective = dict(item.entries())["objective"]
        for text in rescaled(replace(spec, slos=(slo,))):
            yield Finding(Level.NOTE, objective.problem_here(text))


def _uncounted(spec: SloFile, keys: dict[str, Node]) -> Iterator[Finding]:
    """Which SLOs mean something else, or nothing, where vLLM alone counts."""
    if problem := refused(spec):
        key, text = problem
        yield Finding(Level.MISTAKE, keys.get(key, keys["slos"]).problem_here(text))
    classes = [name for name in spec.class_names if name != OTHER or _takers(spec)[OTHER]]
    for item, found in zip(keys["slos"].items(), judged(spec), strict=True):
        places = dict(item.entries())
        if isinstance(found, LeftOut):
            yield Finding(Level.WARNING, places[found.key].problem_here(found.told))
            continue
        if found.snapped:
            yield Finding(Level.NOTE, places["threshold"].problem_here(found.told))
        if others := [name for name in classes if name not in found.slo.classes]:
            text = f"vLLM knows no classes, so requests of {', '.join(others)} are counted too"
            yield Finding(Level.NOTE, places["classes"].problem_here(text))
    if spec.alerting.per_tenant:
        text = "vLLM knows no tenants, so per_tenant is left out; only the sidecar tells them apart"
        yield Finding(Level.WARNING, keys["alerting"].problem_here(text))


def _list(words: list[str]) -> str:
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
