"""Mutation testing of five core modules: how many small changes of their code make a test fail.

    .venv/bin/python -m tests.mutation.run --module arrivals

cosmic-ray changes one operator, number, condition, loop, exception or decorator per mutant, in a temporary copy of the
working tree. A mutant that Python refuses to compile is not counted, nor is a change of `|`, which is in type
annotations. The tests run in a fork of a process that has imported all third-party modules, with fixed examples; those
that `make test` leaves out do not run.

Exits with 1 if fewer mutants are killed than `--at-least`, and with 2 if the tests fail without a mutation.
"""

import argparse
import contextlib
import difflib
import io
import itertools
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parents[2]
EXCLUDED = "core/ReplaceBinaryOperator_BitOr_"
_OPTIONS = ("-x", "-q", "-n0", "-p", "no:cacheprovider")
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Module:
    """Files that are mutated, and the test modules that cover them, quickest first."""

    files: Sequence[str]
    tests: Sequence[str]


MODULES = {
    "verdicts": Module(
        ["exporters/vocabulary/verdicts.py"],
        [
            "tests/exporters/vocabulary/test_verdicts.py",
            "tests/exporters/relay/metering/test_gaps.py",
            "tests/loadgen/results/test_gap_histogram.py",
            "tests/exporters/sidecar/ingest/test_logged_records.py",
        ],
    ),
    "http1_parser": Module(
        ["exporters/http/parser.py"],
        [
            "tests/exporters/http/test_parser.py",
            "tests/exporters/relay/test_framing.py",
            "tests/exporters/relay/test_refusals.py",
            "tests/exporters/relay/metering/test_fast_path.py",
            "tests/exporters/http/test_lines.py",
            "tests/exporters/relay/test_limits.py",
            "tests/exporters/relay/test_websocket.py",
            "tests/fuzz/test_regressions.py",
        ],
    ),
    "burn_rules": Module(
        ["alerts/burn/alerts.py", "alerts/rules/wording.py", "alerts/recording/limits.py"],
        [
            "tests/alerts/recording/test_windows.py::test_the_committed_rules_are_up_to_date",
            "tests/alerts/test_plan.py",
            "tests/alerts/check/test_validation.py",
            "tests/alerts/rules/test_labels.py",
            "tests/alerts/recording/test_engine_only_objectives.py",
            "tests/alerts/recording/test_pools.py",
            "tests/alerts/rules/test_cost.py",
            "tests/alerts/burn/test_laws.py",
            "tests/alerts/burn/test_alerts.py",
        ],
    ),
    "accounting": Module(
        ["exporters/sidecar/ingest/ledger.py", "exporters/records/journal.py"],
        [
            "tests/exporters/sidecar/ingest/test_ledger.py",
            "tests/exporters/sidecar/ingest/test_receiver.py",
        ],
    ),
    "arrivals": Module(
        ["loadgen/schedule/arrivals.py"],
        [
            "tests/loadgen/schedule/test_arrivals.py",
            "tests/loadgen/schedule/test_scenario.py",
            "tests/loadgen/schedule/test_requests.py",
        ],
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file with one change."""

    file: str
    original: str
    changed: str

    def __str__(self) -> str:
        lines = self.original.splitlines(), self.changed.splitlines()
        _, _, place, *diff = difflib.unified_diff(*lines, n=0, lineterm="")
        return f"{self.file}:{place.split()[1].strip('-').partition(',')[0]}\n  " + "\n  ".join(diff)


def mutants(files: Sequence[str], seed: int) -> Iterator[Mutant]:
    """All mutants in random order."""
    sources = {file: (ROOT / file).read_text() for file in files}
    trees = {file: [*ast_nodes(get_ast(source))] for file, source in sources.items()}
    names = [name for name in operator_names() if not name.startswith(EXCLUDED)]
    operators = [operator() for operator in map(get_operator, names) if not operator.arguments()]
    found = [
        (file, operator, number)
        for file, operator in itertools.product(files, operators)
        for number in range(sum(len([*operator.mutation_positions(node)]) for node in trees[file]))
    ]
    Random(seed).shuffle(found)  # noqa: S311 - repeatable, not secret
    for file, operator, number in found:
        changed = mutate_code(sources[file], operator, number)
        with warnings.catch_warnings(action="error"), contextlib.suppress(SyntaxError):
            compile(changed, file, "exec")
            yield Mutant(file, sources[file], changed)


class QuickFirst:
    """A plugin of pytest: the quickest tests run first, and Hypothesis ends at the first failure that it finds."""

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings  # noqa: PLC0415 - pytest must import it first

        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("first", settings(), phases=phases, report_multiple_bugs=False)
        settings.load_profile("first")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, "hypothesis" in dir(item.obj)))


def _test(tests: Sequence[str], cpu_seconds: int) -> None:
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
    for descriptor in (1, 2):
        os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    sys.exit(any(pytest.main([*_OPTIONS, test], plugins=[QuickFirst()]) for test in tests))


def passes(tests: Sequence[str], cpu_seconds: int = 600, seconds: float = 600) -> bool:
    """Whether the tests pass within these limits."""
    process = _FORK.Process(target=_test, args=(tests, cpu_seconds))
    process.start()
    process.join(seconds)
    if process.pid is not None and process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
    return process.exitcode == 0


def import_libraries(tests: Sequence[str]) -> None:
    """Collect the tests, and forget the modules of the project."""
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main([*_OPTIONS, "--collect-only", *tests])
    ours = {path.name for path in ROOT.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]


def survivors(module: Module, seed: int, wanted: int, only: Sequence[int]) -> tuple[list[Mutant], int] | None:
    """The mutants that no test kills, and the number of all; None if the tests fail without a mutation."""
    import_libraries(module.tests)
    began, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if not passes(module.tests):
        return None
    seconds = time.monotonic() - began
    cpu_seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - used.ru_utime
    print(f"{seconds:.0f} s without a mutation, {cpu_seconds:.1f} s CPU", flush=True)
    alive: list[Mutant] = []
    total = 0
    for number, mutant in enumerate(itertools.islice(mutants(module.files, seed), wanted)):
        if only and number not in only:
            continue
        total += 1
        Path(mutant.file).write_text(mutant.changed)
        if passes(module.tests, 10 + 3 * round(cpu_seconds), 60 + 5 * seconds):
            alive.append(mutant)
            print(f"mutant {number} survives: {mutant}", flush=True)
        Path(mutant.file).write_text(mutant.original)
        if total % 20 == 0:
            print(f"{total} mutants, {len(alive)} survive, {time.monotonic() - began:.0f} s", flush=True)
    return alive, total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", choices=MODULES, action="append", help="default: all")
    parser.add_argument("--seed", type=int, default=33)
    parser.add_argument("--mutants", type=int, default=200, help="per module; all if it has fewer")
    parser.add_argument("--only", type=int, nargs="+", default=[], help="the numbers of mutants to repeat")
    parser.add_argument("--at-least", type=float, default=0, metavar="PERCENT", help="killed mutants of each module")
    arguments = parser.parse_args()
    if not all(0 <= number < arguments.mutants for number in arguments.only or [0]):
        parser.error("--mutants must be 1 or more, and each number of --only below it")
    rows: list[tuple[str, list[Mutant], int]] = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "node_modules"), dirs_exist_ok=True)
        sys.path[0] = folder
        # Another run of pytest, which deletes old folders of its tests, must not make one fail here.
        os.environ |= {"PYTEST_DEBUG_TEMPROOT": folder, "PYTHONPATH": folder}
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
        for name in arguments.module or MODULES:
            print(f"{name}: ", end="")
            result = survivors(MODULES[name], arguments.seed, arguments.mutants, arguments.only)
            if result is None:
                print(Path("output").read_text())
                print(f"the tests of {name} fail without a mutation", file=sys.stderr)
                return 2
            rows.append((name, *result))
    print(f"\n{'module':16}{'mutants':>8}{'killed':>8}{'share':>9}   seed {arguments.seed}")
    for name, alive, total in rows:
        print(f"{name:16}{total:8}{total - len(alive):8}{1 - len(alive) / total:9.1%}")
    return int(any(100 * (1 - len(alive) / total) < arguments.at_least for _, alive, total in rows))


if __name__ == "__main__":
    sys.exit(main())
