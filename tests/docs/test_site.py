"""The documentation builds without a warning, and its pages load nothing from another host."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_LOADED = re.compile(
    r"""<(?:script|img|iframe|source)\b[^>]*\bsrc=["']?(https?:)?//|<link\b[^>]*rel=["']?(?:stylesheet|preconnect|preload|icon)[^>]*href=["']?(https?:)?//"""
)
_IMPORTED = re.compile(r"""@import|url\(["']?(?:https?:)?//""")


@pytest.mark.slow
def test_the_site_builds_strictly_and_its_pages_load_nothing_from_another_host(tmp_path: Path) -> None:
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 10
    assert [page.name for page in pages if _LOADED.search(page.read_text(encoding="utf-8"))] == []
    styles = list((tmp_path / "site").rglob("*.css"))
    assert styles
    assert [style.name for style in styles if _IMPORTED.search(style.read_text(encoding="utf-8"))] == []
    assert _LOADED.search('<script src="https://cdn.example.org/x.js">')
    assert _LOADED.search('<link rel="stylesheet" href="//fonts.example.org/css">')
