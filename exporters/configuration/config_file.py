"""The YAML file of `--config`, in which every flag is a key: its reader, and what --print-config prints."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from exporters.configuration.flags import REQUIRED, Flag, Given, flags_of
from exporters.text.errors import InvalidValueError, UsageError
from exporters.text.yaml_reader import Node, open_yaml

_PLAIN = re.compile(r"(?!(?:null|Null|NULL)$)[A-Za-z0-9/.](?:[\w./%+=@,~-]|:(?=\S))*")
"""A text that YAML needs no quotes for."""
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]*(?=@)")
_HIDDEN = "<hidden>"
_WIDTH = 48
"""Columns of a line before its comment."""


def read(path: Path, cls: type) -> dict[str, Given]:
    """What the file has for the fields of a dataclass of flags.

    Raises:
        FileError: all mistakes in the file, each with line, key, reason and fix.
        UsageError: the file cannot be read.
    """
    reader, found = open_yaml(path), {}
    root, flags = reader.node(), {flag.key: flag for flag in flags_of(cls)}
    if reader.root is not None and not root.is_mapping:
        root.problem(f"expected keys with values, such as `{next(iter(flags))}: ...`, found {root.quoted()}")
    elif reader.root is not None:  # else all keys are commented out
        for key, node in root.fields(flags).items():
            value = _value(flags[key], node)
            if value is not None:
                found[flags[key].field] = Given(value, f"{path}:{node.as_problem('').line}")
    reader.finish()
    return found


def _value(flag: Flag, node: Node) -> str | bool | tuple[str, ...] | None:
    if node.is_null:
        node.problem("has no value; write one, or remove the key")
        return None
    if flag.kind is None:
        return node.boolean()
    if flag.repeatable and node.is_list:
        texts = [_text(flag, item) for item in node.items()]
        return tuple(text for text in texts if text is not None)
    text = _text(flag, node)
    return (text,) if flag.repeatable and text is not None else text


def _text(flag: Flag, node: Node) -> str | None:
    """The text of a value that the flag takes."""
    text = node.text()
    if text is not None and flag.kind is not None:
        try:
            flag.kind.parse(text)
        except (InvalidValueError, UsageError) as error:
            node.problem(str(error).removeprefix(f"{flag.option}: "))
    return text


def described(cls: type, given: Mapping[str, Given]) -> Iterator[str]:
    """The lines of a file with all values, and the origin of each as a comment; secrets are hidden."""
    for flag in flags_of(cls):
        each = given.get(flag.field)
        if each is not None:
            yield _line(f"{flag.key}: {_spelled(flag, each.value)}", each.origin)
        elif flag.default is REQUIRED:
            yield _line(f"# {flag.key}: {flag.kind.metavar if flag.kind else ''}", "required, missing")
        elif flag.kind is None:
            yield _line(f"{flag.key}: {_spelled(flag, flag.default)}", "default")
        elif flag.text is not None:
            yield _line(f"{flag.key}: {_spelled(flag, flag.text)}", "default")
        else:
            yield _line(f"# {flag.key}:", "default")


def _line(text: str, origin: str) -> str:
    return f"{text:<{_WIDTH}}  # {origin}"


def _spelled(flag: Flag, value: str | bool | tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_spelled(flag, each) for each in value)}]"
    shown = f"{value.partition('=')[0]}={_HIDDEN}" if flag.secret else _CREDENTIALS.sub(_HIDDEN, value)
    in_list = "," in shown and flag.repeatable
    return shown if _PLAIN.fullmatch(shown) and not in_list else json.dumps(shown, ensure_ascii=False)
