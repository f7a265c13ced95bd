"""The SLO file: classes of requests, the SLOs of each class, the period and the guards of the alerts."""

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from exporters.quantities import number
from exporters.signals import OTHER
from exporters.yaml_keys import (
    COUNT,
    DURATION,
    FLAG,
    NAMED,
    TEXT,
    Key,
    Kind,
    Schema,
    choice,
    list_of,
    matched,
    read,
    section,
    text_of,
)
from exporters.yaml_reader import NAME, Node, Reader, nearest, open_yaml, parse_yaml

SHIPPED = Path(__file__).resolve().parents[1] / "alerts" / "slos.yaml"
"""The SLO file that comes with the program, in a checkout and in an installation."""


class Measure(StrEnum):
    """The signal that an SLO judges; each is defined in README under "What is measured"."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL_P95 = "itl_p95"
    E2E = "e2e"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    AVAILABILITY = "availability"


class Unary(StrEnum):
    """How a streaming SLO judges a request that does not stream."""

    SKIP = "skip"
    E2E = "e2e"


class Rejected(StrEnum):
    """How an SLO judges a 429 or 503."""

    BAD = "bad"
    EXCLUDE = "exclude"


class Source(StrEnum):
    """The counters that the rules are built on."""

    SIDECAR = "sidecar"
    ENGINE = "engine"


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison such as `<512`, in tokens."""

    compare: str
    tokens: int

    def admits(self, tokens: float) -> bool:
        return _COMPARE[self.compare](tokens, self.tokens)

    def __str__(self) -> str:
        return f"{self.compare}{self.tokens}"


VERSION = re.compile(r"v?\d+(\.\d+){1,3}")
"""The version number of a vLLM release."""

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_BOUND = matched(
    r"\s*(<=|>=|<|>)\s*(\d+)\s*",
    lambda match: Bound(match[1], int(match[2])),
    'is no bound; write a comparison in quotes, such as "<512" or ">=2048"',
)


def _class_name(node: Node) -> str | None:
    name = node.name()
    if name == OTHER:
        node.problem(f"{OTHER!r} is the class of requests that fit no other; choose another name")
    return name


def _objective(node: Node) -> float | None:
    text = node.text()
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    percent = float(match[1]) if match else None
    if percent is None:
        node.problem(f"{text!r} is no share; write a percentage, such as 99.5%")
    elif percent >= 100:
        node.problem(f"{text} leaves no error budget, so its burn rate is undefined; the nearest that works is 99.9%")
    elif percent <= 0:
        node.problem(f"{text} can never be missed; write a share above 0%, such as 95%")
    else:
        return round(percent / 100, 12)
    return None


_CLASS_NAME = Kind(_class_name, text_of(rf"(?!{OTHER}$){NAME.pattern}"))
_OBJECTIVE = Kind(_objective, text_of(r"\s*(?!0+(\.0+)?\s*%)0*\d{1,2}(\.\d+)?\s*%\s*"))
_THRESHOLD_RULES: Schema = {
    "if": {"properties": {"signal": {"const": Measure.AVAILABILITY}}, "required": ["signal"]},
    "then": {"properties": {"threshold": False}},
    "else": {"required": ["threshold"]},
}
"""Every signal but availability needs a threshold."""


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A shape of request; a missing bound accepts any size."""

    name: Annotated[str, Key(_CLASS_NAME, "A value of the label `class`.")]
    prompt_tokens: Annotated[Bound | None, Key(_BOUND, 'A comparison such as "<512"; estimated as characters / 4.')] = (
        None
    )
    max_tokens: Annotated[
        Bound | None, Key(_BOUND, 'A comparison such as "<=512"; a missing max_tokens counts as long.')
    ] = None

    def fits(self, prompt_tokens: float, max_tokens: float) -> bool:
        return (self.prompt_tokens is None or self.prompt_tokens.admits(prompt_tokens)) and (
            self.max_tokens is None or self.max_tokens.admits(max_tokens)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The share of events of some classes that must be good by one signal."""

    name: Annotated[str, Key(NAMED, "A value of the label `slo`.")]
    classes: Annotated[
        tuple[str, ...],
        Key(
            list_of(Kind(Node.text, NAMED.schema), "names no class, so the SLO would judge nothing; name at least one"),
            "Which classes it judges; `other` may be one.",
        ),
    ]
    measure: Annotated[Measure, Key(choice(Measure), "What is judged.", name="signal")]
    threshold: Annotated[float | None, Key(DURATION, "What is still good.")] = None
    objective: Annotated[float, Key(_OBJECTIVE, "The share of events that must be good.")]
    unary: Annotated[Unary, Key(choice(Unary), "What a streaming SLO does with a request that does not stream.")] = (
        Unary.SKIP
    )
    rejected: Annotated[Rejected, Key(choice(Rejected), "What a 429 or 503 is; exclude makes no event of it.")] = (
        Rejected.BAD
    )

    @property
    def budget(self) -> float:
        """The share of events that may be bad."""
        return round(1 - self.objective, 12)


