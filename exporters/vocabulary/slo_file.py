"""The SLO file: request classes, the SLOs of each class, the period and the alerting thresholds."""

import argparse
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from exporters.text.units import number, spell_duration
from exporters.text.yaml_keys import (
    COUNT,
    DURATION,
    FLAG,
    NAMED,
    TEXT,
    TIMEOUT,
    Key,
    Kind,
    Schema,
    Spread,
    choice,
    list_of,
    matched,
    one_or_list,
    read,
    section,
    text_of,
)
from exporters.text.yaml_reader import NAME, FileError, Node, Problem, Reader, nearest, parse_yaml, read_file
from exporters.vocabulary import signals
from exporters.vocabulary.alert_names import AlertName
from exporters.vocabulary.labels import ALERT_LABELS, SEVERITY, TARGET_LABELS, AlertLabels
from exporters.vocabulary.signals import GENERATING, MEASURED, OTHER, WARM_UP, Endpoint

SHIPPED = Path(__file__).resolve().parents[2] / "alerts" / "slos.yaml"
"""The default SLO file, in a checkout and in an installation."""

SIDECAR_JOB = "vllm-slo-sidecar"
"""The default scrape job of sidecars."""


class Measure(StrEnum):
    """The signal that an SLO judges."""

    TTFT = "ttft"
    TTFT_ANSWER = "ttft_answer"
    TPOT = "tpot"
    ITL_P95 = "itl_p95"
    E2E = "e2e"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    AVAILABILITY = "availability"
    VALID_OUTPUT = "valid_output"


HISTOGRAMS = {
    Measure.TTFT: signals.TTFT,
    Measure.TTFT_ANSWER: signals.TTFT_ANSWER,
    Measure.TPOT: signals.TPOT,
    Measure.ITL_P95: signals.INTER_CHUNK,
    Measure.E2E: signals.DURATION,
    Measure.QUEUE: signals.QUEUE,
    Measure.PREFILL: signals.PREFILL,
    Measure.DECODE: signals.DECODE,
}
"""The sidecar's histogram for each signal. That of itl_p95 counts gaps; all others count requests."""


class Unary(StrEnum):
    """How an SLO on a streaming signal judges a unary request."""

    SKIP = "skip"
    E2E = "e2e"


class Latency(msgspec.Struct, frozen=True, tag=True):
    """A time is good up to `threshold` (seconds)."""

    measure: Measure
    threshold: float
    unary: Unary = Unary.SKIP


class Availability(msgspec.Struct, frozen=True, tag=True):
    """Each response is good that does not fail."""

    measure: ClassVar = Measure.AVAILABILITY


class ValidOutput(msgspec.Struct, frozen=True, tag=True):
    """Output that has to be JSON is good if it is valid."""

    measure: ClassVar = Measure.VALID_OUTPUT


Sli = Latency | Availability | ValidOutput
"""How an SLO judges requests. Structs with a tag, since the supervisor sends the SLO file to its child processes."""

_SLIS_WITHOUT_THRESHOLD: dict[Measure, Sli] = {each.measure: each for each in (Availability(), ValidOutput())}


class Rejected(StrEnum):
    """How an SLO judges a 429 or 503."""

    BAD = "bad"
    EXCLUDE = "exclude"


class Source(StrEnum):
    """The exporter of the counters that the recording rules read."""

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


_FOREIGN = (
    ("OpenSLO", re.compile(r"^apiVersion:\s*['\"]?openslo(?:\.com)?/\S*", re.MULTILINE)),
    (
        "Sloth",
        re.compile(r"^(?:version:\s*['\"]?prometheus/v1|apiVersion:\s*['\"]?sloth\.slok\.dev/)\S*", re.MULTILINE),
    ),
)
"""The keys that identify SLO files of other programs."""

VERSION = re.compile(r"v?\d+(\.\d+){1,3}")
"""The version number of a vLLM release."""

_HEADER = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_BOUND = matched(
    r"\s*(<=|>=|<|>)\s*(\d+)\s*",
    lambda match: Bound(match[1], int(match[2])),
    'is not a valid bound; write a comparison in quotes, such as "<512" or ">=2048"',
)


