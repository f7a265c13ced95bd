"""The engines of a configuration: pools of equal replicas, each with a router in front of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import msgspec

from exporters.text.yaml_keys import COUNT, NAMED, Kind, choice, distinct_list_of, read
from exporters.text.yaml_reader import NAME, Node, nearest


class Routing(StrEnum):
    """How the router of a pool chooses the replica of a request.

    `least_requests`: the fewest open requests. `prefix`: the least cost in blocks of the KV cache, those of the prompt
    that are not in the prefix cache, of the waiting prompts, and in use, as Dynamo's KV router has it. `session`: the
    replica of the turn before; the first turn as `least_requests`.
    """

    ROUND_ROBIN = "round_robin"
    LEAST_REQUESTS = "least_requests"
    PREFIX = "prefix"
    SESSION = "session"


class Pool(msgspec.Struct, frozen=True, omit_defaults=True):
    """Replicas that serve these classes, or all of them."""

    replicas: Annotated[int, COUNT] = 1
    routing: Annotated[Routing, choice(Routing)] = Routing.ROUND_ROBIN
    classes: Annotated[tuple[str, ...], distinct_list_of(NAMED, "is empty; write class names")] = ()

    @property
    def text(self) -> str:
        served = f" for {', '.join(self.classes)}" if self.classes else ""
        return str(self.replicas) + (f" by {self.routing}" if self.replicas > 1 else "") + served


Pools = tuple[Pool, ...]
ONE_ENGINE: Pools = (Pool(),)


def _pools(node: Node) -> Pools:
    found: list[Pool] = []
    for name, item in node.entries():
        if not NAME.fullmatch(name):
            item.problem(f"{name!r} is not a valid name; use lower-case letters, digits, - and _")
        found.append(read(Pool, item))
        if item.is_mapping and "classes" not in item.mapping():
            item.problem("classes is missing")
        _check_routing(item)
    if not found and not node.reader.problems:
        node.problem("has no pool; add one, such as short: {classes: [chat], replicas: 2}")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolsKeys:
    """`replicas` and `routing` of the only pool, or `pools` by class."""

    replicas: Annotated[int | None, COUNT] = None
    routing: Annotated[Routing | None, choice(Routing)] = None
    pools: Annotated[Pools | None, Kind(_pools, {})] = None


def read_pools(keys: PoolsKeys, node: Node) -> Pools | None:
    """The pools of a configuration; None if its keys do not say any."""
    nodes = node.mapping()
    for key in ("replicas", "routing"):
        if "pools" in nodes and key in nodes:
            nodes[key].problem("does not go with pools, each of which has its own; remove one of them")
    if "pools" in nodes:
        return keys.pools
    _check_routing(node)
    if keys.replicas is None:
        return None
    return (Pool(keys.replicas, keys.routing or Routing.ROUND_ROBIN),)


def _check_routing(node: Node) -> None:
    nodes = node.mapping()
    if "routing" in nodes and "replicas" not in nodes:
        nodes["routing"].problem("needs replicas; add them, or remove routing")


def check_classes(pools: Pools, classes: Iterable[str], node: Node) -> None:
    """Report classes of the load that are not in exactly one pool, to the node of the pools."""
    known, pool_of = [*classes], dict[str, int]()
    for number, name in ((number, name) for number, pool in enumerate(pools) for name in pool.classes):
        if name not in known:
            node.problem(f"{name!r} is not a class of the load; {nearest(name, known)}")
        elif name in pool_of:
            node.problem(f"class {name!r} is in two pools; keep one")
        pool_of[name] = number
    missing = [name for name in known if name not in pool_of]
    if missing:
        node.problem(f"no pool has the class {', '.join(missing)}; add it to one")


def pool_numbers(pools: Pools) -> Mapping[str, int]:
    """The pool of each class; empty if there is one for all."""
    return {name: number for number, pool in enumerate(pools) for name in pool.classes}
