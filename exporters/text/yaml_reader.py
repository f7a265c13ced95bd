"""Reads a YAML mapping by key and collects all mistakes with their position, so that one run reports them all."""

import contextlib
import difflib
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from exporters.text.errors import InvalidValueError, UsageError, system_reason
from exporters.text.units import number, parse_duration

NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: line and column (both from 1), path in the file, and a message with the fix."""

    line: int
    column: int
    path: str
    text: str
    length: int = 1
    """Characters to mark in that line."""


class FileError(UsageError):
    """All mistakes of one file, and its content; the message has one line for each mistake."""

    def __init__(self, source: str, problems: Iterable[Problem], content: str) -> None:
        self.content = content
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        parts = ((f"{source}:{p.line}:{p.column}", p.path, p.text) for p in self.problems)
        super().__init__("\n".join(": ".join(filter(None, each)) for each in parts))


def nearest(word: str, words: Iterable[str]) -> str:
    """The end of a message: `did you mean` if one of `words` is similar, else all of them."""
    options = [str(option) for option in words]  # names may be members of an enum
    close = difflib.get_close_matches(word, options, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(options)}"


@dataclass(slots=True)
class Reader:
    """The root node of a file, or of a section in the format of another file, and the mistakes found so far."""

    source: str
    content: str
    root: yaml.Node | None
    problems: list[Problem] = field(default_factory=list)
    path: str = ""

    def node(self) -> "Node":
        return Node(self, self.root, self.path)

    def finish(self) -> None:
        """Report the mistakes; raises FileError if there is at least one."""
        if self.problems:
            raise FileError(self.source, self.problems, self.content)


def open_yaml(path: Path) -> Reader:
    """Parse `path` into nodes with positions; raises UsageError if the file cannot be read or is not valid YAML."""
    return parse_yaml(read_file(path), str(path))


def find_built_in(name: str, folder: Path, kind: str) -> Path:
    """A file by its path, or by its name without `.yaml` in the folder of built-in ones.

    Raises:
        UsageError: there is no such file; `kind` says of what.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = folder / f"{name}.yaml"
    if path.name == name and shipped.is_file():
        return shipped
    raise UsageError(f"{name}: neither a file nor a built-in {kind}; {nearest(name, built_in_names(folder))}")


