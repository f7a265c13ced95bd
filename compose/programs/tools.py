"""Finds Prometheus and Alertmanager: on PATH, else in their official release archives, else in Debian packages."""

import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compose.programs import debian_packages, release_archives
from compose.programs.cache import Report, default_cache, locked
from compose.programs.release_archives import ArchiveUnavailableError
from exporters.text.errors import UsageError

_ON_PATH = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    # The second is Debian's name.
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
    "amtool": ("amtool",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The four programs; start Alertmanager in `alertmanager_cwd` and give it absolute paths unless that is None."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path
    alertmanager_cwd: Path | None
    sources: tuple[str, ...] = ()
    """One line per source for the user, with its programs and their folder."""


def find_tools(cache: Path | None = None, report: Report | None = None) -> Tools:
    """Find the four programs; missing ones are unpacked into `cache`, without root and without changing the system.

    `report` receives one line per step that takes time and per source that is not available (default: stderr).

    Raises:
        UsageError: a program is missing and cannot be unpacked; says what to install.
    """
    search = _Search((cache or default_cache()).absolute(), report or partial(print, file=sys.stderr))
    for name, names in _ON_PATH.items():
        if path := next(filter(None, map(shutil.which, names)), None):
            search.add(name, Path(path), "PATH")
    if search.missing():
        try:
            search.unpack()
        except UsageError as error:
            install = "install prometheus, promtool, alertmanager and amtool and put them on PATH"
            raise UsageError(f"{error}; {install}") from error
    return search.tools()


class _Search:
    def __init__(self, cache: Path, report: Report) -> None:
        self._cache, self._report = cache, report
        self._found: dict[str, Path] = {}
        self._sources: dict[str, list[str]] = {}
        self._alertmanager_cwd: Path | None = None

    def missing(self) -> list[str]:
        return [name for name in _ON_PATH if name not in self._found]

    def add(self, name: str, path: Path, source: str) -> None:
        if name not in self._found:
            self._found[name] = path
            self._sources.setdefault(f"from {source}: {path.parent}", []).append(name)

    def tools(self) -> Tools:
        sources = tuple(f"{', '.join(names)} {source}" for source, names in self._sources.items())
        return Tools(**self._found, alertmanager_cwd=self._alertmanager_cwd, sources=sources)

    def unpack(self) -> None:
        with locked(self._cache, self._report):
            for reason in self._add_from_archives():
                self._report(f"{reason}; using Debian packages")
            if missing := self.missing():
                self._add_from_debian(missing)

    def _add_from_archives(self) -> list[str]:
        """Returns the reasons why archives are not available, each once."""
        reasons: dict[str, None] = {}
        lock = release_archives.read_lock()
        for release in lock.releases:
            if set(release.programs).isdisjoint(self.missing()):
                continue
            try:
                folder = self._archive_folder(lock, release)
            except ArchiveUnavailableError as error:
                reasons[str(error)] = None
                continue
            for name in release.programs:
                self.add(name, folder / name, f"the release archive of {release.name} {release.version}")
        return list(reasons)

    def _archive_folder(self, lock: release_archives.Lock, release: release_archives.Release) -> Path:
        pin = release_archives.find_pin(release)
        folder = self._cache / pin.folder
        if not folder.is_dir():
            # Otherwise every start on a machine without a network would wait for the timeout of a download.
            debian = debian_packages.folder(self._cache)
            if debian.is_dir():
                raise ArchiveUnavailableError(f"release archives are not downloaded because {debian} exists")
            release_archives.unpack(lock.url(release, pin.file), pin, release.programs, folder, self._report)
        return folder

    def _add_from_debian(self, missing: Sequence[str]) -> None:
        root = debian_packages.unpack(self._cache, missing, self._report)
        for name in missing:
            self.add(name, root / "usr/bin" / name, "Debian packages")
        if "alertmanager" in missing:
            self._alertmanager_cwd = root