@dataclass(frozen=True, slots=True)
class Tenants:
    """Which header names the tenant and which tenants are shown by name."""

    header: Annotated[
        str,
        Key(
            matched(_HEADER, lambda match: match[0].lower(), "is no HTTP header name; use letters, digits and -"),
            "The HTTP header that names the tenant.",
        ),
    ] = "x-tenant"
    allow: Annotated[tuple[str, ...], Key(list_of(TEXT), "Tenants shown by name; all others are `other`.")] = ()

    def bounded(self, tenant: str | None) -> str:
        return tenant if tenant in self.allow and tenant is not None else OTHER


@dataclass(frozen=True, slots=True)
class MinEvents:
    """Events that a tier's long window must hold."""

    page: Annotated[int, Key(COUNT, "For a page.")] = 50
    ticket: Annotated[int, Key(COUNT, "For a ticket.")] = 100


@dataclass(frozen=True, slots=True)
class Alerting:
    """Guards against needless pages."""

    min_events: Annotated[MinEvents, Key(section(MinEvents))] = MinEvents()
    min_bad: Annotated[int, Key(COUNT, "Bad events that a tier's long window must hold.")] = 10
    per_tenant: Annotated[bool, Key(FLAG, "Rules and pages for each of tenants.allow.")] = False
    cold_start: Annotated[
        float,
        Key(
            DURATION,
            "How long pages are held back while an engine starts, and again once it answers; less by default where "
            "period / 8640 is less.",
        ),
    ] = 300.0


@dataclass(frozen=True, slots=True)
class ScrapedEngine:
    """What the rules must know of vLLM with source: engine."""

    version: Annotated[
        str | None,
        Key(
            matched(
                VERSION.pattern,
                lambda match: match[0],
                "is no release of vLLM; write its number, such as 0.25 or v0.25.1",
                type=["string", "number"],
            ),
            "Its release, such as 0.25; the newest known if left out.",
        ),
    ] = None
    job: Annotated[str, Key(TEXT, "The job under which Prometheus scrapes it.")] = "vllm"


