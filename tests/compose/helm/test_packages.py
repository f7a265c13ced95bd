"""The package of the chart is reproducible, and comes back unchanged from a registry."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from compose.programs.cache import default_cache, locked
from compose.programs.debian_packages import unpack_packages
from exporters.text.errors import UsageError
from tests.compose.helm.chart import CHART, objects, require_helm, run
from tests.compose.helm.installs import STUB, write
from tests.release.names import names
from tests.support.ports import free_port
from tests.support.waiting import wait_until

TIME = 1_700_000_000
"""The modification time of all files, which is in the archive; the workflow of a release uses that of the commit."""


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    require_helm()


def package(folder: Path) -> Path:
    """Package a copy of the chart, as a fresh clone has it but for the times."""
    chart = folder / "vllm-slo"
    shutil.copytree(CHART, chart)
    for path in (chart, *chart.rglob("*")):
        os.utime(path, (TIME, TIME))
    done = run("package", chart, "--destination", folder)
    assert done.returncode == 0, done.stderr
    (found,) = folder.glob("*.tgz")
    return found


@pytest.mark.slow
def test_a_package_is_reproducible_and_has_the_version_of_the_project(tmp_path: Path) -> None:
    first, second = package(tmp_path / "a"), package(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()
    assert first.name == f"vllm-slo-{names()['version']}.tgz"


@contextmanager
def registry(folder: Path) -> Iterator[str]:
    """Debian's registry on a free port; its host and port."""
    program = shutil.which("docker-registry")
    if program is None:
        target = default_cache() / "docker-registry"
        try:
            with locked(target.parent, partial(print, file=sys.stderr)):
                if not target.is_dir():
                    unpack_packages(target, ["docker-registry"])
        except UsageError as error:
            pytest.skip(str(error))
        program = str(target / "usr/bin/docker-registry")
    address = f"127.0.0.1:{free_port()}"
    storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
    config = write({"version": 0.1, "storage": storage, "http": {"addr": address}}, folder / "config.yml")
    process = subprocess.Popen([program, "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: process.poll() is not None or _answers(address))
        assert process.poll() is None
        yield address
    finally:
        process.terminate()
        process.wait()


def _answers(address: str) -> bool:
    try:
        with urlopen(f"http://{address}/v2/") as response:
            return bool(response.status == 200)
    except URLError:
        return False


@pytest.mark.long
def test_a_registry_returns_the_pushed_chart_and_helm_renders_it_from_there(tmp_path: Path) -> None:
    pushed = package(tmp_path / "pushed")
    (tmp_path / "pulled").mkdir()
    with registry(tmp_path) as address:
        url, plain = f"oci://{address}/charts", "--plain-http"
        assert run("push", pushed, url, plain).returncode == 0
        version = ("--version", names()["version"], plain)
        assert run("pull", f"{url}/vllm-slo", *version, "--destination", tmp_path / "pulled").returncode == 0
        values = write(STUB, tmp_path / "values.yaml")
        done = run("template", "vllm", f"{url}/vllm-slo", *version, "--values", values)
    assert done.returncode == 0, done.stderr
    assert {each["kind"] for each in objects(done.stdout)} >= {"Deployment", "Service", "PrometheusRule"}
    digests = [hashlib.sha256(each.read_bytes()).hexdigest() for each in (pushed, tmp_path / "pulled" / pushed.name)]
    assert digests[0] == digests[1]
