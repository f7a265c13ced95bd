"""Relative links and pictures of every document lead to a file and a heading; MkDocs checks its own pages once more."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def documents() -> list[str]:
    listing = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def anchor(heading: str) -> str:
    """The anchor that MkDocs and Git hosts give a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "")).strip().lower().replace(" ", "-")


def broken(folder: Path, text: str) -> list[str]:
    faults = []
    for link in _LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (folder / path).resolve() if path else None
        if target is not None and not target.exists():
            faults.append(link)
        elif fragment and (target is None or target.suffix == ".md"):
            content = text if target is None else target.read_text(encoding="utf-8")
            if fragment not in {anchor(heading) for heading in _HEADING.findall(content)}:
                faults.append(link)
    return faults


@pytest.mark.parametrize("name", documents())
def test_no_link_is_broken(name: str) -> None:
    assert broken((ROOT / name).parent, (ROOT / name).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text,faults",
    [
        pytest.param("[a](there.md) ![b](there.md#a-heading)", [], id="a file and its heading"),
        pytest.param("[a](missing.md)", ["missing.md"], id="no such file"),
        pytest.param("[a](there.md#other)", ["there.md#other"], id="no such heading"),
        pytest.param("# One, `two`\n[a](#one-two)", [], id="a heading of the same document"),
        pytest.param("`[a](missing.md)` [b](https://example.org/x.md)", [], id="code and other sites"),
    ],
)
def test_a_broken_link_is_reported(tmp_path: Path, text: str, faults: list[str]) -> None:
    (tmp_path / "there.md").write_text("## A heading\n", encoding="utf-8")
    assert broken(tmp_path, text) == faults
