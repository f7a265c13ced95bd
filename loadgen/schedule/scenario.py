"""A scenario file: the request classes, their shares, and the phases with their rates."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from exporters.text.yaml_keys import COUNT, DURATION, FLAG, NAMED, TEXT, Key, Kind, list_of, read, section
from exporters.text.yaml_reader import Node, Reader, find_built_in, nearest, open_yaml
from exporters.vocabulary.signals import WARM_UP
from loadgen.schedule.phases import NOT_NEGATIVE, POSITIVE, AtOnce, OpenLoop, Phase, read_phase

SHIPPED = Path(__file__).parents[1] / "scenarios"


@dataclass(frozen=True, slots=True)
class TokenRange:
    """A number of tokens, drawn uniformly from `least` to `most`, both included."""

    least: Annotated[int, Key(COUNT, name="min")]
    most: Annotated[int, Key(COUNT, name="max")]


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A time in seconds, drawn uniformly from `least` to `most`."""

    least: Annotated[float, Key(DURATION, name="min")]
    most: Annotated[float, Key(DURATION, name="max")]


_Range = TypeVar("_Range", TokenRange, TimeRange)


def _range(read_as: type[_Range]) -> Kind[_Range]:
    def read_range(node: Node) -> _Range:
        found = read(read_as, node)
        if found.least and found.most and found.most < found.least:
            least, most = (node.mapping()[key] for key in ("min", "max"))
            most.problem(f"max {most.quoted()} is below min {least.quoted()}")
        return found

    return Kind(read_range, {})


_TOKEN_RANGE = _range(TokenRange)


@dataclass(frozen=True, slots=True)
class Starters:
    """Beginnings that conversations share, such as system prompts: `count` of them, `tokens` long.

    Their popularity follows a Zipf law: the starter of rank r is drawn in proportion to r^-`exponent`.
    """

    count: Annotated[int, COUNT]
    tokens: Annotated[TokenRange, _TOKEN_RANGE]
    exponent: Annotated[float, NOT_NEGATIVE] = 1.0


@dataclass(frozen=True, slots=True)
class Conversation:
    """The turns of a conversation: each sends all earlier prompts and answers again, then its own prompt.

    A turn is due `think_time` after the end of the turn before; the rate of a phase counts conversations, not turns.
    """

    turns: Annotated[TokenRange, _TOKEN_RANGE]
    think_time: Annotated[TimeRange, _range(TimeRange)]
    starters: Annotated[Starters | None, section(Starters)] = None


def _tenants(node: Node) -> Mapping[str, float] | None:
    """A tenant, or the weights of several."""
    if not node.is_mapping:
        name = node.text()
        return None if name is None else {name: 1.0}
    found = {name: POSITIVE.read(weight) or 0.0 for name, weight in node.entries()}
    if not found:
        node.problem("has no tenant; write a name, or weights such as {team-a: 3, team-b: 1}")
    return found


_JSON_FIELDS = frozenset({"response_format", "structured_outputs", "tools"})
_OWN_FIELDS = ("model", "messages", "prompt", "max_tokens", "ignore_eos", "stream", "stream_options", "priority")


def _extra_body(node: Node) -> Mapping[str, Any] | None:
    """Fields of the body that the load generator does not set itself."""
    for name, item in node.mapping().items():
        if name in _OWN_FIELDS:
            item.problem(f"{name} is set by the load generator; remove it")
    value: dict[str, Any] | None = node.plain() if node.is_mapping else None
    return value


@dataclass(frozen=True, slots=True)
class Shape:
    """One request class: its relative share, its prompt tokens, and the tokens that the engine generates.

    With `document`, the prompt begins with a document of the corpus. With `conversation`, `prompt_tokens` and
    `output_tokens` are those of each turn. With `prompts`, the requests repeat so many different prompts, each with an
    output length of its own. `timeout` replaces that of the scenario, in seconds from the due time to the end. `tenant`
    has the weights of the tenants; `priority` is sent to the engine, which serves lower values first. `extra_body` has
    more fields of the request body, such as `response_format` or `tools`, with which the answers must be JSON.
    """

    share: Annotated[float, NOT_NEGATIVE]
    prompt_tokens: Annotated[TokenRange, _TOKEN_RANGE]
    output_tokens: Annotated[TokenRange, _TOKEN_RANGE]
    document: Annotated[bool, FLAG] = False
    conversation: Annotated[Conversation | None, section(Conversation)] = None
    prompts: Annotated[int | None, COUNT] = None
    timeout: Annotated[float | None, DURATION] = None
    tenant: Annotated[Mapping[str, float] | None, Kind(_tenants, {})] = None
    priority: Annotated[int | None, Kind(Node.whole, {})] = None
    extra_body: Annotated[Mapping[str, Any] | None, Kind(_extra_body, {})] = None

    @property
    def asks_for_json(self) -> bool:
        return not _JSON_FIELDS.isdisjoint(self.extra_body or ())


