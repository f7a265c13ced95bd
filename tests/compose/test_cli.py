"""`vllm-slo` with an extra that is not installed: the message names the command that installs it."""

import importlib
import importlib.metadata
import subprocess
import sys
from typing import NoReturn

import pytest
from packaging.utils import canonicalize_name

from compose import cli
from loadgen.run import settings
from tests.support.image_locks import LOCKS, ROOT, pinned


def _absent(name: str) -> NoReturn:
    raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.mark.parametrize(
    "command, extra",
    [("sidecar", "sidecar"), ("dashboards", "dashboards"), ("load", "loadgen"), ("experiment", "lab"), ("up", "lab")],
)
def test_a_command_whose_packages_are_not_installed_says_what_to_install(
    command: str, extra: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda _: _absent("prometheus_client.core"))
    assert cli.main([command]) == 2
    assert capsys.readouterr().err == (
        f"vllm-slo: the package 'prometheus_client' is not installed; this command needs the extra '{extra}'; "
        f"in the clone of vllm-slo: pip install '.[{extra}]'\n"
    )


_RUN = ["load", "run", "--scenario", "mixed", "--target", "http://127.0.0.1:1", "--out", "results"]


def test_a_package_that_only_the_run_of_a_command_imports_is_reported_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(settings, "from_arguments", lambda _: _absent("locust"))
    assert cli.main(_RUN) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: the package 'locust' is not installed; this command needs the extra 'loadgen'; "
        "in the clone of vllm-slo: pip install '.[loadgen]'\n"
    )


def test_a_missing_module_of_ours_is_a_bug_and_not_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "from_arguments", lambda _: _absent("loadgen.gone"))
    with pytest.raises(ModuleNotFoundError):
        cli.main(_RUN)


def test_a_command_that_the_image_of_the_sidecar_lacks_names_the_image_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(cli.COMMANDS, "doctor", ("compose.gone.command", "a command whose folder is not there"))
    assert cli.main(["doctor"]) == 2
    assert capsys.readouterr().err == (
        "vllm-slo: the image of the sidecar does not have this command; use the image vllm-slo-tools\n"
    )


_IMPORT_WITHOUT = """
import importlib, sys
absent, modules = (argument.split(",") for argument in sys.argv[1:])
sys.modules.update(dict.fromkeys(absent))
for module in modules:
    importlib.import_module(module)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "image, modules",
    [
        ("sidecar", ["exporters.sidecar.command", "exporters.relay.process", "exporters.analysis.requests.command"]),
        (
            "tools",
            ["alerts.command", "dashboards.preview.server", "compose.doctor.command", "compose.simulation.command"],
        ),
        ("loadgen", ["alerts.command", "loadgen.distributed.headless", "loadgen.search.find_max"]),
    ],
)
def test_the_packages_of_an_image_are_enough_for_its_commands(image: str, modules: list[str]) -> None:
    installed = pinned(f"{LOCKS}/{image}.lock").keys()
    absent = [
        name
        for name, distributions in importlib.metadata.packages_distributions().items()
        if not {canonicalize_name(each) for each in distributions} & {*installed, "vllm-slo"}
    ]
    flags = [",".join(absent), ",".join(modules)]
    run = subprocess.run(
        [sys.executable, "-c", _IMPORT_WITHOUT, *flags], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
