"""Downloads, verifies and unpacks the official release archives of Prometheus and Alertmanager, pinned by SHA-256."""

import hashlib
import http.client
import json
import os
import platform
import shutil
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from compose.programs.cache import Report, unpacking
from exporters.text.addresses import parse_url
from exporters.text.errors import UsageError, system_reason

LOCK = Path(__file__).parents[1] / "programs.lock"
"""The pins; `python -m compose.programs.lock_programs` writes them."""

BASE_VARIABLE = "VLLM_SLO_RELEASES"
"""The environment variable with the address of a mirror; paths below it are those of the project's releases."""

PLATFORMS = ("linux-amd64", "linux-arm64", "darwin-amd64", "darwin-arm64")

_PROGRAMS = {"prometheus": ("prometheus", "promtool"), "alertmanager": ("alertmanager", "amtool")}
_SUFFIX = ".tar.gz"
_MACHINES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
_MIB = 2**20
_SIZE_LIMIT = 512 * _MIB
_CHUNK = _MIB
# Seconds for the connection, and for each read.
_TIMEOUT = 30.0


class ArchiveUnavailableError(Exception):
    """No archive is pinned, or the download failed; the caller may use another source."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version of one project; `sha256` has the hash of each pinned archive by its file name."""

    name: str
    version: str
    sha256: Mapping[str, str]

    @property
    def programs(self) -> tuple[str, ...]:
        return _PROGRAMS[self.name]

    def archive(self, target: str) -> str:
        """The file name of the archive for one of PLATFORMS."""
        return f"{self.name}-{self.version}.{target}{_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Pin:
    """An archive for this machine and its SHA-256; `folder` is the name of the archive's only top-level folder."""

    file: str
    sha256: str

    @property
    def folder(self) -> str:
        return self.file.removesuffix(_SUFFIX)


@dataclass(frozen=True, slots=True)
class Lock:
    """The contents of the lock file."""

    base: str
    releases: tuple[Release, ...]

    def url(self, release: Release, file: str) -> str:
        """The address of a file of a release.

        Raises:
            UsageError: the address in the environment is not an http or https URL.
        """
        base = os.environ.get(BASE_VARIABLE) or self.base
        parse_url(BASE_VARIABLE, base, f"one such as {self.base}")
        return f"{base.rstrip('/')}/{release.name}/releases/download/v{release.version}/{file}"


def read_lock() -> Lock:
    data = json.loads(LOCK.read_text(encoding="utf-8"))
    releases = data["releases"].items()
    return Lock(data["base"], tuple(Release(name, each["version"], each["sha256"]) for name, each in releases))


def this_platform() -> str:
    """This machine's platform in the spelling of the archives' names, whether or not archives exist for it."""
    machine = platform.machine().lower()
    return f"{platform.system().lower()}-{_MACHINES.get(machine, machine)}"


def find_pin(release: Release) -> Pin:
    """The archive of a release for this machine.

    Raises:
        ArchiveUnavailableError: the lock file has no checksum for it.
    """
    target = this_platform()
    file = release.archive(target)
    sha256 = release.sha256.get(file)
    if sha256 is None:
        writes = "'python -m compose.programs.lock_programs' writes them"
        hint = writes if target in PLATFORMS else "no archives exist for this platform"
        raise ArchiveUnavailableError(
            f"release archives are off: compose/{LOCK.name} has no checksums for {target} ({hint})"
        )
    return Pin(file, sha256)


def unpack(url: str, pin: Pin, programs: Sequence[str], target: Path, report: Report) -> None:
    """Download an archive, verify its hash, and unpack the programs into the new folder `target`.

    Raises:
        ArchiveUnavailableError: the download failed.
        UsageError: the hash is wrong, or the verified archive does not have the expected contents.
    """
    report(f"downloading {url}")
    with unpacking(target) as work:
        path = work / pin.file
        with path.open("wb") as file:
            actual = download(url, file, report)
        if actual != pin.sha256:
            raise UsageError(
                f"{url}: wrong SHA-256: expected {pin.sha256} (compose/{LOCK.name}), got {actual}; nothing was "
                f"unpacked; check {BASE_VARIABLE} and the proxy, if one is set"
            )
        _extract(path, pin.folder, programs, work / "root")


def download(url: str, file: BinaryIO, report: Report) -> str:
    """Write the response to `file`, with a progress line every 10 %; returns its SHA-256.

    Raises:
        ArchiveUnavailableError: the server does not respond or reports an error, or the file is truncated or too large.
    """
    received, tenths, digest = 0, 0, hashlib.sha256()
    try:
        # Lock.url accepts only http and https.
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as response:  # noqa: S310
            length = int(response.headers.get("Content-Length") or 0)
            while chunk := response.read(_CHUNK):
                received += len(chunk)
                if received > _SIZE_LIMIT:
                    raise ArchiveUnavailableError(f"{url}: larger than {_SIZE_LIMIT / _MIB:g} MiB")
                file.write(chunk)
                digest.update(chunk)
                if length > _CHUNK and received * 10 // length > tenths:
                    tenths = received * 10 // length
                    report(f"  {tenths * 10} % of {length / _MIB:.0f} MiB")
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise ArchiveUnavailableError(f"{url}: {_reason(error)}") from error
    if received < length:
        raise ArchiveUnavailableError(f"{url}: the download ended after {received} of {length} bytes")
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP status {error.code}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return system_reason(cause) if isinstance(cause, OSError) else str(cause)


def _extract(archive: Path, folder: str, programs: Sequence[str], root: Path) -> None:
    """Copy the contents of the programs' files; no path, mode or link of the archive is applied.

    `tarfile`'s extraction filters would do, but Python 3.11.0 to 3.11.3 do not have them.
    """
    missing = set(programs)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                path = PurePosixPath(member.name)
                if path.is_absolute() or ".." in path.parts:
                    raise UsageError(f"{archive.name}: refused, because it has the path {member.name!r}")
                source = tar.extractfile(member) if member.isfile() else None
                if source is None or str(path.parent) != folder or path.name not in missing:
                    continue
                target = root / path.name
                with source, target.open("wb") as out:
                    shutil.copyfileobj(source, out)
                target.chmod(0o755)
                missing.remove(path.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UsageError(f"{archive.name}: cannot be unpacked: {error}") from error
    if missing:
        raise UsageError(f"{archive.name}: has no file {', '.join(f'{folder}/{name}' for name in sorted(missing))}")
