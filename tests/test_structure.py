"""Which room may import which: the doors between the folders go one way."""

import ast
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.cli import COMMANDS

ROOT = Path(__file__).parents[1]
ROOMS = ("exporters", "alerts", "dashboards", "loadgen", "compose")

# What the other rooms may know of the exporters: names, also the engines' own, the SLO file, records and verdicts; none
# of the machinery.
VOCABULARY = frozenset(
    f"exporters.{name}"
    for name in (
        *(
            "signals",
            "slos",
            "records",
            "verdicts",
            "errors",
            "yaml_keys",
            "yaml_reader",
            "quantities",
            "addresses",
            "prometheus_api",
        ),
        *(f"engines.{name}" for name in ("table_rows", "signal_table", "vllm_buckets")),
    )
)


def modules(room: str) -> list[Path]:
    return sorted(path for path in (ROOT / room).rglob("*.py") if "node_modules" not in path.parts)


def imported(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, at whatever depth; `from a import b` gives both a and a.b."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; path equals import here"
            assert node.module is not None
            if node.module in ROOMS:
                yield from (f"{node.module}.{alias.name}" for alias in node.names)
            else:
                yield node.module


def doors(room: str) -> dict[str, set[str]]:
    """For each module of a room, the modules of other rooms that it imports."""
    return {
        str(path.relative_to(ROOT)): {
            name for name in imported(path) if (top := name.partition(".")[0]) in ROOMS and top != room
        }
        for path in modules(room)
    }


def in_vocabulary(name: str) -> bool:
    return name in VOCABULARY


def in_room(name: str, *rooms: str) -> bool:
    return name.partition(".")[0] in rooms


def test_the_exporters_import_no_other_room() -> None:
    assert {name: found for name, found in doors("exporters").items() if found} == {}


@pytest.mark.parametrize(
    "room, behind",
    [
        pytest.param("alerts", (), id="alerts knows the vocabulary"),
        pytest.param("dashboards", ("alerts",), id="dashboards knows the vocabulary and alerts"),
        pytest.param("loadgen", (), id="loadgen knows the vocabulary, and never the sidecar's asyncio"),
    ],
)
def test_a_room_imports_only_what_lies_before_it(room: str, behind: tuple[str, ...]) -> None:
    wrong = {
        name: refused
        for name, found in doors(room).items()
        if (refused := {other for other in found if not in_vocabulary(other) and not in_room(other, *behind)})
    }
    assert wrong == {}


@pytest.mark.parametrize("room", [room for room in ROOMS if room != "compose"])
def test_nobody_imports_compose(room: str) -> None:
    assert {name for name, found in doors(room).items() if any(in_room(other, "compose") for other in found)} == set()


@pytest.mark.parametrize("name", sorted(VOCABULARY))
def test_the_vocabulary_imports_nothing_of_the_sidecar(name: str) -> None:
    path = ROOT / (name.replace(".", "/") + ".py")
    assert {other for other in imported(path) if in_room(other, *ROOMS)} <= VOCABULARY


def test_the_signals_import_only_the_standard_library() -> None:
    tops = {name.partition(".")[0] for name in imported(ROOT / "exporters" / "signals.py")}
    assert tops - sys.stdlib_module_names == set()


@pytest.mark.parametrize("name", ["asyncio", "aiohttp", "uvloop"])
def test_the_load_generator_keeps_asyncio_out_of_its_process(name: str) -> None:
    assert {str(path) for path in modules("loadgen") if name in {m.partition(".")[0] for m in imported(path)}} == set()


@pytest.mark.parametrize(
    "path", [str(p.relative_to(ROOT)) for room in ROOMS for p in modules(room) if p.stem == "__init__"]
)
def test_an_init_file_holds_only_its_sentence(path: str) -> None:
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


@pytest.mark.parametrize("room", ROOMS)
def test_path_equals_import(room: str) -> None:
    spec = importlib.util.find_spec(room)
    assert spec is not None
    assert spec.origin == str(ROOT / room / "__init__.py")
