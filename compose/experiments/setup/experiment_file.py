"""An experiment file: engine configurations, and the requests that each of them is measured under."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import yaml

from compose.experiments.setup.cell_store import Criterion, ExpectedFigure, Prediction
from compose.experiments.setup.file_sections import CRITERION, EXPECTED, FIND_MAX, PREDICTION, SWEEP, SearchLimits, grid
from compose.experiments.setup.level import PHASES, Level, levels
from compose.experiments.setup.pools import ONE_ENGINE, Pools, PoolsKeys, check_classes, read_pools
from compose.lab import rewrite_config
from exporters.text.errors import UsageError
from exporters.text.yaml_keys import COUNT, DURATION, NAMED, TEXT, Kind, Spread, distinct_list_of, list_of, read
from exporters.text.yaml_reader import NAME, FileError, Node, Reader, built_in_names, find_built_in, nearest, open_yaml
from exporters.vocabulary import slo_file
from loadgen.schedule import scenario
from loadgen.schedule.phases import POSITIVE, ClosedLoop
from loadgen.schedule.scenario import Scenario
from loadgen.search.rate_search import Limits

SHIPPED = Path(__file__).parents[1] / "scenarios"
DEFAULT_SLOS = rewrite_config.COMPOSE_DIRECTORY / "slos.yaml"


@dataclass(frozen=True, slots=True)
class Load:
    """A load scenario, as plain YAML and as it is read."""

    plain: Mapping[str, Any]
    scenario: Scenario


def _flags(node: Node) -> Mapping[str, str]:
    flags: dict[str, str] = {}
    for name, value in node.entries():
        text = value.text()
        plain = name.lstrip("-").replace("_", "-")
        if name != plain:
            value.problem(f"{name!r} is not the name of a flag; write {plain!r}")
        elif name in flags:
            value.problem("duplicate key; keep one")
        elif text is not None:
            flags[name] = text
    return flags


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The flags of an engine, by vLLM's names without dashes, and the preset of the simulator.

    `warm_up` is the largest wave of its warm-up, `pools` are empty for a single engine.
    """

    preset: Annotated[str | None, TEXT] = None
    flags: Annotated[Mapping[str, str] | None, Kind(_flags, {})] = None
    warm_up: Annotated[int | None, COUNT] = None
    pools: Annotated[Pools, Spread(PoolsKeys, read_pools)] = ()

    def over(self, defaults: "Engine") -> "Engine":
        """This engine, with defaults for what it does not set."""
        return Engine(
            preset=self.preset or defaults.preset,
            flags={**(defaults.flags or {}), **(self.flags or {})},
            warm_up=self.warm_up or defaults.warm_up,
            pools=self.pools or defaults.pools or ONE_ENGINE,
        )


def _load(node: Node) -> Load | None:
    try:
        if node.is_mapping:
            return Load(node.plain(), scenario.parse(node.as_file()))
        if (name := node.text()) is None:
            return None
        path = scenario.find(name)
        return Load(open_yaml(path).node().plain(), scenario.load(path))
    except FileError as error:
        if not node.is_mapping:  # the mistakes of a mapping are already those of this file
            node.problem(f"has mistakes: {error}")
    except UsageError as error:
        node.problem(str(error))
    return None


def _slos(node: Node) -> str | None:
    """The section as the text of an SLO file."""
    try:
        slo_file.parse(node.as_file())
    except FileError:  # the mistakes are already those of this file
        return None
    return yaml.safe_dump(node.plain(), sort_keys=False, width=120)


