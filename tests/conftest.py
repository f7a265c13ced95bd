"""Shared by all tests: Hypothesis profiles, the mark of slow fixtures, the number of workers, Prometheus's programs."""

import gc
import logging
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from compose.programs.haproxy import Haproxy, find_haproxy
from compose.programs.tools import Tools, find_tools
from exporters.text.errors import UsageError
from tests.support.promtool import Promtool

# No verdict depends on the machine's speed, and a failure prints the decorator that reproduces it. Each run draws
# fresh examples, which finds more with every run; where CI is set the examples are always the same, so that a change
# fails only because of itself.
_UNTIMED = settings(deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fresh", _UNTIMED)
settings.register_profile("fixed", _UNTIMED, derandomize=True)
settings.load_profile("fixed" if os.environ.get("CI") else "fresh")

# A shell starts a background job with ctrl-c ignored, which the programs that a test interrupts would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

SLOW_FIXTURES = {"tools", "programs"}
"""Tests with one of these fixtures start a program of Prometheus, and are slow without a mark of their own."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays to the end, so no garbage collection walks it, neither here nor in the tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if SLOW_FIXTURES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than cores, if slow tests run, which often wait; up to eight: starting more costs more than it saves."""
    waiting = "not slow" not in config.option.markexpr
    return min(8, waiting + (os.cpu_count() or 1))


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if (output := getattr(item.config, "workeroutput", None)) is not None:
            output["deselected"] = output.get("deselected", 0) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """The closing line counts what the workers deselected, as it does without them; each deselects the same."""
    count = getattr(node, "workeroutput", {}).get("deselected", 0)
    node.config.pluginmanager.get_plugin("terminalreporter").stats["deselected"] = [SimpleNamespace()] * count


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that runs in the process of a test logs to the test's captured stderr, which is closed at its end."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)
    for handler in [each for each in root.handlers if type(each) is logging.StreamHandler]:
        root.removeHandler(handler)


@pytest.fixture(scope="session")
def tools() -> Tools:
    try:
        return find_tools()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def haproxy() -> Haproxy:
    try:
        return find_haproxy()
    except UsageError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest) -> tuple[Path, ...]:
    """The programs in $PROMTOOLS (`old/promtool:new/promtool`), else the machine's."""
    if named := os.environ.get("PROMTOOLS"):
        return tuple(map(Path, named.split(os.pathsep)))
    installed: Tools = request.getfixturevalue("tools")
    return (installed.promtool,)


@pytest.fixture
def promtool(programs: tuple[Path, ...], tmp_path: Path) -> Promtool:
    return Promtool(programs, tmp_path)
