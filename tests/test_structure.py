"""Rules for every module; import-linter (`make check`) checks the imports between modules."""

import ast
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("exporters", "alerts", "dashboards", "loadgen", "compose")
SHARED_NAMES = {"__init__", "command"}
"""Module names that stand for the same thing wherever they are."""


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
    packages = {name.partition(".")[0] for name in imports(ROOT / "exporters" / "signals.py")}
    assert packages - sys.stdlib_module_names == set()


def test_no_two_modules_share_a_name() -> None:
    names = Counter(path.stem for path in PRODUCT)
    assert {name for name, count in names.items() if count > 1} - SHARED_NAMES == set()


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
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "tests"
        if any(name.startswith("test_") for name in (*node.module.split("."), *(alias.name for alias in node.names)))
    }
    assert wrong == {}
