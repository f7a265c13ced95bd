"""Finds Prometheus and Alertmanager on PATH, else unpacks them from the machine's own Debian or Ubuntu archive."""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import UsageError, system_reason

_ON_PATH = {
    "prometheus": ("prometheus",),
    "promtool": ("promtool",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),  # the second is Debian's name
    "amtool": ("amtool",),
}
_PACKAGES = ("prometheus", "prometheus-alertmanager")
_INSTALL = "install prometheus, promtool, alertmanager and amtool and put them on PATH"

# Debian's Alertmanager opens its templates by an absolute path. Both spellings have the same length, so the second can
# be written over the first inside a private copy of the binary, which then finds them from its working directory.
_TEMPLATES = b"/usr/share/prometheus/alertmanager"
_TEMPLATES_FROM_ROOT = b"usr//share/prometheus/alertmanager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The four programs; start Alertmanager in `alertmanager_cwd` and give it absolute paths unless that is None."""

    prometheus: Path
    promtool: Path
    alertmanager: Path
    amtool: Path
    alertmanager_cwd: Path | None


def find_tools(cache: Path | None = None) -> Tools:
    """The programs on PATH; missing ones are unpacked into `cache` once, without root and without changing the system.

    Raises:
        UsageError: a program is missing and cannot be unpacked; says what to install.
    """
    on_path = {name: _on_path(names) for name, names in _ON_PATH.items()}
    unpacked = None if all(on_path.values()) else _unpacked(cache or default_cache())

    def program(name: str) -> Path:
        path = on_path[name]
        if path is not None:
            return path
        assert unpacked is not None  # noqa: S101 - for the type checker: something is missing, so it was unpacked
        return unpacked / "usr/bin" / name

    return Tools(
        prometheus=program("prometheus"),
        promtool=program("promtool"),
        alertmanager=program("alertmanager"),
        amtool=program("amtool"),
        alertmanager_cwd=unpacked if on_path["alertmanager"] is None else None,
    )


def default_cache() -> Path:
    """`.lab/tools` of the checkout that this module runs from, else a folder of the user's cache."""
    project = Path(__file__).resolve().parent.parent
    if (project / "pyproject.toml").is_file() and os.access(project, os.W_OK):
        return project / ".lab" / "tools"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-slo" / "tools"


def relocate(binary: bytes) -> bytes:
    """The Alertmanager binary with its template folder made relative to the working directory."""
    return binary.replace(_TEMPLATES, _TEMPLATES_FROM_ROOT)


def _on_path(names: Sequence[str]) -> Path | None:
    return next((Path(path) for path in map(shutil.which, names) if path), None)


def _unpacked(cache: Path) -> Path:
    cache = cache.absolute()
    root = cache / "prometheus"
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((cache / "lock").open("w"))
        except OSError as error:
            raise UsageError(f"{cache}: cannot be written: {system_reason(error)}") from error
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second process waits here, then uses the folder
        if not root.is_dir():
            for program in ("apt-get", "dpkg-deb"):
                if shutil.which(program) is None:
                    raise UsageError(f"no Prometheus on PATH and no {program} to fetch it with; {_INSTALL}")
            for stale in cache.glob("unpacking-*"):  # of a process that was killed, as the lock is free
                shutil.rmtree(stale, ignore_errors=True)
            print(f"unpacking Prometheus and Alertmanager into {root} (once, up to a minute)", file=sys.stderr)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=cache, prefix="unpacking-")))
            _unpack(work)
            (work / "root").rename(root)  # atomic, so that the folder is always complete
    return root


def _unpack(work: Path) -> None:
    root, apt = work / "root", _private_apt(work)
    root.mkdir()
    refreshed = _run([*apt, "update"], work)  # may fail for a source that is not needed, so the download decides
    for names in (_PACKAGES, *((name,) for name in ("promtool", "amtool"))):
        if names != _PACKAGES and (root / "usr/bin" / names[0]).exists():
            continue  # bookworm has promtool in `prometheus`, later releases in a package of its own
        fetched = _run([*apt, "download", *names], work)
        if fetched.returncode:
            reason = _error_message(refreshed) or _error_message(fetched) or "apt-get gave no reason"
            raise UsageError(f"cannot fetch the packages {', '.join(names)}: {reason}; {_INSTALL}")
        for package in sorted(work.glob("*.deb")):
            extracted = _run(["dpkg-deb", "-x", str(package), str(root)], work)
            if extracted.returncode:
                raise UsageError(f"cannot unpack {package.name}: {_error_message(extracted)}; {_INSTALL}")
            package.unlink()
    programs = root / "usr/bin"
    alertmanager = programs / "alertmanager"
    alertmanager.write_bytes(relocate((programs / "prometheus-alertmanager").read_bytes()))
    alertmanager.chmod(0o755)


def _private_apt(work: Path) -> list[str]:
    """`apt-get` with the machine's sources, keys and proxy, but lists, cache and package state of its own."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    (work / "status").touch()
    settings = work / "apt.conf"
    settings.write_text(
        f'Dir::State "{work}";\n'
        f'Dir::State::status "{work}/status";\n'
        f'Dir::State::lists "{work}/lists";\n'
        f'Dir::Cache "{work}";\n'
        'Acquire::Languages "none";\n'
        'Acquire::IndexTargets::deb-src::Sources::DefaultEnabled "false";\n'
        'APT::Sandbox::User "root";\n'  # the user `_apt` cannot write here; without root it has no effect
        "#clear APT::Update;\n"  # hooks of the machine clean and refresh folders of the system
        "#clear DPkg;\n"
    )
    return ["apt-get", "-q", "-c", str(settings)]


def _run(command: Sequence[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"}
    )


def _error_message(process: subprocess.CompletedProcess[str]) -> str:
    """The first error, else the first warning: apt-get only warns when there is no network."""
    lines = [line.strip() for line in process.stderr.splitlines()]
    for mark in ("E: ", "dpkg-deb: error: ", "W: "):
        for line in lines:
            if line.startswith(mark):
                return line.removeprefix(mark)
    return ""
