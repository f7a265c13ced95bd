"""Restarts of a real vLLM (its community CPU build), each with one flag changed, and what the sidecar makes of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from compose.vllm_cpu import launch
from compose.vllm_cpu.install import VllmCpu, installed
from exporters.engines.config_changes import FINGERPRINT
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine

SERVER_INFO = {"VLLM_SERVER_DEV_MODE": "1"}

# One after the other, and each flag stays: of two the later one holds. With the environment, and what must be seen
# before the next: vLLM looks around for some seconds before its /server_info answers.
RESTARTS: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "as it is": ((), {}, {}),
    "prefix caching off": (("--no-enable-prefix-caching",), {}, {}),
    "another max-num-seqs": (("--max-num-seqs", "8"), {}, {}),
    "another max-model-len": (("--max-model-len", "2048"), SERVER_INFO, {"scheduling_policy": "fcfs"}),
    "another dtype": (("--dtype", "float32"), SERVER_INFO, {"dtype": "torch.float32"}),
}
LOOKS = 2.0
"""Seconds, ten looks, after the first answer of a process."""

Change = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """What the sidecar shows some looks after the first answer of a process."""

    start: float
    settings: dict[str, str]
    changes: dict[Change, float]


@asynccontextmanager
async def serving(
    made: VllmCpu, port: int, flags: tuple[str, ...], env: dict[str, str], log: Path
) -> AsyncIterator[None]:
    command = (*launch.command(made, "127.0.0.1", port), *flags)
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *command, env={**launch.environment(made), **env}, stdout=out, stderr=out
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


async def look(running: Running) -> Seen:
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
    return Seen(start, settings, changes)


async def gather(made: VllmCpu, folder: Path) -> dict[str, Seen]:
    port, found = free_port(), {}
    flags: tuple[str, ...] = ()
    last = 0.0
    async with sidecar(folder, f"http://127.0.0.1:{port}") as running:
        for name, (more, env, told) in RESTARTS.items():
            flags += more
            async with serving(made, port, flags, env, folder / "vllm"):

                async def noticed(last: float = last) -> bool:
                    return (await look(running)).start > last

                await until(noticed)

                async def tells_all(told: dict[str, str] = told) -> bool:
                    return (await look(running)).settings.items() >= told.items()

                assert await running.ask(name) == 200
                await until(tells_all, 30)
                await asyncio.sleep(LOOKS)
                found[name] = await look(running)
            last = found[name].start
    return found


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    return asyncio.run(gather(installed(print), tmp_path_factory.mktemp("flips")))


def before(seen: dict[str, Seen], name: str) -> Seen:
    names = list(seen)
    return seen[names[names.index(name) - 1]]


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
def test_a_restart_with_another_flag_is_one_flip_at_the_start_of_the_process(
    seen: dict[str, Seen], name: str, setting: str, values: tuple[str, str] | None
) -> None:
    was, is_ = before(seen, name), seen[name]
    old, new = values or (was.settings[FINGERPRINT], is_.settings[FINGERPRINT])
    assert old != new
    added = {change: at for change, at in is_.changes.items() if was.changes.get(change) != at}
    assert added == {(setting, old, new): is_.start}


def test_a_process_with_the_same_values_shows_the_same_fingerprint(seen: dict[str, Seen]) -> None:
    """Prefix caching is not in it."""
    assert seen["prefix caching off"].settings[FINGERPRINT] == seen["as it is"].settings[FINGERPRINT]


@pytest.mark.parametrize("name", ["another max-model-len", "another dtype"])
def test_the_fingerprint_tells_of_it_too_and_does_not_count(seen: dict[str, Seen], name: str) -> None:
    assert before(seen, name).settings[FINGERPRINT] != seen[name].settings[FINGERPRINT]


def test_what_server_info_adds_are_settings_by_name(seen: dict[str, Seen]) -> None:
    name = "another max-model-len"
    assert "scheduling_policy" not in before(seen, name).settings
    assert seen[name].settings.items() >= {
        ("scheduling_policy", "fcfs"),
        ("max_num_seqs", "8"),
        ("dtype", "torch.bfloat16"),
        ("VLLM_SERVER_DEV_MODE", "True"),
    }
