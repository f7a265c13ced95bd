"""The SLO file: what counts as a good request, for which class of request, how often, over which period."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from exporters.quantities import number
from exporters.signals import OTHER
from exporters.yaml_reader import Node, Reader, nearest, open_yaml, parse_yaml

SHIPPED = Path(__file__).resolve().parents[1] / "alerts" / "slos.yaml"
"""The SLO file that comes with the program, in a checkout and in an installation."""


class Measure(StrEnum):
    """What an SLO judges; each is defined in README under "What is measured"."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL_P95 = "itl_p95"
    E2E = "e2e"
    QUEUE = "queue"
    PREFILL = "prefill"
    DECODE = "decode"
    AVAILABILITY = "availability"


class Unary(StrEnum):
    """What a streaming SLO does with a request that does not stream."""

    SKIP = "skip"
    E2E = "e2e"


class Rejected(StrEnum):
    """What a 429 or 503 is to an SLO."""

    BAD = "bad"
    EXCLUDE = "exclude"


class Source(StrEnum):
    """Whose counts the rules are made of."""

    SIDECAR = "sidecar"
    ENGINE = "engine"


VERSION = re.compile(r"v?\d+(\.\d+){1,3}")
"""How a release of vLLM is written."""

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_BOUND = re.compile(r"\s*(<=|>=|<|>)\s*(\d+)\s*")


@dataclass(frozen=True, slots=True)
class Bound:
    """A comparison such as `<512`, in tokens."""

    compare: str
    tokens: int

    def holds(self, tokens: float) -> bool:
        return _COMPARE[self.compare](tokens, self.tokens)

    def __str__(self) -> str:
        return f"{self.compare}{self.tokens}"


@dataclass(frozen=True, slots=True)
class RequestClass:
    """A shape of request; a missing bound accepts any size."""

    name: str
    prompt_tokens: Bound | None
    max_tokens: Bound | None

    def fits(self, prompt_tokens: float, max_tokens: float) -> bool:
        return (self.prompt_tokens is None or self.prompt_tokens.holds(prompt_tokens)) and (
            self.max_tokens is None or self.max_tokens.holds(max_tokens)
        )


@dataclass(frozen=True, slots=True)
class Slo:
    """An objective (0 to 1) for one measure over some classes; `threshold` in seconds, None for availability."""

    name: str
    classes: tuple[str, ...]
    measure: Measure
    threshold: float | None
    objective: float
    unary: Unary = Unary.SKIP
    rejected: Rejected = Rejected.BAD

    @property
    def budget(self) -> float:
        """The share of events that may be bad."""
        return round(1 - self.objective, 12)


@dataclass(frozen=True, slots=True)
class Tenants:
    """Which header names the tenant and which tenants are shown by name."""

    header: str
    allow: tuple[str, ...]

    def bounded(self, tenant: str | None) -> str:
        return tenant if tenant in self.allow and tenant is not None else OTHER


@dataclass(frozen=True, slots=True)
class Alerting:
    """Guards against needless pages; counts are of events on a tier's long window."""

    min_events_page: int = 50
    min_events_ticket: int = 100
    min_bad: int = 10
    per_tenant: bool = False
    cold_start: float = 300.0
    """Seconds for which pages are held back while an engine starts, and again once it answers."""


@dataclass(frozen=True, slots=True)
class ScrapedEngine:
    """What the rules must know of vLLM where there is no sidecar; no version is the newest that is known."""

    version: str | None = None
    job: str = "vllm"
    """The `job` under which Prometheus scrapes it."""


@dataclass(frozen=True, slots=True)
class SloFile:
    """All of the file; times in seconds."""

    period: float
    scrape_interval: float
    first_token_timeout: float
    trust_request_start: bool
    tenants: Tenants
    classes: tuple[RequestClass, ...]
    slos: tuple[Slo, ...]
    alerting: Alerting
    source: Source = Source.SIDECAR
    engine: ScrapedEngine = ScrapedEngine()

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


_KEYS = (
    "version",
    "period",
    "scrape_interval",
    "first_token_timeout",
    "trust_request_start",
    "source",
    "engine",
    "tenants",
    "classes",
    "slos",
    "alerting",
)


def _parse(reader: Reader) -> SloFile:
    root = reader.node()
    keys = root.fields(_KEYS, required=("version", "period", "classes", "slos"))
    if (version := keys.get("version")) and version.number() not in {None, 1.0}:
        version.problem(f"{version.quoted()} is not known to this release; write 1")

    def seconds(key: str, default: float) -> float:
        return (keys[key].duration() or default) if key in keys else default

    found = len(reader.problems)
    period = seconds("period", 30 * 86400.0)
    scrape = seconds("scrape_interval", 15.0)
    # The fastest tier's short window is period / 720 / 12; fewer than 4 scrapes in it is noise, fewer than 2 is empty.
    if "period" in keys and len(reader.problems) == found and period / 8640 < 4 * scrape:
        keys["period"].problem(
            f"is too short for scrapes every {number(scrape)} s: the fastest burn window would be "
            f"{number(period / 8640)} s and must hold 4 scrapes; use a period of at least "
            f"{number(4 * scrape * 8640 / 3600)}h or a scrape_interval of at most {number(round(period / 34560, 3))}s"
        )
    classes = _classes(keys.get("classes"))
    file = SloFile(
        period=period,
        scrape_interval=scrape,
        first_token_timeout=seconds("first_token_timeout", 60.0),
        trust_request_start=bool(keys["trust_request_start"].boolean()) if "trust_request_start" in keys else False,
        tenants=_tenants(keys.get("tenants")),
        classes=classes,
        slos=_slos(keys.get("slos"), [c.name for c in classes]),
        alerting=_alerting(keys.get("alerting"), period),
        source=Source((keys["source"].choice(list(Source)) if "source" in keys else None) or Source.SIDECAR),
        engine=_engine(keys.get("engine")),
    )
    if file.alerting.per_tenant and not file.tenants.allow:
        keys["alerting"].problem("per_tenant has no tenant to tell apart; name some in tenants.allow or write false")
    reader.finish()
    return file


