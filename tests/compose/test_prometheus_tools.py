"""Prometheus and Alertmanager come from PATH, and are unpacked only if they are missing."""

from pathlib import Path

import pytest

from compose.prometheus_tools import find_tools, relocate
from exporters.errors import UsageError

PROGRAMS = ("prometheus", "promtool", "amtool")


def put(folder: Path, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("alertmanager", ["alertmanager", "prometheus-alertmanager"])
def test_what_is_on_path_is_used_and_nothing_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, alertmanager: str
) -> None:
    put(tmp_path / "bin", *PROGRAMS, alertmanager)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    tools = find_tools(tmp_path / "cache")
    assert tools.alertmanager == tmp_path / "bin" / alertmanager
    assert tools.prometheus == tmp_path / "bin/prometheus"
    assert tools.alertmanager_cwd is None
    assert not (tmp_path / "cache").exists()


def test_without_apt_the_message_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "bin", "prometheus")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(UsageError) as refusal:
        find_tools(tmp_path / "cache")
    assert str(refusal.value) == (
        "no Prometheus on PATH and no apt-get to fetch it with; "
        "install prometheus, promtool, alertmanager and amtool and put them on PATH"
    )


def test_a_failing_fetch_leaves_nothing_half_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "bin", "dpkg-deb")
    apt = tmp_path / "bin/apt-get"
    apt.write_text("#!/bin/sh\necho 'E: Unable to locate package prometheus' >&2\nexit 100\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    with pytest.raises(UsageError, match=r"cannot fetch the packages .*: Unable to locate package prometheus; install"):
        find_tools(tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["lock"]


def test_the_moved_template_folder_keeps_every_offset_of_the_binary() -> None:
    binary = b"\x7fELF..\x00/usr/share/prometheus/alertmanager/default.tmpl\x00after"
    moved = relocate(binary)
    assert len(moved) == len(binary)
    assert b"\x00usr//share/prometheus/alertmanager/default.tmpl\x00after" in moved
