"""`python -m compose.programs.lock_programs` pins what the releases publish, or changes nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from compose.programs import lock_programs, release_archives
from compose.programs.release_archives import PLATFORMS, Release, find_pin, read_lock, this_platform
from tests.compose.release_server import ALERTMANAGER, PROMETHEUS, ReleaseServer, path, serving, write_lock


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseServer]:
    with serving(tmp_path, monkeypatch) as server:
        write_lock()
        yield server


def test_the_lock_file_pins_the_published_checksums_of_every_platform(server: ReleaseServer) -> None:
    published = {release.name: server.publish(release) for release in (PROMETHEUS, ALERTMANAGER)}
    assert lock_programs.main() == 0
    lock = read_lock()
    assert lock.base == "https://releases.invalid/prometheus"
    assert [(release.name, release.version) for release in lock.releases] == [
        (PROMETHEUS.name, PROMETHEUS.version),
        (ALERTMANAGER.name, ALERTMANAGER.version),
    ]
    for release in lock.releases:
        assert set(release.sha256) == {release.archive(target) for target in PLATFORMS}
        assert find_pin(release).sha256 == published[release.name]


def withdraw(server: ReleaseServer, release: Release) -> str:
    del server.files[path(release, "sha256sums.txt")]
    return "HTTP status 404"


def omit_this_platform(server: ReleaseServer, release: Release) -> str:
    archive, file = release.archive(this_platform()), path(release, "sha256sums.txt")
    server.files[file] = server.files[file].replace(archive.encode(), b"other")
    return f"has no checksum of {archive}"


@pytest.mark.parametrize("fault", [withdraw, omit_this_platform])
def test_a_checksum_that_is_not_available_changes_nothing(
    fault: object, server: ReleaseServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.publish(PROMETHEUS)
    server.publish(ALERTMANAGER)
    reason = fault(server, ALERTMANAGER)  # type: ignore[operator]
    before = release_archives.LOCK.read_bytes()
    assert lock_programs.main() == 2
    assert release_archives.LOCK.read_bytes() == before
    assert capsys.readouterr().err == (
        f"lock-programs: {server.url}{path(ALERTMANAGER, 'sha256sums.txt')}: {reason}; "
        f"{release_archives.LOCK} is unchanged\n"
    )


def test_without_a_network_nothing_is_changed(
    server: ReleaseServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing listens on port 1.
    monkeypatch.setenv(release_archives.BASE_VARIABLE, "http://127.0.0.1:1")
    before = release_archives.LOCK.read_bytes()
    assert lock_programs.main() == 2
    assert release_archives.LOCK.read_bytes() == before
    assert "sha256sums.txt: connection refused; " in capsys.readouterr().err
