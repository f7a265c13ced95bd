"""Debian packages: the patch of their Alertmanager, and packages of a newer suite."""

import re
from pathlib import Path

import pytest

from compose.programs.debian_packages import relocate, unpack_suite
from exporters.text.errors import UsageError


def test_the_relative_template_folder_keeps_every_offset_of_the_binary() -> None:
    binary = b"\x7fELF..\x00/usr/share/prometheus/alertmanager/default.tmpl\x00after"
    relocated = relocate(binary)
    assert len(relocated) == len(binary)
    assert b"\x00usr//share/prometheus/alertmanager/default.tmpl\x00after" in relocated


ARCHIVES = "echo http://security.example.org/debian-security/\necho http://deb.example.org/debian/"
NO_PACKAGE = "echo 'E: Unable to locate package kubectl' >&2; exit 100"


def add_apt(folder: Path, *, archives: str = ARCHIVES, update: str = ":", download: str = ": > kubectl.deb") -> None:
    """An apt-get with these scripts, and a dpkg-deb that unpacks the sources.list of the download as `kubectl`."""
    folder.mkdir()
    cases = f"*indextargets*) {archives};; *update*) {update};; *download*) {download};;"
    (folder / "apt-get").write_text(f'#!/bin/sh\ncase "$*" in {cases} esac\n')
    (folder / "dpkg-deb").write_text('#!/bin/sh\n/bin/cp sources.list "$3/kubectl"\n')
    for program in folder.iterdir():
        program.chmod(0o755)


def test_a_package_of_a_newer_suite_comes_from_the_debian_archive_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    add_apt(tmp_path / "bin")
    unpack_suite(tmp_path / "target", "trixie", "kubectl", ["kustomize"])
    source = (tmp_path / "target/kubectl").read_text()
    assert re.fullmatch(r"deb \[signed-by=/\S+\.gpg\] http://deb\.example\.org/debian/ trixie main\n", source)


@pytest.mark.parametrize(
    "scripts, message",
    [
        pytest.param(
            {"download": NO_PACKAGE},
            "cannot download the packages kubectl: Unable to locate package kubectl",
            id="no such package",
        ),
        pytest.param(
            {"archives": ":"},
            "cannot download the package kubectl of trixie: the sources of apt contain no Debian archive",
            id="another distribution",
        ),
        pytest.param(
            {"archives": ":", "update": "echo 'W: Failed to fetch the index' >&2"},
            "cannot download the package kubectl of trixie: Failed to fetch the index",
            id="no network",
        ),
        pytest.param(
            None, "not on PATH: kustomize; apt-get, which could download them, is missing too", id="no apt-get"
        ),
    ],
)
def test_a_package_that_cannot_be_unpacked_leaves_no_folder(
    scripts: dict[str, str] | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    if scripts is not None:
        add_apt(tmp_path / "bin", **scripts)
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        unpack_suite(tmp_path / "target", "trixie", "kubectl", ["kustomize"])
    assert not (tmp_path / "target").exists()
