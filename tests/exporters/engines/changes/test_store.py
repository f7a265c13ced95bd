"""Config changes survive a restart of the sidecar, and an invalid file does not stop it."""

import json
import shutil
from pathlib import Path

import pytest

from exporters.engines.changes.config_changes import ConfigChange, ConfigWatch, PendingDeclaration
from exporters.engines.changes.store import ConfigChangeStore
from tests.support.command_line import CommandLine

NOW = 2000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "state.json"
    ConfigChangeStore(path).check()
    return path


def changed_watch() -> ConfigWatch:
    watch = ConfigWatch()
    watch.observe({"caching": "False", "block_size": "16"}, 1000.0, 1010.0)
    watch.observe_fingerprint("f-1", 1012.0)
    watch.observe({"caching": "True", "block_size": "16"}, 1020.0, 1030.0)
    watch.declare({"policy": "priority", "block_size": "32"}, "naïve note", 1040.0)
    return watch


def reloaded_watch(path: Path) -> ConfigWatch:
    ConfigChangeStore(path).save({"engine:8000": changed_watch().history}, NOW)
    return ConfigChangeStore(path).load()["engine:8000"]


def test_a_stored_history_is_loaded_again(path: Path) -> None:
    watch = reloaded_watch(path)
    assert watch.settings == changed_watch().settings
    assert watch.revision == changed_watch().revision
    assert watch.changes == changed_watch().changes
    assert watch.history.awaited == {"block_size": PendingDeclaration("32", "naïve note")}
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_a_change_while_the_sidecar_is_down_is_dated_to_the_engines_start(path: Path) -> None:
    expected = [ConfigChange("caching", "True", "False", 2500.0)]
    assert reloaded_watch(path).observe({"caching": "False", "block_size": "16"}, 2500.0, 9000.0) == expected


def test_nothing_is_written_while_nothing_changes(path: Path) -> None:
    store, watch = ConfigChangeStore(path), changed_watch()
    store.save({"engine:8000": watch.history}, NOW)
    written = path.read_bytes()
    watch.observe({"caching": "True", "block_size": "16"}, 1020.0, 2015.0)
    store.save({"engine:8000": watch.history}, NOW + 15)
    assert path.read_bytes() == written
    watch.observe({"caching": "False", "block_size": "16"}, 2020.0, 2030.0)
    store.save({"engine:8000": watch.history}, NOW + 30)
    assert path.read_bytes() != written


def test_a_file_that_was_removed_with_its_folder_is_written_again_although_nothing_changes(path: Path) -> None:
    store, watch = ConfigChangeStore(path), changed_watch()
    store.save({"engine:8000": watch.history}, NOW)
    shutil.rmtree(path.parent)
    store.save({"engine:8000": watch.history}, NOW + 15)
    assert ConfigChangeStore(path).load()["engine:8000"].changes == watch.changes


def test_a_missing_file_is_an_empty_history(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert ConfigChangeStore(path).load() == {}
    assert caplog.messages == []


VALID = b'{"version":1,"seen_at":2000.0,"engines":{}}'


@pytest.mark.parametrize(
    "content, reason",
    [
        pytest.param(b"\x00\xff garbage", "JSON is malformed: invalid character (byte 0)", id="no JSON"),
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(VALID[:-5], "Input data was truncated", id="truncated"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="another type"),
        pytest.param(
            VALID.replace(b'"version":1', b'"version":2'), "Invalid enum value 2 - at `$.version`", id="another version"
        ),
        pytest.param(b'{"engines":{}}', "Object missing required field `version`", id="no version"),
        pytest.param(
            VALID.replace(b'"engines":{}', b'"engines":{"a":{"changes":[{"at":"noon"}]}}'),
            "Expected `float`, got `str` - at `$.engines[...].changes[0].at`",
            id="a field of another type",
        ),
        pytest.param(
            VALID.replace(b"{}", b"{}," + b'"x":' + b"[" * 100_000),
            "maximum recursion depth exceeded while deserializing an object",
            id="deep",
        ),
    ],
)
def test_a_corrupt_file_is_renamed_and_logged_and_a_fresh_one_is_written(
    path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    store = ConfigChangeStore(path)
    path.write_bytes(content)
    assert store.load() == {}
    assert caplog.messages == [
        f"--state: {path} is not a valid state file: {reason}; renamed to state.json.broken, starting without it"
    ]
    assert (path.parent / "state.json.broken").read_bytes() == content
    store.save({"engine:8000": changed_watch().history}, NOW)
    assert set(json.loads(path.read_bytes())["engines"]) == {"engine:8000"}


def test_a_corrupt_file_that_cannot_be_renamed_is_overwritten(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = ConfigChangeStore(path)
    path.write_bytes(b"garbage")
    (path.parent / "state.json.broken" / "full").mkdir(parents=True)
    assert store.load() == {}
    (message,) = caplog.messages
    assert message == (
        f"--state: {path} is not a valid state file: JSON is malformed: invalid character (byte 0); it cannot be "
        "renamed: is a directory; it will be overwritten"
    )
    store.save({"engine:8000": changed_watch().history}, NOW)
    assert store.load().keys() == {"engine:8000"}


def test_a_folder_that_cannot_be_created_is_logged_once_and_the_file_is_written_when_it_can(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, watch = ConfigChangeStore(path), changed_watch()
    path.parent.rmdir()
    path.parent.touch()
    store.save({"engine:8000": watch.history}, NOW)
    store.save({"engine:8000": watch.history}, NOW)
    assert caplog.messages == [f"--state: {path} cannot be written: not a directory; config changes stay in memory"]
    path.parent.unlink()
    store.save({"engine:8000": watch.history}, NOW)
    assert ConfigChangeStore(path).load()["engine:8000"].changes == watch.changes


@pytest.mark.parametrize(
    "name, reason",
    [
        pytest.param("file/state.json", "not a directory", id="a file in place of a folder"),
        pytest.param("/proc/nowhere/state.json", "no such file or directory", id="a folder that cannot be created"),
        pytest.param("a-folder", "is a directory", id="a folder in place of the file"),
    ],
)
def test_a_path_that_cannot_be_written_is_rejected_at_the_start(
    tmp_path: Path, cli: CommandLine, name: str, reason: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "a-folder").mkdir()
    path = tmp_path / name
    refused = cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", "--state", path)
    assert refused == f"--state: {path} cannot be written: {reason}"
