"""What is known of flips outlives the sidecar, and a file that cannot be used never stops it."""

import json
from pathlib import Path

import pytest

from compose.cli import main
from exporters.engines.config_change_store import ConfigChangeStore
from exporters.engines.config_changes import Awaited, Change, ConfigWatch

NOW = 2000.0


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "folder" / "state.json"
    ConfigChangeStore(path).check()
    return path


def flipped() -> ConfigWatch:
    watch = ConfigWatch()
    watch.observe({"caching": "False", "block_size": "16"}, 1000.0, 1010.0)
    watch.answered("f-1", 1012.0)
    watch.observe({"caching": "True", "block_size": "16"}, 1020.0, 1030.0)
    watch.declare({"policy": "priority", "block_size": "32"}, "naïve note", 1040.0)
    return watch


def test_all_that_was_known_comes_back(path: Path) -> None:
    ConfigChangeStore(path).save({"engine:8000": flipped().known}, NOW)
    (watch,) = ConfigChangeStore(path).load().values()
    assert watch.settings == flipped().settings
    assert watch.revision == flipped().revision
    assert watch.changes == flipped().changes
    assert watch.known.awaited == {"block_size": Awaited("32", "naïve note")}
    assert [each.name for each in path.parent.iterdir()] == ["state.json"]


def test_a_flip_while_the_sidecar_was_away_is_dated_to_the_engines_start(path: Path) -> None:
    ConfigChangeStore(path).save({"engine:8000": flipped().known}, NOW)
    watch = ConfigChangeStore(path).load()["engine:8000"]
    assert watch.observe({"caching": "False", "block_size": "16"}, 2500.0, 9000.0) == [
        Change("caching", "True", "False", 2500.0)
    ]


def test_the_same_engine_seen_again_is_no_flip(path: Path) -> None:
    ConfigChangeStore(path).save({"engine:8000": flipped().known}, NOW)
    watch = ConfigChangeStore(path).load()["engine:8000"]
    assert watch.observe({"caching": "True", "block_size": "16"}, 1020.0, 9000.0) == []
    assert watch.changes == flipped().changes


def test_nothing_is_written_while_nothing_changes(path: Path) -> None:
    memory, watch = ConfigChangeStore(path), flipped()
    memory.save({"engine:8000": watch.known}, NOW)
    path.unlink()
    watch.observe({"caching": "True", "block_size": "16"}, 1020.0, 2015.0)
    memory.save({"engine:8000": watch.known}, NOW + 15)
    assert not path.exists()
    watch.observe({"caching": "False", "block_size": "16"}, 2020.0, 2030.0)
    memory.save({"engine:8000": watch.known}, NOW + 30)
    assert path.exists()


def test_without_a_file_nothing_is_known(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ConfigChangeStore(path).load() == {}
    assert capsys.readouterr().err == ""


WHOLE = b'{"version":1,"seen_at":2000.0,"engines":{}}'


@pytest.mark.parametrize(
    "content, why",
    [
        pytest.param(b"\x00\xff garbage", "JSON is malformed: invalid character (byte 0)", id="garbage"),
        pytest.param(b"", "Input data was truncated", id="empty"),
        pytest.param(WHOLE[:-5], "Input data was truncated", id="truncated"),
        pytest.param(b"[]", "Expected `object`, got `array`", id="another shape"),
        pytest.param(
            WHOLE.replace(b'"version":1', b'"version":2'), "Invalid enum value 2 - at `$.version`", id="another version"
        ),
        pytest.param(b'{"engines":{}}', "Object missing required field `version`", id="no version"),
        pytest.param(
            WHOLE.replace(b'"engines":{}', b'"engines":{"a":{"changes":[{"at":"noon"}]}}'),
            "Expected `float`, got `str` - at `$.engines[...].changes[0].at`",
            id="a field of another type",
        ),
        pytest.param(
            WHOLE.replace(b"{}", b"{}," + b'"x":' + b"[" * 100_000),
            "maximum recursion depth exceeded while deserializing an object",
            id="deep",
        ),
    ],
)
def test_a_corrupt_file_is_set_aside_said_and_started_afresh(
    path: Path, capsys: pytest.CaptureFixture[str], content: bytes, why: str
) -> None:
    memory = ConfigChangeStore(path)
    path.write_bytes(content)
    assert memory.load() == {}
    assert capsys.readouterr().err == (
        f"exporter: --state: {path} is no state of this version: {why}; set aside as state.json.broken, "
        "starting without it\n"
    )
    assert (path.parent / "state.json.broken").read_bytes() == content
    memory.save({"engine:8000": flipped().known}, NOW)
    assert set(json.loads(path.read_bytes())["engines"]) == {"engine:8000"}


def test_a_corrupt_file_that_cannot_be_set_aside_is_overwritten(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = ConfigChangeStore(path)
    path.write_bytes(b"garbage")
    (path.parent / "state.json.broken" / "full").mkdir(parents=True)
    assert memory.load() == {}
    assert capsys.readouterr().err == (
        f"exporter: --state: {path} is no state of this version: JSON is malformed: invalid character (byte 0); it "
        "cannot be set aside: is a directory; it will be overwritten\n"
    )
    memory.save({"engine:8000": flipped().known}, NOW)
    assert memory.load().keys() == {"engine:8000"}


def test_a_folder_that_goes_away_is_said_once_and_written_again_when_it_is_back(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, watch = ConfigChangeStore(path), flipped()
    path.parent.rmdir()
    memory.save({"engine:8000": watch.known}, NOW)
    memory.save({"engine:8000": watch.known}, NOW)
    assert capsys.readouterr().err == (
        f"exporter: --state: {path} cannot be written: no such file or directory; flips are kept in memory until it "
        "can\n"
    )
    path.parent.mkdir()
    memory.save({"engine:8000": watch.known}, NOW)
    assert ConfigChangeStore(path).load()["engine:8000"].changes == watch.changes


@pytest.mark.parametrize(
    "where, why",
    [
        pytest.param("file/state.json", "not a directory", id="a file where a folder should be"),
        pytest.param("/proc/nowhere/state.json", "no such file or directory", id="a folder that nobody can write"),
        pytest.param("a-folder", "is a directory", id="a folder where the file should be"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, why: str
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "a-folder").mkdir()
    place = tmp_path / where
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--state", str(place)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: --state: {place} cannot be written: {why}\n"
