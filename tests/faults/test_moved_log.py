"""Whatever happens to the path of the request log, each later request is in the log, and rotation goes on."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from exporters.requestlog.rotation import rotated_files
from tests.faults.sidecar_state import counted_outcomes
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import Running, sidecar
from tests.support.waiting import until

pytestmark = pytest.mark.slow

ERRORS, DROPPED = "llm_sidecar_log_errors_total{}", "llm_sidecar_dropped_log_lines_total{write_failed,chat_completions}"


def remove_folder(log: Path) -> None:
    """The exporter may create the folder again before all of its files are removed."""
    log.parent.rename(log.parent.with_name("removed"))
    shutil.rmtree(log.parent.with_name("removed"))


def move_folder(log: Path) -> None:
    log.parent.rename(log.parent.with_name("moved"))


def rename_and_create(log: Path) -> None:
    log.rename(log.with_name("moved.jsonl"))
    log.touch()


REMOVALS_AND_MOVES: list[Callable[[Path], None]] = [Path.unlink, remove_folder, move_folder, rename_and_create]


def file_in_place_of_the_folder(log: Path) -> None:
    remove_folder(log)
    log.parent.touch(exist_ok=False)


def fifo(log: Path) -> None:
    log.unlink()
    os.mkfifo(log)


def replaced(log: Path, replace: Callable[[Path], None]) -> bool:
    """Whether the exporter has not been faster."""
    try:
        replace(log)
    except FileExistsError:
        return False
    return True


def logged(folder: Path) -> list[str]:
    text = ""
    for file in folder.rglob("*.jsonl*"):
        with suppress(FileNotFoundError):  # just rotated
            text += file.read_text() if file.is_file() else ""
    return [json.loads(line)["request_id"] for line in text.splitlines()]


def _has(folder: Path, names: set[str]) -> bool:
    return names <= {*logged(folder)}


async def ask(running: Running, folder: Path, *names: str) -> None:
    """Send requests and wait until they are logged."""
    for name in names:
        assert await running.ask(name) == 200
    await until(partial(_has, folder, {*names}))


async def test_after_the_log_or_its_folder_is_removed_or_moved_each_request_is_in_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "requests.jsonl"
    words = ("--request-log", str(log), "--request-log-max-size", "2000")
    async with serving(Engine()) as engine, sidecar(tmp_path, engine.url, *words, with_log=False) as running:
        for number, act in enumerate(REMOVALS_AND_MOVES):
            await ask(running, tmp_path, *(f"before-{number}-{each}" for each in range(4)))
            act(log)
            await ask(running, tmp_path, *(f"after-{number}-{each}" for each in range(4)))
            assert rotated_files(log)
        log.unlink()
        await until(log.exists)  # without a request
        assert (await running.samples())[ERRORS] == 0
        assert await running.stop() == 0
    names = logged(tmp_path)
    assert len(names) == len({*names})


async def test_while_the_log_cannot_be_opened_requests_are_counted_and_their_lines_wait(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "requests.jsonl"
    async with (
        serving(Engine()) as engine,
        sidecar(tmp_path, engine.url, "--request-log", str(log), with_log=False) as running,
    ):
        for number, replace in enumerate([file_in_place_of_the_folder, fifo], 1):
            await until(partial(replaced, log, replace))
            failed = (await running.samples())[ERRORS]
            assert await running.ask(f"{number}") == 200

            async def counted(failed: float = failed, requests: int = number) -> bool:
                samples = await running.samples()
                return samples[ERRORS] > failed and (await counted_outcomes(running)).total() == requests

            await until(counted)
            assert await running.ready()
            (log if log.is_fifo() else log.parent).unlink()
            await until(partial(_has, tmp_path, {f"{number}"}))
        assert (await running.samples())[DROPPED] == 0
        assert await running.stop() == 0
    for reason in ("[Errno 20] Not a directory", "[Errno 22] Is a FIFO; use a regular file, or - for standard output"):
        assert f"ERROR exporter: request log: {reason}: '{log}'" in running.log_lines()
