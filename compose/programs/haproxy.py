"""HAProxy: found on PATH or unpacked from Debian packages."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from compose.processes.child_processes import Service
from compose.programs.cache import default_cache, locked
from compose.programs.debian_packages import unpack_packages
from exporters.text.errors import UsageError

_PACKAGES = ("haproxy", "liblua5.3-0", "libopentracing-c-wrapper0", "libopentracing1")


@dataclass(frozen=True, slots=True)
class Haproxy:
    """A program with the environment in which it finds its libraries."""

    program: Path
    environment: Mapping[str, str]

    def service(self, config: Path, text: str, ready_url: str) -> Service:
        """The process with this configuration, which is written to the file."""
        config.write_text(text, encoding="utf-8")
        command = (str(self.program), "-db", "-f", str(config))
        return Service(name="haproxy", command=command, ready_url=ready_url, env=self.environment)


def find_haproxy(cache: Path | None = None) -> Haproxy:
    """The program on PATH; otherwise it is unpacked into `cache`, without root and without changing the system.

    Raises:
        UsageError: it is not there and cannot be unpacked; says what to install.
    """
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    if (program := shutil.which("haproxy", path=path)) is not None:
        return Haproxy(Path(program), {})
    cache = (cache or default_cache()).absolute()
    root = cache / "haproxy"
    try:
        with locked(cache, partial(print, file=sys.stderr)):
            if not root.is_dir():
                unpack_packages(root, _PACKAGES)
    except UsageError as error:
        raise UsageError(f"{error}; install haproxy and put it on PATH") from error
    libraries = ":".join(sorted({str(path.parent) for path in (root / "usr/lib").glob("*/*.so*")}))
    return Haproxy(root / "usr/sbin/haproxy", {"LD_LIBRARY_PATH": libraries})