def _format_version(node: Node) -> float | None:
    version = node.number()
    if version not in {None, 1.0}:
        node.problem(f"{node.shown()} is not known to this release; write 1")
    return version


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFile:
    """One file judges requests, makes the rules, draws the dashboards and grades a load test."""

    version: Annotated[float, Key(Kind(_format_version, {"const": 1}), "Of this format.")]
    period: Annotated[float, Key(DURATION, "Over which the budget is counted; every window scales with it.")]
    scrape_interval: Annotated[
        float, Key(DURATION, "Of Prometheus on the sidecar, and of the sidecar on the engine.")
    ] = 15.0
    first_token_timeout: Annotated[
        float,
        Key(DURATION, "No first token by then is bad for tpot, itl_p95, decode and availability; it cuts nothing."),
    ] = 60.0
    trust_request_start: Annotated[bool, Key(FLAG, "Whether the sender's x-request-start is time zero.")] = False
    source: Annotated[Source, Key(choice(Source), "Whose counts the rules are made of.")] = Source.SIDECAR
    engine: Annotated[ScrapedEngine, Key(section(ScrapedEngine))] = ScrapedEngine()
    tenants: Annotated[Tenants, Key(section(Tenants))] = Tenants()
    classes: Annotated[
        tuple[RequestClass, ...],
        Key(
            list_of(section(RequestClass), "names no class; write at least one, such as {name: all}"),
            "A known value of x-request-class wins, else the first whose bounds fit, else `other`.",
        ),
    ]
    slos: Annotated[
        tuple[Slo, ...],
        Key(list_of(section(Slo, _THRESHOLD_RULES), "names no SLO; write at least one"), "What is promised."),
    ]
    alerting: Annotated[Alerting, Key(section(Alerting))] = Alerting()

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every value of the label `class`, `other` last."""
        return (*(c.name for c in self.classes), OTHER)

    @property
    def tenant_names(self) -> tuple[str, ...]:
        """Every value of the label `tenant`, `other` last."""
        return (*self.tenants.allow, OTHER)

    def slos_of(self, class_name: str) -> tuple[Slo, ...]:
        return tuple(slo for slo in self.slos if class_name in slo.classes)

    def classify(self, header: str | None, prompt_tokens: float, max_tokens: float | None) -> str:
        """The class of a request: a known header value, else the first shape that fits, else `other`.

        `prompt_tokens` may be an estimate; a missing `max_tokens` counts as long output.
        """
        if header is not None and header in self.class_names:
            return header
        longest = float("inf") if max_tokens is None else max_tokens
        return next((c.name for c in self.classes if c.fits(prompt_tokens, longest)), OTHER)


def load(path: Path) -> SloFile:
    """Read the SLO file.

    Raises:
        FileError: every mistake in the file, each with line, path, what, why and what would work.
        UsageError: the file cannot be read.
    """
    return _parse(open_yaml(path))


def loads(text: str, source: str = "slos.yaml") -> SloFile:
    """Read an SLO file from text; raises as `load` does."""
    return _parse(parse_yaml(text, source))


def _parse(reader: Reader) -> SloFile:
    root = reader.node()
    file, keys = read(SloFile, root), root.mapping()
    _check_period(file, keys)
    class_places = keys["classes"].items() if file.classes else []
    slo_places = keys["slos"].items() if file.slos else []
    _check_names(class_places, [each.name for each in file.classes or ()], "class")
    _check_names(slo_places, [slo.name for slo in file.slos or ()], "SLO")
    class_names = [*(each.name for each in file.classes or () if each.name), OTHER]
    for place, slo in zip(slo_places, file.slos or (), strict=True):
        _check_slo(place, slo, class_names)
    allow = tuple(tenant for tenant in file.tenants.allow if tenant and tenant != OTHER)
    if file.alerting.per_tenant and not allow:
        keys["alerting"].problem("per_tenant has no tenant to tell apart; name some in tenants.allow or write false")
    reader.finish()
    alerting = file.alerting
    if "alerting" not in keys or "cold_start" not in keys["alerting"].mapping():
        # a lab has shorter windows
        alerting = replace(alerting, cold_start=min(alerting.cold_start, round(file.period / 8640, 3)))
    return replace(file, tenants=replace(file.tenants, allow=allow), alerting=alerting)


def _check_period(file: SloFile, keys: Mapping[str, Node]) -> None:
    period, scrape = file.period, file.scrape_interval
    if not period or any(problem.path == "scrape_interval" for problem in keys["period"].reader.problems):
        return
    # The fastest tier's short window is period / 720 / 12; fewer than 4 scrapes in it is noise, fewer than 2 is empty.
    if period / 8640 < 4 * scrape:
        keys["period"].problem(
            f"is too short for scrapes every {number(scrape)} s: the fastest burn window would be "
            f"{number(period / 8640)} s and must hold 4 scrapes; use a period of at least "
            f"{number(4 * scrape * 8640 / 3600)}h or a scrape_interval of at most {number(round(period / 34560, 3))}s"
        )


def _check_names(places: Iterable[Node], names: Iterable[str], what: str) -> None:
    earlier: set[str] = set()
    for place, name in zip(places, names, strict=True):
        if name in earlier:
            place.mapping()["name"].problem(f"{name!r} is the name of an earlier {what}; names must differ")
        if name:  # None after a mistake
            earlier.add(name)


def _check_slo(place: Node, slo: Slo, class_names: list[str]) -> None:
    """Whether its classes exist, and whether it has the threshold that its signal needs."""
    keys = place.mapping()
    earlier: set[str] = set()
    for item, name in zip(keys["classes"].items(), slo.classes, strict=True) if slo.classes else ():
        if name and name not in class_names:
            item.problem(f"no class is called {name!r}; {nearest(name, class_names)}")
        elif name in earlier:
            item.problem(f"{name!r} is given twice; keep one")
        elif name:
            earlier.add(name)
    if slo.measure is Measure.AVAILABILITY:
        if "threshold" in keys:
            keys["threshold"].problem("availability has no threshold; remove it or choose a latency signal")
    elif slo.measure and "threshold" not in keys:
        place.problem(f"threshold is missing: {slo.measure} is judged against a time; write one, such as threshold: 5s")
