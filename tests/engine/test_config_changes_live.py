"""The sidecar detects a config change at each restart of a real vLLM (its community CPU build) with another flag."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporters.engines.changes.config_changes import FINGERPRINT
from tests.engine.vllm_process import vllm
from tests.support.ports import free_port
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.engine

SERVER_INFO = {"VLLM_SERVER_DEV_MODE": "1"}

# Flags, which later restarts keep, the environment, and settings that must be visible before the next restart, because
# vLLM's /server_info responds only some seconds after the start.
RESTARTS: dict[str, tuple[tuple[str, ...], dict[str, str], dict[str, str]]] = {
    "unchanged": ((), {}, {}),
    "prefix caching off": (("--no-enable-prefix-caching",), {}, {}),
    "another max-num-seqs": (("--max-num-seqs", "8"), {}, {}),
    "another max-model-len": (("--max-model-len", "2048"), SERVER_INFO, {"scheduling_policy": "fcfs"}),
    "another dtype": (("--dtype", "float32"), SERVER_INFO, {"dtype": "torch.float32"}),
}
SCRAPES = 2.0
"""Seconds after the first response of a process, enough for ten scrapes of the engine."""

Change = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The sidecar's metrics some scrapes after the first response of a process."""

    start: float
    settings: dict[str, str]
    changes: dict[Change, float]


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


async def gather(folder: Path) -> dict[str, Snapshot]:
    port, snapshots = free_port(), dict[str, Snapshot]()
    flags: tuple[str, ...] = ()
    last = 0.0
    async with sidecar(folder, f"http://127.0.0.1:{port}") as running:
        for name, (more, env, expected) in RESTARTS.items():
            flags += more
            async with vllm(folder / "vllm", port, *flags, env=env):

                async def restarted(last: float = last) -> bool:
                    return (await snapshot(running)).start > last

                await until(restarted)

                async def shows_settings(expected: dict[str, str] = expected) -> bool:
                    return (await snapshot(running)).settings.items() >= expected.items()

                assert await running.ask(name) == 200
                await until(shows_settings)
                await asyncio.sleep(SCRAPES)
                snapshots[name] = await snapshot(running)
            last = snapshots[name].start
    return snapshots


@pytest.fixture(scope="module")
def snapshots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Snapshot]:
    return asyncio.run(gather(tmp_path_factory.mktemp("restarts")))


def before(snapshots: dict[str, Snapshot], name: str) -> Snapshot:
    names = list(snapshots)
    return snapshots[names[names.index(name) - 1]]


@pytest.mark.parametrize(
    "name, setting, values",
    [
        pytest.param(
            "prefix caching off", "enable_prefix_caching", ("True", "False"), id="a label of cache_config_info"
        ),
        pytest.param("another max-num-seqs", FINGERPRINT, None, id="only the fingerprint"),
        pytest.param("another max-model-len", "max_model_len", ("4096", "2048"), id="/v1/models"),
        pytest.param("another dtype", "dtype", ("torch.bfloat16", "torch.float32"), id="/server_info"),
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


def test_the_fingerprint_does_not_depend_on_prefix_caching(snapshots: dict[str, Snapshot]) -> None:
    assert snapshots["prefix caching off"].settings[FINGERPRINT] == snapshots["unchanged"].settings[FINGERPRINT]


@pytest.mark.parametrize("name", ["another max-model-len", "another dtype"])
def test_a_new_fingerprint_is_no_second_change(snapshots: dict[str, Snapshot], name: str) -> None:
    assert before(snapshots, name).settings[FINGERPRINT] != snapshots[name].settings[FINGERPRINT]


def test_server_info_adds_settings_by_name(snapshots: dict[str, Snapshot]) -> None:
    name = "another max-model-len"
    assert "scheduling_policy" not in before(snapshots, name).settings
    assert snapshots[name].settings.items() >= {
        ("scheduling_policy", "fcfs"),
        ("max_num_seqs", "8"),
        ("dtype", "torch.bfloat16"),
        ("VLLM_SERVER_DEV_MODE", "True"),
    }
