"""Unpacks Debian packages of the machine's sources beside the system's."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from compose.programs.cache import Report, unpacking
from exporters.text.errors import UsageError

_PACKAGES = ("prometheus", "prometheus-alertmanager")

# Debian's Alertmanager opens its templates by an absolute path. The relative path has the same length, so it can
# replace the absolute one in a private copy of the binary, which then finds the templates from its working directory.
_TEMPLATES = b"/usr/share/prometheus/alertmanager"
_TEMPLATES_FROM_ROOT = b"usr//share/prometheus/alertmanager"


def folder(cache: Path) -> Path:
    """Where `unpack` unpacks to; it exists if that was done before."""
    return cache / "prometheus"


def unpack(cache: Path, missing: Sequence[str], report: Report) -> Path:
    """The folder with the unpacked packages; `missing` is for the message. Call it under the lock of `cache`.

    Raises:
        UsageError: the packages cannot be downloaded or unpacked.
    """
    root = folder(cache)
    if not root.is_dir():
        _require_apt(missing)
        report(f"unpacking Debian packages of Prometheus and Alertmanager into {root} (once, up to a minute)")
        with unpacking(root) as work:
            _download_and_unpack(work)
    return root


def unpack_packages(target: Path, packages: Sequence[str], suite: str = "") -> None:
    """Unpack packages of the machine's sources, or of another suite of Debian there, into `target`.

    Call it under the lock.

    Raises:
        UsageError: the packages cannot be downloaded or unpacked.
    """
    _require_apt(packages)
    with unpacking(target) as work:
        apt = _private_apt(work)
        if suite:
            apt += _from_suite(apt, suite, work)
        _unpack_packages(apt, packages, work, _run([*apt, "update"], work))


def relocate(binary: bytes) -> bytes:
    """The Alertmanager binary with its template folder made relative to the working directory."""
    return binary.replace(_TEMPLATES, _TEMPLATES_FROM_ROOT)


def _require_apt(missing: Sequence[str]) -> None:
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            raise UsageError(f"not on PATH: {', '.join(missing)}; {program}, which could download them, is missing too")


def _download_and_unpack(work: Path) -> None:
    root, apt = work / "root", _private_apt(work)
    # The update may fail for a source that is not needed, so only the download's exit status counts.
    updated = _run([*apt, "update"], work)
    for names in (_PACKAGES, ("promtool",), ("amtool",)):
        # Bookworm has promtool in `prometheus`, later releases in a package of its own.
        if names != _PACKAGES and (root / "usr/bin" / names[0]).exists():
            continue
        _unpack_packages(apt, names, work, updated)
    programs = root / "usr/bin"
    alertmanager = programs / "alertmanager"
    alertmanager.write_bytes(relocate((programs / "prometheus-alertmanager").read_bytes()))
    alertmanager.chmod(0o755)


def _unpack_packages(
    apt: Sequence[str], names: Sequence[str], work: Path, updated: subprocess.CompletedProcess[str]
) -> None:
    downloaded = _run([*apt, "download", *names], work)
    if downloaded.returncode:
        reason = _error_message(updated) or _error_message(downloaded) or "apt-get gave no reason"
        raise UsageError(f"cannot download the packages {', '.join(names)}: {reason}")
    for package in sorted(work.glob("*.deb")):
        extracted = _run(["dpkg-deb", "-x", str(package), str(work / "root")], work)
        if extracted.returncode:
            raise UsageError(f"cannot unpack {package.name}: {_error_message(extracted)}")
        package.unlink()


def _private_apt(work: Path) -> list[str]:
    """`apt-get` with the machine's sources, keys and proxy, but with its own lists, cache and package state."""
    for name in ("lists/partial", "archives/partial"):
        (work / name).mkdir(parents=True)
    (work / "status").touch()
    settings = work / "apt.conf"
    # The sandbox user `_apt` cannot write to `work`; without root the setting has no effect. The machine's hooks, which
    # clean and refresh folders of the system, are cleared.
    settings.write_text(
        f'Dir::State "{work}";\n'
        f'Dir::State::status "{work}/status";\n'
        f'Dir::State::lists "{work}/lists";\n'
        f'Dir::Cache "{work}";\n'
        'Acquire::Languages "none";\n'
        'Acquire::IndexTargets::deb-src::Sources::DefaultEnabled "false";\n'
        'APT::Sandbox::User "root";\n'
        "#clear APT::Update;\n"
        "#clear DPkg;\n"
    )
    return ["apt-get", "-q", "-c", str(settings)]


def _from_suite(apt: Sequence[str], suite: str, work: Path) -> list[str]:
    """Options for the Debian archive of the machine's sources, with this suite."""
    found = re.search(r"'(\S+/debian)/dists/", _run([*apt, "update", "--print-uris"], work).stdout)
    if found is None:
        raise UsageError(f"the sources of apt-get have no archive of Debian, which has the suite {suite}")
    sources = work / "suite.list"
    sources.write_text(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {found[1]} {suite} main\n")
    return ["-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=-"]


def _run(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )


def _error_message(process: subprocess.CompletedProcess[str]) -> str:
    """The first error, else the first warning: without a network apt-get prints only warnings."""
    lines = [line.strip() for line in process.stderr.splitlines()]
    for mark in ("E: ", "dpkg-deb: error: ", "W: "):
        for line in lines:
            if line.startswith(mark):
                return line.removeprefix(mark)
    return ""