def _shapes(node: Node) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    has_corpus = "corpus" in node.reader.node().mapping()
    for name, item in node.entries():
        if name in shapes:
            item.problem(f"class {name!r} is defined twice; keep one")
        if name == WARM_UP:
            item.problem(f"{WARM_UP!r} is reserved for requests that prepare an engine; choose another name")
        shapes[name] = read(Shape, item)
        if shapes[name].prompts is not None and "conversation" in item.mapping():
            item.mapping()["prompts"].problem("cannot be combined with conversation; keep one")
        if shapes[name].document and not has_corpus:
            item.mapping()["document"].problem("needs a corpus; add one, such as corpus: [800, 3500]")
    if not node.reader.problems and not any(shape.share > 0 for shape in shapes.values()):
        node.problem("no class has a share above 0; set one, such as share: 1")
    return shapes


def _phases(node: Node) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    root = node.reader.node().mapping()
    classes = [*root["classes"].mapping()] if "classes" in root else []
    for item in node.items():
        phase = read_phase(item)
        if phase.name and any(phase.name == earlier.name for earlier in phases):
            item.mapping()["name"].problem(f"phase {phase.name!r} is defined twice; names must be unique")
        if isinstance(phase, OpenLoop | AtOnce):
            for name in (name for name in phase.shares or () if name not in classes):
                item.mapping()["shares"].problem(f"{name!r} is not a class; {nearest(name, classes)}")
        phases.append(phase)
    if not phases and not node.reader.problems:
        node.problem("has no phase; add one, such as {name: steady, duration: 2m, rate: 4}")
    return tuple(phases)


def _fraction(node: Node) -> float | None:
    value = node.number(least=0)
    if value is not None and value > 1:
        node.problem(f"{node.quoted()} is not a share; write a number from 0 to 1")
    return value


_FRACTION = Kind(_fraction, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """The whole file; times in seconds, `corpus` has the tokens of each shared document, `shapes` is by class name."""

    name: Annotated[str, NAMED]
    description: Annotated[str, TEXT] = ""
    seed: Annotated[int, Kind(lambda node: node.whole(least=0), {})] = 0
    timeout: Annotated[float, DURATION] = 180.0
    stream_share: Annotated[float, _FRACTION] = 0.9
    chat_share: Annotated[float, _FRACTION] = 0.9
    corpus: Annotated[tuple[int, ...], list_of(COUNT, "is empty; write sizes in tokens, such as [800, 3500]")] = ()
    shapes: Annotated[Mapping[str, Shape], Key(Kind(_shapes, {}), name="classes")]
    phases: Annotated[tuple[Phase, ...], Kind(_phases, {})]

    @property
    def timeouts(self) -> dict[str, float]:
        """The timeout of each class that has its own, in seconds."""
        return {name: shape.timeout for name, shape in self.shapes.items() if shape.timeout is not None}

    @property
    def shares(self) -> dict[str, float]:
        """The share of each class in the requests, with a sum of 1."""
        total = sum(shape.share for shape in self.shapes.values())
        return {name: shape.share / total for name, shape in self.shapes.items()}


def find(name: str) -> Path:
    """The file of a scenario, by path or by the name of a built-in scenario.

    Raises:
        UsageError: there is no such scenario.
    """
    return find_built_in(name, SHIPPED, "scenario")


def load(path: Path) -> Scenario:
    """Read a scenario.

    Raises:
        FileError: every mistake in the file.
        UsageError: the file cannot be read.
    """
    return parse(open_yaml(path))


def parse(reader: Reader) -> Scenario:
    """Read a scenario, or a section of another file in its format.

    Raises:
        FileError: every mistake.
    """
    scenario = read(Scenario, reader.node())
    reader.finish()
    return scenario
