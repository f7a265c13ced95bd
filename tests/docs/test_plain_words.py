"""Text that users and contributors read contains none of the words of `plain_words.yaml`."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORDS = yaml.safe_load((Path(__file__).parent / "plain_words.yaml").read_text(encoding="utf-8"))
PRODUCT = ("exporters", "alerts", "dashboards", "loadgen", "compose", "docs")
LATER = re.compile(r"alerts/\w+_alerts\.py|generated/|/data/")
"""Texts of alerts are revised apart, and generated files follow their source."""


def tracked(pattern: str) -> Iterator[str]:
    listing = subprocess.run(["git", "ls-files", pattern], cwd=ROOT, capture_output=True, text=True, check=True)
    yield from (name for name in listing.stdout.splitlines() if not LATER.search(name) and (ROOT / name).is_file())


def python_texts(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every string, docstring and comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def texts(name: str) -> Iterator[tuple[int, str]]:
    content = (ROOT / name).read_text(encoding="utf-8")
    if name.endswith(".py"):
        yield from python_texts(content)
    else:
        # A phrase may be broken over two lines, so a paragraph is one text.
        for paragraph in re.finditer(r"(?:.+\n?)+", content):
            yield content.count("\n", 0, paragraph.start()) + 1, paragraph[0]


def unwanted(text: str) -> Iterator[str]:
    """The entries that a text breaks, as `phrase: write ... (reason)`."""
    plain = re.sub(r"\s+#?\s*", " ", text)
    for entry in WORDS:
        searched = plain
        for phrase in entry.get("except", ()):
            searched = re.sub(rf"\b{phrase}\b", "", searched, flags=re.IGNORECASE)
        forms = "|".join(map(re.escape, entry.get("forms", [entry["word"]])))
        if match := re.search(rf"(?<![\w./-])(?:{forms})(?![\w/-])", searched, re.IGNORECASE):
            yield f"{match[0]!r}: write {entry['write']} ({entry['why']})"


FILES = sorted({name for pattern in ("*.md", "*.py", "*.yaml", "*.yml") for name in tracked(pattern)})
READ = [name for name in FILES if name.split("/")[0] in PRODUCT or "/" not in name or name.startswith(".github")]


@pytest.mark.parametrize("name", READ)
def test_text_is_plain(name: str) -> None:
    assert [f"{name}:{line}: {fault}" for line, text in texts(name) for fault in unwanted(text)] == []


@pytest.mark.parametrize("entry", WORDS, ids=lambda entry: entry["word"])
def test_each_entry_of_the_list_has_a_reason_and_finds_its_words(entry: dict[str, object]) -> None:
    assert entry["write"]
    assert entry["why"]
    forms = entry.get("forms", [entry["word"]])
    assert isinstance(forms, list)
    assert all(list(unwanted(f"The relay {form} a request.")) for form in forms)
    assert not any(list(unwanted(f"The relay x{form}x a request.")) for form in forms)
