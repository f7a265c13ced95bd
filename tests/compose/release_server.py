"""Release archives with small scripts as programs, their checksum files, and a loopback server for both."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from compose.programs import release_archives
from compose.programs.release_archives import PLATFORMS, Release, this_platform

PROMETHEUS = Release("prometheus", "3.9.1", {})
ALERTMANAGER = Release("alertmanager", "0.34.0", {})


class ReleaseServer:
    """`files` are served by path, `truncated` ones only in part; `requests` are the paths requested so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.files: dict[str, bytes] = {}
        self.truncated: set[str] = set()
        self.requests: list[str] = []

    def publish(self, release: Release, changes: Mapping[str, tarfile.TarInfo | None] | None = None) -> str:
        """Serve an archive for this platform, and the checksums of all platforms; returns the archive's SHA-256."""
        archive = release.archive(this_platform())
        content = pack(archive.removesuffix(".tar.gz"), release.programs, changes or {})
        sha256 = hashlib.sha256(content).hexdigest()
        self.files[path(release, archive)] = content
        others = [release.archive(target) for target in PLATFORMS if target != this_platform()]
        lines = [f"{hashlib.sha256(other.encode()).hexdigest()}  {other}\n" for other in others]
        self.files[path(release, "sha256sums.txt")] = "".join([*lines, f"{sha256}  {archive}\n"]).encode()
        return sha256


def path(release: Release, file: str) -> str:
    return f"/{release.name}/releases/download/v{release.version}/{file}"


def pack(folder: str, programs: tuple[str, ...], changes: Mapping[str, tarfile.TarInfo | None]) -> bytes:
    """An archive in the official layout; `changes` replaces a member by its name or, with None, omits it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name in (*programs, "LICENSE"):
            script = f"#!/bin/sh\necho this is {name}\n".encode()
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(script)
            if (changed := changes.get(name, member)) is not None:
                tar.addfile(changed, io.BytesIO(script))
    return out.getvalue()


def write_lock(prometheus: str | None = None, alertmanager: str | None = None) -> None:
    """Pin the archives for this platform by these hashes; None leaves a release without checksums."""
    releases = {
        release.name: {
            "version": release.version,
            "sha256": {} if sha256 is None else {release.archive(this_platform()): sha256},
        }
        for release, sha256 in ((PROMETHEUS, prometheus), (ALERTMANAGER, alertmanager))
    }
    text = json.dumps({"base": "https://releases.invalid/prometheus", "releases": releases})
    release_archives.LOCK.write_text(text)


@contextmanager
def serving(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ReleaseServer]:
    """A server that the environment names as the mirror, and a lock file of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            releases.requests.append(self.path)
            content = releases.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if self.path in releases.truncated else content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    releases = ReleaseServer(f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv(release_archives.BASE_VARIABLE, releases.url)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(release_archives, "LOCK", folder / "programs.lock")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield releases
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