def _configurations(node: Node) -> Mapping[str, Engine]:
    found: dict[str, Engine] = {}
    for name, item in node.entries():
        if not NAME.fullmatch(name):
            item.problem(
                f"{name!r} is not a valid name; use lower-case letters, digits, - and _, starting with a letter"
            )
        if name in found:
            item.problem(f"configuration {name!r} is defined twice; keep one")
        found[name] = read(Engine, item)
    if not found and not node.reader.problems:
        node.problem("has no configuration; add one, such as base: {}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    configurations: Annotated[Mapping[str, Engine] | None, Kind(_configurations, {})] = None
    sweep: Annotated[Mapping[str, tuple[str, ...]] | None, SWEEP] = None


def _measured(found: _Measured, node: Node) -> Mapping[str, Engine]:
    """The configurations of the file, or the cells of its sweep."""
    keys = node.mapping()
    if ("configurations" in keys) == ("sweep" in keys):
        node.problem("needs either configurations or a sweep; write one of them")
    if "sweep" in keys and "find_max" not in keys:
        keys["sweep"].problem("ranks its cells by their largest rate; add find_max, or list configurations instead")
    return found.configurations or {name: Engine(flags=flags) for name, flags in grid(found.sweep or {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """The keys of the file; times in seconds, `rates` in requests/s with all turns of conversations.

    `concurrencies` are numbers of users of a closed loop.
    """

    name: Annotated[str, NAMED]
    source: Annotated[str, TEXT]
    description: Annotated[str, TEXT]
    engine: Annotated[Engine, Kind(lambda node: read(Engine, node), {})] = Engine()
    configurations: Annotated[Mapping[str, Engine], Spread(_Measured, _measured)]
    load: Annotated[Load, Kind(_load, {})]
    rates: Annotated[
        tuple[float, ...], distinct_list_of(POSITIVE, "is empty; write rates in requests/s, such as [1, 2]")
    ] = ()
    concurrencies: Annotated[
        tuple[int, ...], distinct_list_of(COUNT, "is empty; write numbers of users, such as [10, 50]")
    ] = ()
    requests: Annotated[int | None, COUNT] = None
    find_max: Annotated[SearchLimits | None, FIND_MAX] = None
    repeats: Annotated[int, COUNT] = 1
    max_concurrency: Annotated[int | None, COUNT] = None
    warm_up: Annotated[int | None, COUNT] = None
    cool_down: Annotated[float, DURATION] = 0.0
    slos: Annotated[str, Kind(_slos, {})] = ""
    predictions: Annotated[tuple[Prediction, ...], list_of(PREDICTION)] = ()
    expected: Annotated[tuple[ExpectedFigure, ...], list_of(EXPECTED)] = ()
    score: Annotated[tuple[Criterion, ...], list_of(CRITERION)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment(_Keys):
    """A checked experiment; `configurations` have the defaults of `engine`, `slos` is the text of an SLO file.

    With `find_max`, there are no `rates`, and `requests` are those of a probe. If `swept`, `configurations` are the
    cells of a sweep.
    """

    sha256: str
    swept: bool

    @property
    def limits(self) -> Limits | None:
        """The range of the search for the largest rate."""
        return None if self.find_max is None else self.find_max.limits

    @property
    def levels(self) -> list[Level]:
        return levels(self.rates, self.concurrencies)

    def load_of(self, level: Level, repeat: int) -> str:
        """The load scenario of a cell: repeats have other seeds, configurations the same requests."""
        plain = dict(self.load.plain) | {"seed": self.load.scenario.seed + repeat - 1}
        if level.rate is not None:
            (phase,) = plain["phases"]
            duration = {} if self.requests is None else {"duration": f"{self.requests / level.rate:.6f}s"}
            plain["phases"] = [phase | {"rate": level.rate / mean_turns(self.load.scenario)} | duration]
        elif level.concurrency is not None:
            (phase,) = plain["phases"]
            plain["phases"] = [phase | {"users": level.concurrency}]
        return yaml.safe_dump(plain, sort_keys=False, width=120)


def mean_turns(load: Scenario) -> float:
    """Requests for each arrival: more than 1 with conversations, whose turns are requests too."""
    turns = {
        name: 1.0
        if shape.conversation is None
        else (shape.conversation.turns.least + shape.conversation.turns.most) / 2
        for name, shape in load.shapes.items()
    }
    return sum(share * turns[name] for name, share in load.shares.items())


def names() -> list[str]:
    """The built-in experiments."""
    return built_in_names(SHIPPED)


def find(name: str) -> Path:
    """The file of an experiment, by path or by the name of a built-in experiment.

    Raises:
        UsageError: there is no such experiment.
    """
    return find_built_in(name, SHIPPED, "experiment")


def load(path: Path) -> Experiment:
    """Read an experiment.

    Raises:
        FileError: every mistake in the file.
        UsageError: the file cannot be read.
    """
    reader = open_yaml(path)
    keys = read(_Keys, reader.node())
    _check(keys, reader)
    reader.finish()
    defaults = replace(keys.engine, warm_up=keys.engine.warm_up or keys.warm_up)
    given = {each.name: getattr(keys, each.name) for each in fields(_Keys)}
    resolved = {
        "configurations": {name: engine.over(defaults) for name, engine in keys.configurations.items()},
        "requests": keys.requests if keys.find_max is None else keys.find_max.requests,
        "slos": keys.slos or DEFAULT_SLOS.read_text(encoding="utf-8"),
    }
    swept = "sweep" in reader.node().mapping()
    return Experiment(**given | resolved, sha256=sha256(reader.content.encode()).hexdigest(), swept=swept)


def _check(keys: _Keys, reader: Reader) -> None:
    """Check what concerns several keys; keys with a mistake are None."""
    nodes = reader.node().mapping()
    if keys.requests is not None and "rates" not in nodes:
        nodes["requests"].problem("needs rates; add them, or remove requests")
    for key in ("rates", "concurrencies", "predictions", "expected"):
        if "find_max" in nodes and key in nodes:
            nodes[key].problem("does not go with find_max, which chooses its rates; remove one of them")
    if keys.load is not None:
        phases = keys.load.scenario.phases
        for key in ("rates", "find_max"):
            if key in nodes and (len(phases) != 1 or not phases[0].constant_rate):
                nodes[key].problem("needs a load with a single phase of a constant rate, which the rates replace")
        if keys.concurrencies and (len(phases) != 1 or not isinstance(phases[0], ClosedLoop)):
            nodes["concurrencies"].problem(
                "needs a load with a single phase with users, whose number the concurrencies replace"
            )
    measured = levels(keys.rates, keys.concurrencies)
    sections: Mapping[str, Sequence[Prediction | ExpectedFigure]] = {
        "predictions": keys.predictions,
        "expected": keys.expected,
    }
    for section, claims in sections.items():
        for place, claim in zip(_items(nodes, section), claims, strict=False):  # no claims after a mistake in the list
            if claim.level not in (PHASES, *measured):
                place.problem(f"{claim.level.text.strip()} is not measured; add it to rates or concurrencies")
    if not keys.configurations:
        return
    for field in ("configuration", "baseline"):
        _check_names(nodes, field, "a configuration of this file", list(keys.configurations))
    if keys.load is None:
        return
    classes = list(keys.load.scenario.shapes)
    listed = nodes["configurations"].mapping() if "configurations" in nodes else {}
    engines = [(keys.engine, nodes.get("engine"))]
    engines += [(each, listed.get(name)) for name, each in keys.configurations.items()]
    for engine, node in engines:
        if node is not None and "pools" in node.mapping():
            check_classes(engine.pools, classes, node.mapping()["pools"])
    _check_names(nodes, "class", "a class of the load", classes, "")


def _check_names(nodes: Mapping[str, Node], field: str, what: str, known: list[str], *others: str) -> None:
    """Report names in predictions and figures of the source that are neither known nor one of the others."""
    for place in (*_items(nodes, "predictions"), *_items(nodes, "expected")):
        name = place.mapping().get(field)
        if name is not None and (text := name.text()) is not None and text not in (*known, *others):
            name.problem(f"{text!r} is not {what}; {nearest(text, known)}")


def _items(nodes: Mapping[str, Node], section: str) -> list[Node]:
    return nodes[section].items() if section in nodes and nodes[section].is_list else []
