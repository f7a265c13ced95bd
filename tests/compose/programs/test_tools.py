"""Prometheus and Alertmanager come from PATH, else from release archives, else from Debian packages."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.programs import release_archives
from compose.programs.debian_packages import relocate
from compose.programs.release_archives import this_platform
from compose.programs.tools import find_tools
from exporters.text.errors import UsageError
from tests.compose.release_server import ALERTMANAGER, PROMETHEUS, ReleaseServer, path, serving, write_lock

PROMETHEUS_ARCHIVE, ALERTMANAGER_ARCHIVE = (each.archive(this_platform()) for each in (PROMETHEUS, ALERTMANAGER))
INSTALL = "install prometheus, promtool, alertmanager and amtool and put them on PATH"
OFF = f"release archives are off: compose/programs.lock has no checksums for {this_platform()}"


@pytest.fixture
def path_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder on PATH; empty at first."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseServer]:
    """Both releases are published and pinned."""
    with serving(tmp_path, monkeypatch) as server:
        write_lock(server.publish(PROMETHEUS), server.publish(ALERTMANAGER))
        yield server


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def add_programs(folder: Path, *names: str, script: str = "") -> None:
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\n{script}")
        (folder / name).chmod(0o755)


def add_apt(folder: Path) -> None:
    """An apt-get that downloads one package, and a dpkg-deb that unpacks bookworm's programs from it."""
    add_programs(folder, "apt-get", script='case "$*" in *download*) : > prometheus.deb;; esac\n')
    names = ("prometheus", "promtool", "prometheus-alertmanager", "amtool")
    script = "".join(f'echo debian > "$3/usr/bin/{name}"\n' for name in names)
    add_programs(folder, "dpkg-deb", script=f'/bin/mkdir -p "$3/usr/bin"\n{script}')


@pytest.mark.parametrize("alertmanager", ["alertmanager", "prometheus-alertmanager"])
def test_programs_on_path_are_used_and_nothing_is_downloaded(cache: Path, path_folder: Path, alertmanager: str) -> None:
    add_programs(path_folder, "prometheus", "promtool", "amtool", alertmanager)
    tools = find_tools(cache)
    assert tools.alertmanager == path_folder / alertmanager
    assert tools.prometheus == path_folder / "prometheus"
    assert tools.alertmanager_cwd is None
    assert tools.sources == (f"prometheus, promtool, alertmanager, amtool from PATH: {path_folder}",)
    assert not cache.exists()


def test_missing_programs_come_from_verified_archives_and_are_downloaded_once(
    cache: Path, path_folder: Path, server: ReleaseServer
) -> None:
    add_apt(path_folder)
    tools = find_tools(cache)
    prometheus, alertmanager = (
        cache / file.removesuffix(".tar.gz") for file in (PROMETHEUS_ARCHIVE, ALERTMANAGER_ARCHIVE)
    )
    assert (tools.prometheus, tools.promtool) == (prometheus / "prometheus", prometheus / "promtool")
    assert (tools.alertmanager, tools.amtool) == (alertmanager / "alertmanager", alertmanager / "amtool")
    assert tools.amtool.read_text().endswith("this is amtool\n")
    assert tools.alertmanager_cwd is None
    assert tools.sources == (
        f"prometheus, promtool from the release archive of prometheus 3.9.1: {prometheus}",
        f"alertmanager, amtool from the release archive of alertmanager 0.34.0: {alertmanager}",
    )
    assert find_tools(cache) == tools
    assert server.requests == [path(PROMETHEUS, PROMETHEUS_ARCHIVE), path(ALERTMANAGER, ALERTMANAGER_ARCHIVE)]


def test_only_the_archive_with_a_missing_program_is_downloaded(
    cache: Path, path_folder: Path, server: ReleaseServer
) -> None:
    add_programs(path_folder, "prometheus", "alertmanager", "amtool")
    tools = find_tools(cache)
    assert tools.prometheus.parent == tools.alertmanager.parent == path_folder
    assert tools.promtool.parent.parent == cache
    assert server.requests == [path(PROMETHEUS, PROMETHEUS_ARCHIVE)]


