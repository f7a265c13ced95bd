"""Release archives: which one is pinned, what a failed download reports, and which contents are refused."""

import platform
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from compose.lab import rewrite_config
from compose.programs import release_archives
from compose.programs.release_archives import ArchiveUnavailableError, Pin, find_pin, read_lock, this_platform
from exporters.text.errors import UsageError
from tests.compose.release_server import PROMETHEUS, ReleaseServer, path, serving, write_lock

ARCHIVE = PROMETHEUS.archive(this_platform())
FOLDER = ARCHIVE.removesuffix(".tar.gz")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


def unpack(server: ReleaseServer, sha256: str, target: Path) -> list[str]:
    write_lock(sha256)
    lines: list[str] = []
    target.parent.mkdir()
    url = read_lock().url(PROMETHEUS, ARCHIVE)
    assert url == server.url + path(PROMETHEUS, ARCHIVE)
    release_archives.unpack(url, Pin(ARCHIVE, sha256), PROMETHEUS.programs, target, lines.append)
    return lines


@pytest.mark.parametrize(
    "system, machine, expected",
    [
        ("Linux", "x86_64", "linux-amd64"),
        ("Linux", "aarch64", "linux-arm64"),
        ("Darwin", "x86_64", "darwin-amd64"),
        ("Darwin", "arm64", "darwin-arm64"),
    ],
)
def test_an_archive_is_named_after_the_platform(
    system: str, machine: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "system", lambda: system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert PROMETHEUS.archive(this_platform()) == f"prometheus-3.9.1.{expected}.tar.gz"


def test_a_platform_without_archives_has_no_pin(server: ReleaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "FreeBSD")
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(ArchiveUnavailableError) as error:
        find_pin(PROMETHEUS)
    assert str(error.value) == (
        "release archives are off: compose/programs.lock has no checksums for freebsd-riscv64 "
        "(no archives exist for this platform)"
    )


def test_the_lock_file_has_the_versions_of_the_container_lab() -> None:
    services = yaml.safe_load((rewrite_config.COMPOSE_DIRECTORY / "compose.yaml").read_text())["services"]
    for release in read_lock().releases:
        assert services[release.name]["image"] == f"prom/{release.name}:v{release.version}"


def test_without_a_mirror_files_come_from_the_official_releases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(release_archives.BASE_VARIABLE, raising=False)
    assert read_lock().url(PROMETHEUS, "x").startswith("https://github.com/prometheus/prometheus/releases/download/v")


@pytest.mark.parametrize("mirror", ["file:///etc", "mirror.example"])
def test_a_mirror_must_be_a_url(mirror: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(release_archives.BASE_VARIABLE, mirror)
    with pytest.raises(
        UsageError, match=f"VLLM_SLO_RELEASES: '{mirror}' is not a valid URL; write one such as https://"
    ):
        read_lock().url(PROMETHEUS, "x")


def test_the_programs_and_no_other_files_are_unpacked(
    server: ReleaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_archives, "_CHUNK", 64)
    target = tmp_path / "cache" / FOLDER
    lines = unpack(server, server.publish(PROMETHEUS), target)
    assert {file.name: file.read_text() for file in target.iterdir()} == {
        name: f"#!/bin/sh\necho this is {name}\n" for name in PROMETHEUS.programs
    }
    assert all(file.stat().st_mode & 0o111 for file in target.iterdir())
    assert list(target.parent.iterdir()) == [target]
    assert lines[0] == f"downloading {server.url}{path(PROMETHEUS, ARCHIVE)}"
    assert lines[-1] == "  100 % of 0 MiB"


def truncate(server: ReleaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    server.truncated.add(path(PROMETHEUS, ARCHIVE))


def withdraw(server: ReleaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    del server.files[path(PROMETHEUS, ARCHIVE)]


def limit_size(server: ReleaseServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_archives, "_SIZE_LIMIT", 100)


@pytest.mark.parametrize(
    "fault, reason",
    [
        pytest.param(truncate, r"the download ended after \d+ of \d+ bytes", id="truncated"),
        pytest.param(withdraw, "HTTP status 404", id="no such file"),
        pytest.param(limit_size, "larger than .* MiB", id="too large"),
    ],
)
def test_a_failed_download_is_reported_with_its_reason_and_leaves_no_file(
    fault: object, reason: str, server: ReleaseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sha256 = server.publish(PROMETHEUS)
    fault(server, monkeypatch)  # type: ignore[operator]
    with pytest.raises(ArchiveUnavailableError, match=f"^{server.url}{path(PROMETHEUS, ARCHIVE)}: {reason}$"):
        unpack(server, sha256, tmp_path / "cache" / FOLDER)
    assert list((tmp_path / "cache").iterdir()) == []


def link(name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(f"{FOLDER}/{name}")
    member.type, member.linkname = tarfile.SYMTYPE, "/bin/sh"
    return member


@pytest.mark.parametrize(
    "changes, message",
    [
        pytest.param({"LICENSE": tarfile.TarInfo("../../evil")}, r"refused, .* path '../../evil'", id="traversal"),
        pytest.param({"LICENSE": tarfile.TarInfo("/etc/evil")}, r"refused, .* path '/etc/evil'", id="absolute path"),
        pytest.param({"promtool": link("promtool")}, f"has no file {FOLDER}/promtool", id="link"),
        pytest.param({"promtool": None}, f"has no file {FOLDER}/promtool", id="no such program"),
    ],
)
def test_an_archive_with_unexpected_contents_is_refused(
    changes: dict[str, tarfile.TarInfo | None], message: str, server: ReleaseServer, tmp_path: Path
) -> None:
    sha256 = server.publish(PROMETHEUS, changes)
    with pytest.raises(UsageError, match=f"^{ARCHIVE}: {message}$"):
        unpack(server, sha256, tmp_path / "cache" / FOLDER)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_file_that_is_not_an_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar.gz"
    archive.write_bytes(b"<html>")
    with pytest.raises(UsageError, match=r"^x\.tar\.gz: cannot be unpacked: "):
        release_archives._extract(archive, "x", ("x",), tmp_path)