def _bound(node: Node | None) -> Bound | None:
    if node is None:
        return None
    text = node.text() or ""
    if match := _BOUND.fullmatch(text):
        return Bound(match[1], int(match[2]))
    node.problem(f'{text!r} is no bound; write a comparison in quotes, such as "<512" or ">=2048"')
    return None


def _classes(node: Node | None) -> tuple[RequestClass, ...]:
    classes: list[RequestClass] = []
    for item in node.items() if node else []:
        keys = item.fields(("name", "prompt_tokens", "max_tokens"), required=("name",))
        name = keys["name"].name() if "name" in keys else None
        if name is None:
            continue
        if name == OTHER:
            keys["name"].problem(f"{OTHER!r} is the class of requests that fit no other; choose another name")
        elif any(c.name == name for c in classes):
            keys["name"].problem(f"{name!r} is the name of an earlier class; names must differ")
        classes.append(RequestClass(name, _bound(keys.get("prompt_tokens")), _bound(keys.get("max_tokens"))))
    if node and not classes:
        node.problem("names no class; write at least one, such as {name: all}")
    return tuple(classes)


def _slos(node: Node | None, class_names: list[str]) -> tuple[Slo, ...]:
    slos: list[Slo] = []
    for item in node.items() if node else []:
        keys = item.fields(
            ("name", "classes", "signal", "threshold", "objective", "unary", "rejected"),
            required=("name", "classes", "signal", "objective"),
        )
        name = keys["name"].name() if "name" in keys else None
        if name and any(slo.name == name for slo in slos):
            keys["name"].problem(f"{name!r} is the name of an earlier SLO; names must differ")
        measure = keys["signal"].choice(list(Measure)) if "signal" in keys else None
        threshold = keys["threshold"].duration() if "threshold" in keys else None
        if measure == Measure.AVAILABILITY and "threshold" in keys:
            keys["threshold"].problem("availability has no threshold; remove it or choose a latency signal")
        elif measure not in {None, Measure.AVAILABILITY} and "threshold" not in keys:
            item.problem(f"threshold is missing: {measure} is judged against a time; write one, such as threshold: 5s")
        unary = keys["unary"].choice(list(Unary)) if "unary" in keys else None
        rejected = keys["rejected"].choice(list(Rejected)) if "rejected" in keys else None
        slos.append(
            Slo(
                name=name or "",
                classes=_class_list(keys.get("classes"), class_names),
                measure=Measure(measure or Measure.AVAILABILITY),
                threshold=threshold,
                objective=_objective(keys.get("objective")),
                unary=Unary(unary or Unary.SKIP),
                rejected=Rejected(rejected or Rejected.BAD),
            )
        )
    if node and not slos:
        node.problem("names no SLO; write at least one")
    return tuple(slos)


def _class_list(node: Node | None, class_names: list[str]) -> tuple[str, ...]:
    found: list[str] = []
    for item in node.items() if node else []:
        name = item.text()
        if name is None:
            continue
        if name not in [*class_names, OTHER]:
            item.problem(f"no class is called {name!r}; {nearest(name, [*class_names, OTHER])}")
        elif name in found:
            item.problem(f"{name!r} is given twice; keep one")
        else:
            found.append(name)
    if node and not found and not node.reader.problems:
        node.problem("names no class, so the SLO would judge nothing; name at least one")
    return tuple(found)


def _objective(node: Node | None) -> float:
    if node is None:
        return 0.5
    text = node.text() or ""
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
    return 0.5


def _tenants(node: Node | None) -> Tenants:
    if node is None:
        return Tenants("x-tenant", ())
    keys = node.fields(("header", "allow"))
    header = keys["header"].text() if "header" in keys else None
    if header is not None and not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", header):
        keys["header"].problem(f"{header!r} is no HTTP header name; use letters, digits and -")
    allow = [item.text() for item in keys["allow"].items()] if "allow" in keys else []
    return Tenants((header or "x-tenant").lower(), tuple(name for name in allow if name and name != OTHER))


def _engine(node: Node | None) -> ScrapedEngine:
    keys = node.fields(("version", "job")) if node else {}
    version = keys["version"].text() if "version" in keys else None
    if version is not None and not VERSION.fullmatch(version):
        keys["version"].problem(f"{version!r} is no release of vLLM; write its number, such as 0.25 or v0.25.1")
    job = keys["job"].text() if "job" in keys else None
    return ScrapedEngine(version, job or ScrapedEngine().job)


def _alerting(node: Node | None, period: float) -> Alerting:
    default = Alerting(cold_start=min(Alerting().cold_start, round(period / 8640, 3)))  # a lab has shorter windows
    if node is None:
        return default
    keys = node.fields(("min_events", "min_bad", "per_tenant", "cold_start"))
    counts = keys["min_events"].fields(("page", "ticket")) if "min_events" in keys else {}

    def count(place: Node | None, fallback: int) -> int:
        value = place.number(least=1, whole=True) if place else None
        return fallback if value is None else int(value)

    return Alerting(
        min_events_page=count(counts.get("page"), default.min_events_page),
        min_events_ticket=count(counts.get("ticket"), default.min_events_ticket),
        min_bad=count(keys.get("min_bad"), default.min_bad),
        per_tenant=bool(keys["per_tenant"].boolean()) if "per_tenant" in keys else False,
        cold_start=(keys["cold_start"].duration() if "cold_start" in keys else None) or default.cold_start,
    )