def test_an_archive_with_a_wrong_hash_is_an_error_even_where_debian_packages_are_available(
    cache: Path, path_folder: Path, server: ReleaseServer
) -> None:
    add_apt(path_folder)
    file = path(PROMETHEUS, PROMETHEUS_ARCHIVE)
    published, pinned = hashlib.sha256(server.files[file]).hexdigest(), "0" * 64
    write_lock(pinned)
    with pytest.raises(UsageError) as refusal:
        find_tools(cache)
    assert str(refusal.value) == (
        f"{server.url}{file}: wrong SHA-256: expected {pinned} (compose/programs.lock), got {published}; "
        f"nothing was unpacked; check VLLM_SLO_RELEASES and the proxy, if one is set; {INSTALL}"
    )
    assert [file.name for file in cache.iterdir()] == ["lock"]


def test_without_pins_debian_packages_are_used_at_once(cache: Path, path_folder: Path, server: ReleaseServer) -> None:
    add_apt(path_folder)
    write_lock()
    lines: list[str] = []
    tools = find_tools(cache, lines.append)
    root = cache / "prometheus"
    assert lines == [
        f"{OFF} ('python -m compose.programs.lock_programs' writes them); using Debian packages",
        f"unpacking Debian packages of Prometheus and Alertmanager into {root} (once, up to a minute)",
    ]
    assert tools.sources == (f"prometheus, promtool, alertmanager, amtool from Debian packages: {root / 'usr/bin'}",)
    assert tools.alertmanager == root / "usr/bin/alertmanager"
    assert tools.alertmanager_cwd == root
    assert server.requests == []


def test_without_a_network_debian_packages_are_used_and_the_reason_is_reported(
    cache: Path, path_folder: Path, server: ReleaseServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_apt(path_folder)
    # Nothing listens on port 1.
    monkeypatch.setenv(release_archives.BASE_VARIABLE, "http://127.0.0.1:1")
    lines: list[str] = []
    tools = find_tools(cache, lines.append)
    assert tools.prometheus.parent == cache / "prometheus/usr/bin"
    url = f"http://127.0.0.1:1{path(PROMETHEUS, PROMETHEUS_ARCHIVE)}"
    assert lines[0] == f"downloading {url}"
    assert f"{url}: connection refused; using Debian packages" in lines


def test_debian_packages_replace_only_the_archive_that_is_not_available(
    cache: Path, path_folder: Path, server: ReleaseServer
) -> None:
    add_apt(path_folder)
    server.truncated.add(path(ALERTMANAGER, ALERTMANAGER_ARCHIVE))
    tools = find_tools(cache)
    assert tools.prometheus.parent == cache / PROMETHEUS_ARCHIVE.removesuffix(".tar.gz")
    assert tools.alertmanager_cwd == cache / "prometheus"
    server.truncated.clear()
    server.requests.clear()
    lines: list[str] = []
    assert find_tools(cache, lines.append) == tools
    assert lines == [
        f"release archives are not downloaded because {cache / 'prometheus'} exists; using Debian packages"
    ]
    assert server.requests == []


def test_without_apt_the_message_says_what_to_install(cache: Path, path_folder: Path, server: ReleaseServer) -> None:
    add_programs(path_folder, "prometheus")
    write_lock()
    with pytest.raises(UsageError) as refusal:
        find_tools(cache)
    assert str(refusal.value) == (
        "not on PATH: promtool, alertmanager, amtool; apt-get, which could download them, is missing too; " + INSTALL
    )


def test_a_failed_package_download_leaves_no_folder(cache: Path, path_folder: Path, server: ReleaseServer) -> None:
    add_programs(path_folder, "dpkg-deb")
    add_programs(path_folder, "apt-get", script="echo 'E: Unable to locate package prometheus' >&2\nexit 100\n")
    write_lock()
    reason = "cannot download the packages prometheus, prometheus-alertmanager: Unable to locate package prometheus"
    with pytest.raises(UsageError, match=f"^{reason}; {INSTALL}$"):
        find_tools(cache)
    assert [file.name for file in cache.iterdir()] == ["lock"]


def test_the_relative_template_folder_keeps_every_offset_of_the_binary() -> None:
    binary = b"\x7fELF..\x00/usr/share/prometheus/alertmanager/default.tmpl\x00after"
    relocated = relocate(binary)
    assert len(relocated) == len(binary)
    assert b"\x00usr//share/prometheus/alertmanager/default.tmpl\x00after" in relocated
