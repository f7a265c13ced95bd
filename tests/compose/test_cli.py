"""`vllm-slo` with an extra that is not installed: the message names the command that installs it."""

import importlib
from typing import NoReturn

import pytest

from compose import cli
from loadgen.run import settings


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


_RUN = ["load", "run", "mixed", "--target", "http://127.0.0.1:1", "--out", "results"]


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