def _class_name(node: Node) -> str | None:
    name = node.name()
    if name == OTHER:
        node.problem(f"{OTHER!r} is reserved for requests that fit no class; choose another name")
    if name == WARM_UP:
        node.problem(
            f"{WARM_UP!r} is reserved for requests that prepare an engine, which no SLO judges; choose another name"
        )
    return name


def _objective(node: Node) -> float | None:
    text = node.text()
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", text)
    percent = float(match[1]) if match else None
    if percent is None:
        node.problem(f"{text!r} is not a valid percentage; write {_as_percentage(text)}")
    elif percent >= 100:
        node.problem(f"{text} leaves no error budget, so the burn rate is undefined; write at most 99.9%")
    elif percent <= 0:
        node.problem(f"{text} is always met; write a percentage above 0%, such as 95%")
    else:
        return round(percent / 100, 12)
    return None


def _as_percentage(text: str) -> str:
    """The percentage that a number probably means: 95% for 0.95 and for 95."""
    share = float(text) if re.fullmatch(r"\d+(?:\.\d+)?", text) else 0.0
    if not 0 < share < 100 or share == 1:
        return "one such as 99.5%"
    return f"{number(share if share > 1 else round(100 * share, 9))}%"


_ENDPOINTS = one_or_list(
    choice(MEASURED, "is not a route with SLO events"),
    "is empty; name at least one route, or remove it for any",
)
_SCRAPE_JOBS = one_or_list(TEXT, "is empty; name at least one scrape job")
# a title is part of the templates of alerts and of the tables of reports
_TITLE = matched(
    r"[^\s{}|\"$`\\][^\n{}|\"$`\\]{0,39}",
    lambda match: match[0],
    'is not a valid title; write up to 40 characters without { } | " $ ` \\, such as short in, short out',
)
_CLASS_NAME = Kind(_class_name, text_of(rf"(?!(?:{OTHER}|{WARM_UP})$){NAME.pattern}"))
_OBJECTIVE = Kind(_objective, text_of(r"\s*(?!0+(\.0+)?\s*%)0*\d{1,2}(\.\d+)?\s*%\s*"))
_THRESHOLD_RULES: Schema = {
    "if": {"properties": {"signal": {"enum": list(_SLIS_WITHOUT_THRESHOLD)}}, "required": ["signal"]},
    "then": {"properties": {"threshold": False}},
    "else": {"required": ["threshold"]},
}
"""All other signals need a threshold."""


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A class of requests by size and route; a missing key accepts any."""

    name: Annotated[str, _CLASS_NAME]
    """Name of the class; the value of the label `class`."""
    prompt_tokens: Annotated[Bound | None, _BOUND] = None
    """Bound on prompt tokens, such as "<512"; estimated as characters / 4."""
    max_tokens: Annotated[Bound | None, _BOUND] = None
    """Bound on max_tokens, such as "<=512"; without max_tokens it is infinite."""
    route: Annotated[tuple[Endpoint, ...] | None, _ENDPOINTS] = None
    """Route of the requests, or a list of routes."""
    cut_after: Annotated[float | None, DURATION] = None
    """Time after which the relay ends an open request of the class, with the outcome timeout_total."""
    title: Annotated[str | None, _TITLE] = None
    """What dashboards, pages and reports add to the name, such as short in, short out."""

    def fits(self, prompt_tokens: float, max_tokens: float, endpoint: Endpoint) -> bool:
        return (
            (self.prompt_tokens is None or self.prompt_tokens.admits(prompt_tokens))
            and (self.max_tokens is None or self.max_tokens.admits(max_tokens))
            and (self.route is None or endpoint in self.route)
        )


@dataclass(frozen=True, slots=True)
class _SliKeys:
    measure: Annotated[Measure | None, Key(choice(Measure), name="signal")]
    """Signal that the SLO judges."""
    threshold: Annotated[float | None, DURATION] = None
    """Highest value that is good."""
    unary: Annotated[Unary, choice(Unary)] = Unary.SKIP
    """How an SLO on ttft, ttft_answer, tpot or itl_p95 judges unary requests."""


def _sli(keys: _SliKeys, place: Node) -> Sli | None:
    if keys.measure is None:
        return None
    written = place.mapping().get("threshold")
    if (sli := _SLIS_WITHOUT_THRESHOLD.get(keys.measure)) is not None:
        if written:
            written.problem(f"{keys.measure} takes no threshold; remove it or choose a latency signal")
        return sli
    if not written:
        place.problem(f"threshold is missing; {keys.measure} needs one, such as threshold: 5s")
    return None if keys.threshold is None else Latency(keys.measure, keys.threshold, keys.unary)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """An SLO: the share of requests of some classes that must be good by one signal."""

    name: Annotated[str, NAMED]
    """Name of the SLO; the value of the label `slo`."""
    classes: Annotated[tuple[str, ...], list_of(Kind(Node.text, NAMED.schema), "is empty; name at least one class")]
    """Classes that the SLO applies to; `other` is allowed."""
    sli: Annotated[Sli, Spread(_SliKeys, _sli)]
    objective: Annotated[float, _OBJECTIVE]
    """Share of events that must be good, such as 99.5%."""
    rejected: Annotated[Rejected, choice(Rejected)] = Rejected.BAD
    """Whether a status 429 or 503 is a bad event or none."""
    labels: Annotated[AlertLabels, ALERT_LABELS] = ()
    """Labels of the alerts of this SLO; they replace those of the file."""

    @property
    def measure(self) -> Measure:
        return self.sli.measure

    @property
    def budget(self) -> float:
        """The error budget: the share of events that may be bad."""
        return round(1 - self.objective, 12)


@dataclass(frozen=True, slots=True)
class Tenants:
    """The request header with the tenant, and the tenants that are label values."""

    header: Annotated[
        str, matched(_HEADER, lambda match: match[0].lower(), "is not a valid header name; use letters, digits and -")
    ] = "x-tenant"
    """HTTP header with the name of the tenant."""
    allow: Annotated[tuple[str, ...], list_of(TEXT)] = ()
    """Tenants with their own label value, else `other`."""

    def bounded(self, tenant: str | None) -> str:
        return tenant if tenant in self.allow and tenant is not None else OTHER


@dataclass(frozen=True, slots=True)
class MinEvents:
    """Minimum number of events in the long window of a tier."""

    page: Annotated[int, COUNT] = 50
    """Minimum for a page."""
    ticket: Annotated[int, COUNT] = 100
    """Minimum for a ticket."""


@dataclass(frozen=True, slots=True)
class Severities:
    """The values of the label `severity`."""

    page: Annotated[str, SEVERITY] = "page"
    """Value for pages."""
    ticket: Annotated[str, SEVERITY] = "ticket"
    """Value for tickets."""


class AlertSeverity(StrEnum):
    """The severities that the file can give to an alert."""

    PAGE = "page"
    TICKET = "ticket"


@dataclass(frozen=True, slots=True)
class AlertOverride:
    """What the file changes of one alert."""

    severity: Annotated[AlertSeverity | None, choice(AlertSeverity)] = None
    """Severity of the alert, instead of its own."""
    pending_for: Annotated[float | None, Key(DURATION, name="for")] = None
    """How long the condition must hold before the alert fires."""
    labels: Annotated[AlertLabels, ALERT_LABELS] = ()
    """Labels of the alert, besides those of the file and SLO."""
    enabled: Annotated[bool, FLAG] = True
    """Whether the alert is rendered."""


_OVERRIDE = section(AlertOverride)


def _overrides(node: Node) -> tuple[tuple[AlertName, AlertOverride], ...] | None:
    if not node.is_mapping:
        example = f"{{{AlertName.SIDECAR_DOWN}: {{severity: ticket}}}}"
        node.problem(f"expected a mapping, found {node.quoted()}; write names of alerts, such as {example}")
        return None
    overrides = []
    for name, place in node.mapping().items():
        if name not in set(AlertName):
            place.problem(f"{name!r} is not an alert; {nearest(name, AlertName)}")
        override = _OVERRIDE.read(place) or AlertOverride()
        if name == AlertName.WATCHDOG and override.severity:
            place.mapping()["severity"].problem(
                f"{name} always fires, for a dead man's switch, so it cannot be a {override.severity}; remove severity"
            )
        if name in set(AlertName):
            overrides.append((AlertName(name), override))
    return tuple(overrides)


_OVERRIDES = Kind(
    _overrides,
    {
        "type": "object",
        "propertyNames": {"enum": [str(name) for name in AlertName]},
        "additionalProperties": _OVERRIDE.schema,
        "default": {},
    },
)


def _share(node: Node) -> float | None:
    text = node.text()
    match = re.fullmatch(_SHARE, text or "")
    if text is None:
        return None
    if match:
        share = float(match[1]) / 100 if match[1] else int(match[2]) / int(match[3])
        if 0 < share <= 1:
            return share
    node.problem(f"{text!r} is not a share of replicas; write a fraction or a percentage, such as 2/3, 50% or 100%")
    return None


_SHARE = r"(\d+(?:\.\d+)?)\s*%|(\d+)/([1-9]\d*)"


def _cold_starts(node: Node) -> tuple[tuple[str, float], ...] | None:
    if not node.is_mapping:
        node.problem(f"expected a mapping, found {node.quoted()}; write models, such as {{org/large: 45m}}")
        return None
    limits = ((model, DURATION.read(place)) for model, place in node.mapping().items())
    return tuple((model, limit) for model, limit in limits if limit is not None)


@dataclass(frozen=True, slots=True)
class Alerting:
    """Settings that prevent unnecessary alerts."""

    min_events: Annotated[MinEvents, section(MinEvents)] = MinEvents()
    min_bad: Annotated[int, COUNT] = 10
    """Minimum number of bad events in the long window of a tier."""
    per_tenant: Annotated[bool, FLAG] = False
    """Whether each tenant of tenants.allow gets rules and pages."""
    cold_start: Annotated[float, DURATION] = 1800.0
    """How long an engine may take to start; after that it counts as down. By default at most period / 336."""
    cold_start_of: Annotated[
        tuple[tuple[str, float], ...],
        Kind(_cold_starts, {"type": "object", "additionalProperties": DURATION.schema, "default": {}}),
    ] = ()
    """The same for single models, such as {org/large: 45m}."""
    min_serving: Annotated[float, Kind(_share, {**text_of(_SHARE), "default": "2/3"})] = 2 / 3
    """Share of the replicas of a model that must serve, such as 2/3 or 50%: LLMSidecarDown, LLMEngineDown and
    LLMEngineWedged page if fewer serve, and else raise a ticket."""
    severities: Annotated[Severities, section(Severities)] = Severities()
    alerts: Annotated[tuple[tuple[AlertName, AlertOverride], ...], _OVERRIDES] = ()
    """Changes of single alerts by name, such as {LLMSidecarDown: {severity: ticket, for: 10m}}."""


@dataclass(frozen=True, slots=True)
class ScrapedEngine:
    """The scraped vLLM, for rules with `source: engine`."""

    version: Annotated[
        str | None,
        matched(
            VERSION.pattern,
            lambda match: match[0],
            "is not a vLLM release; write a version number, such as 0.25 or v0.25.1",
            type=["string", "number"],
        ),
    ] = None
    """vLLM release, such as 0.25; the default is the newest known release."""
    job: Annotated[str, TEXT] = "vllm"
    """Prometheus scrape job of vLLM."""


def _format_version(node: Node) -> float | None:
    version = node.number()
    if version not in {None, 1.0}:
        node.problem(f"{node.quoted()} is not supported; write 1")
    return version


@dataclass(frozen=True, slots=True, kw_only=True)
class SloFile:
    """The SLO file, which configures the sidecar, rules, dashboards and the grading of load tests."""

    version: Annotated[float, Kind(_format_version, {"const": 1})]
    """Version of the file format."""
    period: Annotated[float, DURATION]
    """Period of the error budget; all alerting windows scale with it."""
    scrape_interval: Annotated[float, DURATION] = 15.0
    """Interval at which Prometheus scrapes the sidecar and the sidecar scrapes the engine."""
    first_token_timeout: Annotated[float, TIMEOUT] = 60.0
    """A request without a first token by then is bad for tpot, itl_p95, decode and availability; it stays open."""
    trust_request_start: Annotated[bool, FLAG] = False
    """Whether latencies count from the x-request-start header instead of the arrival."""
    scrape_job: Annotated[tuple[str, ...], _SCRAPE_JOBS] = (SIDECAR_JOB,)
    """Prometheus scrape job of the sidecars, or a list of jobs."""
    group_by: Annotated[tuple[str, ...], TARGET_LABELS] = ()
    """Labels of targets, such as cluster; each combination of values has its own rules and alerts."""
    source: Annotated[Source, choice(Source)] = Source.SIDECAR
    """Exporter of the counters in recording rules."""
    engine: Annotated[ScrapedEngine, section(ScrapedEngine)] = ScrapedEngine()
    tenants: Annotated[Tenants, section(Tenants)] = Tenants()
    classes: Annotated[
        tuple[RequestClass, ...],
        list_of(section(RequestClass), "is empty; write at least one class, such as {name: all}"),
    ]
    """Request classes. The x-request-class header selects the class, else the first that fits, else `other`."""
    slos: Annotated[tuple[Slo, ...], list_of(section(Slo, _THRESHOLD_RULES), "is empty; write at least one SLO")]
    """The SLOs."""
    alerting: Annotated[Alerting, section(Alerting)] = Alerting()
    labels: Annotated[AlertLabels, ALERT_LABELS] = ()
    """Labels of all alerts, such as {team: ml}."""

    @property
    def first_token_rule(self) -> str:
        """The first-token timeout for reports."""
        if self.first_token_timeout == inf:
            return "no first-token timeout"
        return f"first-token timeout of {spell_duration(self.first_token_timeout)}"

    @property
    def class_names(self) -> tuple[str, ...]:
        """Every value of the label `class`, `other` last."""
        return (*(c.name for c in self.classes), OTHER)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """These names of classes as in the file, and then those that it does not have."""
        places = {name: place for place, name in enumerate(self.class_names)}
        return sorted(names, key=lambda name: (places.get(name, len(places)), name))

    @property
    def class_titles(self) -> dict[str, str]:
        """The titles of the classes that have one, by name."""
        return {each.name: each.title for each in self.classes if each.title}

    def class_notes(self, names: Iterable[str]) -> list[str]:
        """A note for reports with the titles of these classes, if they have any."""
        titled = [f"{name}: {self.class_titles[name]}" for name in names if name in self.class_titles]
        return [f"Classes: {'; '.join(titled)}."] if titled else []

    @property
    def tenant_names(self) -> tuple[str, ...]:
        """Every value of the label `tenant`, `other` last."""
        return (*self.tenants.allow, OTHER)

    @property
    def down_after(self) -> float:
        """Seconds without a successful scrape after which a target counts as down.

        Four scrapes, as one may be lost; at least 10 s, as a supervisor restarts a process within a few seconds.
        """
        return max(4 * self.scrape_interval, 10.0)

    def start_limit(self, models: Iterable[str] = ()) -> float:
        """How long an engine with these models may take to start, in seconds; the longest limit if none is known."""
        limits, usual = dict(self.alerting.cold_start_of), self.alerting.cold_start
        allowed = [limits.get(model, usual) for model in models] or [usual, *limits.values()]
        return max(*allowed, self.down_after)

    def slos_of(self, class_name: str) -> tuple[Slo, ...]:
        return tuple(slo for slo in self.slos if class_name in slo.classes)

    def classify(self, header: str | None, prompt_tokens: float, max_tokens: float | None, endpoint: Endpoint) -> str:
        """The class of a request: a known header value or `warm-up`, else the first class that fits, else `other`.

        `prompt_tokens` may be an estimate; a missing `max_tokens` counts as unlimited, or as 0 without a completion.
        """
        if header is not None and (header in self.class_names or header == WARM_UP):
            return header
        if max_tokens is None:
            max_tokens = inf if endpoint in GENERATING else 0
        for request_class in self.classes:
            if request_class.fits(prompt_tokens, max_tokens, endpoint):
                return request_class.name
        return OTHER


def add_flag(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--slos", type=Path, default=SHIPPED, metavar="FILE", help="SLO file (default: the shipped one)"
    )


def open_slos(path: Path) -> Reader:
    """Parse an SLO file into nodes with positions; raises as `load` does."""
    return _parse_nodes(read_file(path), str(path))


def load(path: Path) -> SloFile:
    """Read the SLO file.

    Raises:
        FileError: all mistakes in the file, each with line, path, reason and fix.
        UsageError: the file cannot be read.
    """
    return parse(open_slos(path))


def loads(text: str, source: str = "slos.yaml") -> SloFile:
    """Read an SLO file from text; raises as `load` does."""
    return parse(_parse_nodes(text, source))


def _parse_nodes(text: str, source: str) -> Reader:
    """Other programs' files first: they may hold several documents, which this format has not."""
    for program, pattern in _FOREIGN:
        if match := pattern.search(text):
            key, line = match[0].partition(":")[0], text.count("\n", 0, match.start()) + 1
            problem = (
                f"this is an SLO file of {program}, which has queries instead of classes and signals; write each of "
                "its objectives as an entry of slos, starting from a copy of alerts/slos.yaml, as in docs/slo-file.md"
            )
            raise FileError(source, [Problem(line, 1, key, problem, len(match[0]))], text)
    return parse_yaml(text, source)


