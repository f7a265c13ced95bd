"""A sweep: every combination of values of engine flags, each of which is a configuration."""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from exporters.text.yaml_keys import Kind, distinct_list_of
from exporters.text.yaml_reader import Node

_VALUE = re.compile(r"[A-Za-z0-9.-]+")


def _value(node: Node) -> str | None:
    text = node.text()
    if text is not None and not _VALUE.fullmatch(text):
        node.problem(f"{text!r} cannot be a part of a name; only letters, digits, . and - can; list configurations")
        return None
    return text


_VALUES = distinct_list_of(Kind(_value, {}), "is empty; write the values of the flag, such as [64, 128]")


def _sweep(node: Node) -> Mapping[str, tuple[str, ...]]:
    found = {name: _VALUES.read(values) or () for name, values in node.entries()}
    for name, values in node.entries():
        plain = name.lstrip("-").replace("_", "-")
        if name != plain:
            values.problem(f"{name!r} is not the name of a flag; write {plain!r}")
    if not found and not node.reader.problems:
        node.problem("has no flag; add one, such as max-num-seqs: [64, 128]")
    return found


SWEEP = Kind(_sweep, {})


def grid(sweep: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, Mapping[str, str]]]:
    """The flags of each cell, and its name, such as `max-num-seqs=64_block-size=16`."""
    for values in product(*sweep.values()) if sweep else ():
        flags = dict(zip(sweep, values, strict=True))
        yield "_".join(f"{flag}={value}" for flag, value in flags.items()), flags
