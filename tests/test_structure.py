"""Rules for every module; import-linter (`make check`) checks the imports between modules."""

import ast
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("exporters", "alerts", "dashboards", "loadgen", "compose")
MAX_MODULES = 15


def modules(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py") if "node_modules" not in path.parts)


PRODUCT = [path for package in PACKAGES for path in modules(package)]


def imports(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, at whatever depth."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; path equals import here"
            assert node.module is not None
            yield node.module


def test_the_signals_import_only_the_standard_library() -> None:
    packages = {name.partition(".")[0] for name in imports(ROOT / "exporters/vocabulary/signals.py")}
    assert packages - sys.stdlib_module_names == set()


FOLDERS = {
    str(path.parent.relative_to(ROOT)): [each for each in path.parent.glob("*.py") if each.stem != "__init__"]
    for path in PRODUCT
    if path.stem == "__init__"
}


def test_no_folder_has_more_modules_than_a_reader_takes_in() -> None:
    assert {folder: len(modules) for folder, modules in FOLDERS.items() if len(modules) > MAX_MODULES} == {}


def test_the_map_names_each_folder_once() -> None:
    rows = re.findall(
        r"^\| `([a-z_/]+)/` \|", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(rows) == sorted({*FOLDERS, "tests"})


def test_no_module_shadows_the_standard_library() -> None:
    assert {path.stem for path in PRODUCT} & set(sys.stdlib_module_names) == set()


@pytest.mark.parametrize("path", [str(path.relative_to(ROOT)) for path in PRODUCT if path.stem == "__init__"])
def test_an_init_file_is_only_a_docstring(path: str) -> None:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert ast.get_docstring(tree)
    assert len(tree.body) == 1


@pytest.mark.parametrize("module", sorted({module for module, _ in COMMANDS.values()}))
def test_every_command_has_a_module_that_declares_its_flags(module: str) -> None:
    path = ROOT / (module.replace(".", "/") + ".py")
    assert path.is_file()
    functions = {
        node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)
    }
    assert "configure" in functions


@pytest.mark.parametrize("package", PACKAGES)
def test_path_equals_import(package: str) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin == str(ROOT / package / "__init__.py")


@pytest.mark.slow
def test_no_module_of_the_tests_imports_a_test_module() -> None:
    """Code that two test modules share is in a helper module."""
    wrong = {
        f"{path.relative_to(ROOT)}:{node.lineno}": node.module
        for path in modules("tests")
        for text in [path.read_text(encoding="utf-8")]
        if re.search(r"^ *from tests\b.*(?:\btest_|\($)", text, re.MULTILINE)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "tests"
        if any(name.startswith("test_") for name in (*node.module.split("."), *(alias.name for alias in node.names)))
    }
    assert wrong == {}