def parse(reader: Reader) -> SloFile:
    """Read an SLO file, or a section of another file in its format; raises as `load` does."""
    root = reader.node()
    file, keys = read(SloFile, root), root.mapping()
    _check_period(file, keys)
    class_places = keys["classes"].items() if file.classes else []
    slo_places = keys["slos"].items() if file.slos else []
    _check_names(class_places, [each.name for each in file.classes or ()], "class")
    _check_names(slo_places, [slo.name for slo in file.slos or ()], "SLO")
    class_names = [*(each.name for each in file.classes or () if each.name), OTHER]
    for place, slo in zip(slo_places, file.slos or (), strict=True):
        _check_classes(place, slo, class_names)
    allow = tuple(tenant for tenant in file.tenants.allow if tenant and tenant != OTHER)
    if file.alerting.per_tenant and not allow:
        keys["alerting"].problem("per_tenant needs tenants; list them in tenants.allow or write false")
    alerting_keys = keys["alerting"].mapping() if "alerting" in keys else {}
    overrides = alerting_keys["alerts"].mapping().values() if "alerts" in alerting_keys else ()
    for labels in (keys.get("labels"), *(each.mapping().get("labels") for each in (*slo_places, *overrides))):
        _check_labels(labels, file.group_by)
    severities = file.alerting.severities
    if len({severities.page, severities.ticket, "none"}) < 3:
        keys["alerting"].mapping()["severities"].problem(
            "page and ticket need different values, and none is that of the Watchdog"
        )
    reader.finish()
    alerting = file.alerting
    if "alerting" not in keys or "cold_start" not in keys["alerting"].mapping():
        # short periods, as in a lab, have shorter windows
        alerting = replace(alerting, cold_start=min(alerting.cold_start, round(file.period / 336, 3)))
    return replace(file, tenants=replace(file.tenants, allow=allow), alerting=alerting)


