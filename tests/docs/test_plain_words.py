"""Text that users and contributors read contains none of the words of `plain_words.yaml`."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PRODUCT = ("exporters", "alerts", "dashboards", "loadgen", "compose", "docs", ".github")
LATER = re.compile(r"alerts/\w+_alerts\.py|generated/|/data/")
"""Texts of alerts are revised apart, and generated files follow their source."""


def words(*forms: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(map(re.escape, forms))})(?![\w/-])", re.IGNORECASE)


@dataclass
class Entry:
    """Words not to use, and phrases in which they are terms of the field."""

    forms: list[str]
    allowed: re.Pattern[str] | None
    instead: str

    @classmethod
    def of(cls, entry: dict[str, Any]) -> "Entry":
        allowed = rf"\b(?:{'|'.join(entry['except'])})\b" if "except" in entry else None
        return cls(
            entry.get("forms", [entry["word"]]),
            re.compile(allowed, re.IGNORECASE) if allowed else None,
            f"write {entry['write']} ({entry['why']})",
        )

    def faults(self, text: str) -> Iterator[str]:
        if match := words(*self.forms).search(self.allowed.sub("", text) if self.allowed else text):
            yield f"{match[0]!r}: {self.instead}"


ENTRIES = [Entry.of(entry) for entry in yaml.safe_load((Path(__file__).parent / "plain_words.yaml").read_text("utf-8"))]
ANY = words(*(form for entry in ENTRIES for form in entry.forms))


def documents() -> Iterator[str]:
    patterns = ("*.md", "*.py", "*.yaml", "*.yml")
    listing = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in sorted(listing.stdout.splitlines()):
        if (name.split("/")[0] in PRODUCT or "/" not in name) and not LATER.search(name) and (ROOT / name).is_file():
            yield name


def texts(name: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string, docstring and comment of a program, or of every paragraph of another file."""
    content = (ROOT / name).read_text(encoding="utf-8")
    if not name.endswith(".py"):
        # A phrase may be broken over two lines, so a paragraph is one text.
        for paragraph in re.finditer(r"(?:.+\n?)+", content):
            yield content.count("\n", 0, paragraph.start()) + 1, paragraph[0]
        return
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    if ANY.search(plain("\n".join(line.partition("#")[2] for line in content.splitlines()))):
        for token in tokenize.generate_tokens(io.StringIO(content).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string


def plain(text: str) -> str:
    return re.sub(r"\s+#?\s*", " ", text)


def unwanted(text: str) -> Iterator[str]:
    if ANY.search(text := plain(text)):
        for entry in ENTRIES:
            yield from entry.faults(text)


@pytest.mark.slow
def test_all_text_is_plain() -> None:
    names = list(documents())
    assert len(names) > 300
    assert [f"{name}:{line}: {fault}" for name in names for line, text in texts(name) for fault in unwanted(text)] == []


def test_whole_words_of_the_list_are_found() -> None:
    forms = [form for entry in ENTRIES for form in entry.forms]
    assert [form for form in forms if not list(unwanted(f"The relay {form} a request."))] == []
    assert [form for form in forms if list(unwanted(f"The relay x{form}x a request."))] == []


@pytest.mark.slow
def test_a_docstring_opens_with_its_subject() -> None:
    opening = re.compile(
        r"(?:Of|By|For|As|In|From|To|On|At|With|Without|Not|If|Up to|Over|Under|Above|Below|Before|After|Since) "
    )
    names = [name for name in documents() if name.endswith(".py")]
    assert [f"{name}:{line}" for name in names for line, text in docstrings(name) if opening.match(text)] == []


def docstrings(name: str) -> Iterator[tuple[int, str]]:
    """Line and text of each string that is a statement."""
    for node in ast.walk(ast.parse((ROOT / name).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
