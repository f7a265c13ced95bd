"""Renders kustomizations with kustomize or kubectl from PATH, else with kubectl of a newer Debian."""

import shutil
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import yaml

from compose.programs.cache import default_cache, locked
from compose.programs.debian_packages import unpack_suite
from exporters.text.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
MANIFESTS = ROOT / "compose/kubernetes"
BASE = MANIFESTS / "base"
COMPONENTS = tuple(sorted(path.name for path in (MANIFESTS / "components").iterdir()))
OPTIONAL = tuple(name for name in COMPONENTS if name != "sidecar")
"""The components that `base` does not include."""

_SUITE = "trixie"
_PROBE = "components: []\nconfigMapGenerator: [{name: probe, literals: [a=b]}]\n"

Object = dict[str, Any]


@cache
def program() -> tuple[str, ...]:
    """The command that renders a folder.

    Raises:
        UsageError: there is no program that reads components, and none can be unpacked.
    """
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kustomization.yaml").write_text(_PROBE)
        for command in (("kustomize", "build"), ("kubectl", "kustomize")):
            # Kustomize before 3.7, as in kubectl before 1.21, has no components.
            if (
                shutil.which(command[0])
                and not subprocess.run([*command, folder], capture_output=True, check=False).returncode
            ):
                return command
    cached = default_cache()
    target = cached / f"kubectl-{_SUITE}"
    with locked(cached, partial(print, file=sys.stderr)):
        if not target.is_dir():
            unpack_suite(target, _SUITE, "kubectl", ["a kustomize or kubectl that reads components"])
    return str(target / "usr/bin/kubectl"), "kustomize"


def render(folder: Path) -> str:
    """The manifests of a kustomization.

    Raises:
        UsageError: no program, or it rejects the kustomization.
    """
    done = subprocess.run([*program(), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"{folder}: {done.stderr.strip()}")
    return done.stdout


def with_components(folder: Path, components: tuple[str, ...], resources: tuple[Path, ...] = (BASE,)) -> str:
    """The manifests of a kustomization in `folder`, an empty folder, of these resources and components."""

    def relative(path: Path) -> str:
        return str(Path(*[".."] * (len(folder.resolve().parts) - 1), *path.resolve().parts[1:]))

    listed = {
        "resources": [relative(path) for path in resources],
        "components": [relative(MANIFESTS / "components" / name) for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(listed))
    return render(folder)


def objects(manifests: str) -> list[Object]:
    return list(yaml.load_all(manifests, _Loader))


class _Loader(yaml.SafeLoader):
    """Reads a plain `=`, for which PyYAML has a tag and no constructor, as text, as YAML 1.2 does."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: str(node.value))
