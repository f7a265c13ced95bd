"""The packages of the images, from their lock files; test_stack.py compares the images themselves."""

import ast
import functools
import importlib.metadata
import subprocess
import sys
import tomllib
from collections.abc import Iterable

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.image_locks import LOCKS, ROOT, pinned

EXTRAS = ("sidecar", "loadgen", "tools")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD_TOOLS = {"pip", "setuptools", "wheel", "hatchling", "cyclonedx-bom", "mypy", "ruff", "pytest", "hypothesis"}
OTHER_EXTRAS = {"locust", "gevent", "flask", "plotly", "grafana-foundation-sdk", "vllm", "torch"}
SIDECAR_IMAGE = (
    "exporters",
    *(f"compose/{name}.py" for name in ("cli", "command_parser", "console_script", "renamed_flags")),
)
"""What the image of the sidecar runs."""


def direct(extra: str) -> list[Requirement]:
    project = PROJECT["project"]
    return [Requirement(each) for each in (*project["dependencies"], *project["optional-dependencies"][extra])]


def closure(requirements: Iterable[Requirement]) -> set[str]:
    """The names of all packages that the requirements need here, by the metadata of the installed versions."""
    found: set[str] = set()
    seen: set[tuple[str, str]] = set()
    queue = [(each, "") for each in requirements]
    while queue:
        requirement, extra = queue.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        found.add(name)
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                queue += [(Requirement(each), wanted) for each in importlib.metadata.requires(name) or ()]
    return found


@functools.cache
def imported(places: tuple[str, ...]) -> set[str]:
    """The top-level names of all imports, those inside functions too."""
    names: set[str] = set()
    for place in places:
        files = [ROOT / place] if place.endswith(".py") else sorted((ROOT / place).rglob("*.py"))
        assert files
        for node in (node for file in files for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))):
            if isinstance(node, ast.Import):
                names |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_lock_has_what_its_extra_needs_and_nothing_else(extra: str) -> None:
    assert set(pinned(f"{LOCKS}/{extra}.lock")) == closure(direct(extra)) - {"vllm-slo"}


@pytest.mark.parametrize("name", [*EXTRAS, "build"])
def test_an_image_has_the_versions_that_the_tests_run_with(name: str) -> None:
    tested, shipped = pinned("requirements.lock"), pinned(f"{LOCKS}/{name}.lock")
    shared = shipped.keys() & tested.keys()
    assert shared == shipped.keys() or name == "build"
    assert {package: shipped[package] for package in shared} == {package: tested[package] for package in shared}


def test_the_image_of_the_sidecar_has_no_build_tool_and_no_package_of_another_extra() -> None:
    assert not pinned(f"{LOCKS}/sidecar.lock").keys() & (BUILD_TOOLS | OTHER_EXTRAS)


@pytest.mark.slow
def test_the_image_of_the_sidecar_has_every_package_that_its_programs_import() -> None:
    distributions = importlib.metadata.packages_distributions()
    lock = pinned(f"{LOCKS}/sidecar.lock").keys()
    missing = {
        name
        for name in imported(SIDECAR_IMAGE) & distributions.keys()
        if not {canonicalize_name(each) for each in distributions[name]} & lock
    }
    assert missing - {"exporters", "alerts", "compose", "dashboards", "loadgen"} == set()


@pytest.mark.slow
def test_every_requirement_of_the_sidecar_is_imported() -> None:
    distributions = importlib.metadata.packages_distributions()
    provided = {canonicalize_name(each) for name in imported(SIDECAR_IMAGE) for each in distributions.get(name, ())}
    assert {canonicalize_name(each.name) for each in direct("sidecar")} - provided == set()


@pytest.mark.slow
@pytest.mark.parametrize("module", ["exporters.sidecar.command", "exporters.relay.process"])
def test_the_processes_that_give_the_first_response_import_nothing_that_only_the_exporter_needs(module: str) -> None:
    prints = f"import sys, {module}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", prints], cwd=ROOT, capture_output=True, text=True, check=True)
    assert {"prometheus_client", "aiohttp", "grpc", "opentelemetry", "rich"} & set(run.stdout.split()) == set()