def built_in_names(folder: Path) -> list[str]:
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read_file(path: Path) -> str:
    """The text of a file; raises UsageError if the file cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {system_reason(error)}") from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path}: is not valid UTF-8: byte {error.start} is 0x{error.object[error.start]:02x}"
        ) from error


def parse_yaml(text: str, source: str) -> Reader:
    """Parse YAML text; `source` names it in messages. Raises FileError if the text is not valid YAML."""
    try:
        return Reader(source, text, yaml.compose(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        what = ", ".join(part for part in (error.context, error.problem) if part)
        raise FileError(source, [Problem(line, column, "", f"invalid YAML: {what}")], text) from error
    except yaml.YAMLError as error:
        raise FileError(source, [Problem(1, 1, "", f"invalid YAML: {error}".splitlines()[0])], text) from error
    except RecursionError as error:
        raise FileError(
            source, [Problem(1, 1, "", "invalid YAML: lists or mappings are nested too deeply")], text
        ) from error


@dataclass(slots=True)
class Node:
    """A value in the file. Reading methods report a mistake and return None instead of raising."""

    reader: Reader
    at: yaml.Node | None
    path: str

    def problem(self, text: str) -> None:
        self.reader.problems.append(self.as_problem(text))

    def as_problem(self, text: str) -> Problem:
        """A mistake at this position; for a value of several lines, only its first character is marked."""
        if self.at is None:
            return Problem(1, 1, self.path, text)
        start, end = self.at.start_mark, self.at.end_mark
        length = end.column - start.column if end.line == start.line else 1
        return Problem(start.line + 1, start.column + 1, self.path, text, max(1, length))

    def quoted(self) -> str:
        """The value, to be quoted in a message."""
        match self.at:
            case yaml.ScalarNode(value=value):
                return repr(value)
            case yaml.SequenceNode():
                return "a list"
            case yaml.MappingNode():
                return "a mapping"
            case _:
                return "nothing"

    def fields(self, keys: Iterable[str], required: Iterable[str] = ()) -> dict[str, "Node"]:
        """The entries of a mapping; unknown, repeated and missing keys are mistakes."""
        names = list(keys)
        if not isinstance(self.at, yaml.MappingNode):
            self.problem(f"expected a mapping with {', '.join(names)}, found {self.quoted()}")
            return {}
        entries: dict[str, Node] = {}
        for key_node, value_node in self.at.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else "?"
            here = Node(self.reader, key_node, self._join(key))
            if key not in names:
                here.problem(f"unknown key; {nearest(key, names)}")
            elif key in entries:
                here.problem("duplicate key; keep one")
            else:
                entries[key] = Node(self.reader, value_node, self._join(key))
        for name in required:
            if name not in entries:
                self.problem(f"{name} is missing" if self.path else f"the key {name} is missing")
        return entries

    def entries(self) -> Iterator[tuple[str, "Node"]]:
        """Keys and values of a mapping with any keys."""
        if not isinstance(self.at, yaml.MappingNode):
            self.problem(f"expected a mapping, found {self.quoted()}")
            return
        for key_node, value_node in self.at.value:
            key = str(key_node.value)
            yield key, Node(self.reader, value_node, self._join(key))

    def mapping(self) -> dict[str, "Node"]:
        """The values by key; empty if this is not a mapping, which is not reported."""
        return dict(self.entries()) if isinstance(self.at, yaml.MappingNode) else {}

    @property
    def is_null(self) -> bool:
        return self.at is None or self.at.tag == "tag:yaml.org,2002:null"

    @property
    def is_mapping(self) -> bool:
        return isinstance(self.at, yaml.MappingNode)

    @property
    def is_list(self) -> bool:
        return isinstance(self.at, yaml.SequenceNode)

    def items(self) -> list["Node"]:
        if not isinstance(self.at, yaml.SequenceNode):
            self.problem(f"expected a list, found {self.quoted()}")
            return []
        return [Node(self.reader, item, f"{self.path}[{index}]") for index, item in enumerate(self.at.value)]

    def text(self) -> str | None:
        if isinstance(self.at, yaml.ScalarNode) and not self.is_null:
            return str(self.at.value)
        self.problem(f"expected text, found {self.quoted()}")
        return None

    def name(self) -> str | None:
        """A text that is safe as a label value and in a file name."""
        text = self.text()
        if text is not None and not NAME.fullmatch(text):
            self.problem(
                f"{text!r} is not a valid name; use lower-case letters, digits, - and _, starting with a letter"
            )
            return None
        return text

    def boolean(self) -> bool | None:
        if isinstance(self.at, yaml.ScalarNode) and self.at.tag == "tag:yaml.org,2002:bool":
            return str(self.at.value).lower() in {"true", "yes", "on"}
        self.problem(f"expected true or false, found {self.quoted()}")
        return None

    def number(self, *, least: float | None = None, whole: bool = False) -> float | None:
        kind = "a whole number" if whole else "a number"
        bound = "" if least is None else f" of at least {number(least)}"
        value = None
        if isinstance(self.at, yaml.ScalarNode) and self.at.tag in {"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"}:
            with contextlib.suppress(ValueError):  # such as 0x_, which YAML takes for an integer
                value = float(yaml.safe_load(self.at.value))
        fits = value is not None and math.isfinite(value) and (not whole or value == int(value))
        if value is None or not fits or (least is not None and value < least):
            self.problem(f"expected {kind}{bound}, found {self.quoted()}")
            return None
        return value

    def whole(self, least: float | None = None) -> int | None:
        value = self.number(least=least, whole=True)
        return None if value is None else int(value)

    def duration(self, examples: str = "250ms, 5s, 1m, 12h or 30d") -> float | None:
        """Seconds, above zero; the message about another text has the `examples`."""
        text = self.text()
        try:
            return None if text is None else parse_duration(text, examples)
        except InvalidValueError as error:
            self.problem(str(error))
            return None

    def as_file(self) -> Reader:
        """A reader of this value alone, which reports its mistakes in this file."""
        return Reader(self.reader.source, self.reader.content, self.at, self.reader.problems, self.path)

    def plain(self) -> Any:
        """The value as YAML's own types; raises FileError if YAML has no such value, as for an unknown tag."""
        try:
            return None if self.at is None else yaml.constructor.SafeConstructor().construct_document(self.at)
        except (ValueError, yaml.MarkedYAMLError) as error:
            self.problem(f"invalid YAML: {getattr(error, 'problem', error)}")
            self.reader.finish()
            raise

    def _join(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