def _check_period(file: SloFile, keys: Mapping[str, Node]) -> None:
    period, scrape = file.period, file.scrape_interval
    if not period or any(problem.path == "scrape_interval" for problem in keys["period"].reader.problems):
        return
    # The short window of the fastest tier is period / 720 / 12; it needs 2 scrapes for a rate and 4 against noise.
    if period / 8640 < 4 * scrape:
        keys["period"].problem(
            f"is too short for a scrape interval of {number(scrape)} s: the shortest burn rate window would be "
            f"{number(period / 8640)} s and needs 4 scrapes; use a period of at least "
            f"{number(4 * scrape * 8640 / 3600)}h or a scrape_interval of at most {number(round(period / 34560, 3))}s"
        )


def _check_names(places: Iterable[Node], names: Iterable[str], what: str) -> None:
    earlier: set[str] = set()
    for place, name in zip(places, names, strict=True):
        if name in earlier:
            place.mapping()["name"].problem(f"{name!r} is the name of another {what}; names must be unique")
        if name:  # None after a mistake
            earlier.add(name)


def _check_labels(place: Node | None, group_by: Iterable[str]) -> None:
    for name, value in place.mapping().items() if place else ():
        if name in group_by:
            value.problem(f"{name!r} is in group_by, so each alert has it from its targets; choose another name")


def _check_classes(place: Node, slo: Slo, class_names: list[str]) -> None:
    """Check that its classes exist."""
    earlier: set[str] = set()
    for item, name in zip(place.mapping()["classes"].items(), slo.classes, strict=True) if slo.classes else ():
        if name and name not in class_names:
            item.problem(f"{name!r} is not a class of this file; {nearest(name, class_names)}")
        elif name in earlier:
            item.problem(f"{name!r} is listed twice; keep one")
        elif name:
            earlier.add(name)
