"""`vllm-slo sidecar --config FILE`: every flag is a key, and the result shows where each value is from."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from compose.cli import main
from exporters.configuration import config_file, flags, generated_files
from exporters.configuration.flags import Given, flags_of
from exporters.configuration.sidecar import LogContent, SidecarFlags
from exporters.text.yaml_reader import FileError

jsonschema = pytest.importorskip("jsonschema")
FLAGS = {flag.key: flag for flag in flags_of(SidecarFlags)}
UPSTREAM = "http://127.0.0.1:1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sidecar.yaml"


def given(path: Path, text: str, *words: str, environment: Mapping[str, str] | None = None) -> dict[str, Given]:
    """What a file, the command line and the environment give together."""
    path.write_text(text)
    parser = argparse.ArgumentParser()
    flags.add(parser, SidecarFlags)
    file = config_file.read(path, SidecarFlags)
    return flags.given(SidecarFlags, parser.parse_args(words), environment or {}, file)


def test_the_command_line_precedes_the_environment_and_that_the_file(path: Path) -> None:
    text = "upstream: http://file:1\nlisten: 127.0.0.1:1\nmetrics: 127.0.0.1:2\nmodel: [a, b]\ninject_usage: true\n"
    environment = {"VLLM_SLO_LISTEN": "127.0.0.1:3", "VLLM_SLO_METRICS": "127.0.0.1:4", "VLLM_SLO_MODEL": "c,d"}
    found = given(path, text, "--listen", "127.0.0.1:5", "--no-inject-usage", environment=environment)
    values = flags.read(SidecarFlags, found)
    assert (values.upstream, values.metrics, values.listen) == ("http://file:1", "127.0.0.1:4", "127.0.0.1:5")
    assert (values.models, values.inject_usage, values.workers) == (("c", "d"), False, 1)
    assert [found[name].origin for name in ("upstream", "metrics", "listen")] == [
        f"{path}:1",
        "VLLM_SLO_METRICS",
        "command line",
    ]


@pytest.mark.parametrize(
    "text, field, value",
    [
        pytest.param("inject_usage: false", "inject_usage", False, id="a switch off"),
        pytest.param("upstream_insecure: yes", "upstream_insecure", True, id="a switch on"),
        pytest.param("workers: 4", "workers", 4, id="a number"),
        pytest.param("max_body: never", "max_body", None, id="never"),
        pytest.param("max_body: 1048576", "max_body", 1 << 20, id="bytes"),
        pytest.param("drain: 0", "drain", 0.0, id="zero"),
        pytest.param("cut_idle: 90s", "cut_idle", 90.0, id="a duration"),
        pytest.param("log_content: off", "log_content", LogContent.OFF, id="off is a text"),
        pytest.param("otlp_semconv: 1.36", "otlp_semconv", "1.36", id="a version"),
        pytest.param("allow_path: /v1/rerank", "allow_paths", ("/v1/rerank",), id="one of a list"),
        pytest.param("allow_path: [/a, /b]", "allow_paths", ("/a", "/b"), id="a list"),
        pytest.param("model: []", "models", (), id="an empty list"),
    ],
)
def test_values_are_written_as_in_yaml(text: str, field: str, value: object, path: Path) -> None:
    found = given(path, f"{text}\n", "--upstream", UPSTREAM)
    assert getattr(flags.read(SidecarFlags, found), field) == value


def test_every_mistake_is_reported_in_one_run_with_its_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(
        "upstream: [a]\ndrian: 5s\nworkers: many\nmodel: [a, {b: c}]\nmax_body:\ninject_usage: maybe\n"
        "engine_spans: h:1\nlog_content: on\nworkers: 3\n"
    )
    assert main(["sidecar", "--config", str(path)]) == 2
    assert capsys.readouterr().err.removeprefix("vllm-slo: ").splitlines() == [
        f"{path}:1:11: upstream: expected text, found a list",
        f"{path}:2:1: drian: unknown key; did you mean 'drain'?",
        f"{path}:3:10: workers: many is not a valid number of relays; use 1 or more",
        f"{path}:4:12: model[1]: expected text, found a mapping",
        f"{path}:5:10: max_body: has no value; write one, or remove the key",
        f"{path}:6:15: inject_usage: expected true or false, found 'maybe'",
        (f"{path}:7:15: engine_spans: 'h:1' is not a valid URL; write grpc://127.0.0.1:4317 or http://127.0.0.1:4318"),
        f"{path}:8:14: log_content: 'on' is unknown; use off, hash or full",
        f"{path}:9:1: workers: duplicate key; keep one",
    ]


@pytest.mark.parametrize(
    "text, message",
    [
        ("- upstream", "expected keys with values, such as `upstream: ...`, found a list"),
        ("upstream", "expected keys with values, such as `upstream: ...`, found 'upstream'"),
    ],
)
def test_a_file_without_keys_is_refused(text: str, message: str, path: Path) -> None:
    with pytest.raises(FileError) as refusal:
        given(path, text)
    assert str(refusal.value) == f"{path}:1:1: {message}"


def test_a_later_mistake_is_located_too(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text(f"upstream: {UPSTREAM}\n\ntls_cert: cert.pem\n")
    assert main(["sidecar", "--config", str(path)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {path}:3: tls_cert: needs a private key; add --tls-key FILE\n"
    monkeypatch.setenv("VLLM_SLO_CONFIG", str(path))
    monkeypatch.setenv("VLLM_SLO_UPSTREAM", "localhost:8000")
    assert main(["sidecar", "--tls-cert", "", "--tls-key", ""]) == 2
    assert capsys.readouterr().err.startswith("vllm-slo: VLLM_SLO_UPSTREAM: 'localhost:8000' is not a valid URL")
    monkeypatch.delenv("VLLM_SLO_CONFIG")
    monkeypatch.delenv("VLLM_SLO_UPSTREAM")
    assert main(["sidecar"]) == 2
    assert (
        capsys.readouterr().err
        == "vllm-slo: --upstream: is missing: URL of the engine, such as http://127.0.0.1:8000\n"
    )


def test_the_result_shows_the_origin_of_each_value_and_no_secret(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path.write_text("upstream: http://user:hunter2@engine:1\notlp_header: [authorization=Bearer hunter2]\ndrain: 30s\n")
    monkeypatch.setenv("VLLM_SLO_LISTEN", "0.0.0.0:8001")
    assert main(["sidecar", "--config", str(path), "--print-config", "--engine-token-file", "/etc/token"]) == 0
    printed = capsys.readouterr().out
    rows = [line.partition("  # ")[::2] for line in printed.splitlines()]
    origins = {text.strip(): origin for text, origin in rows}
    assert {text: origin for text, origin in origins.items() if origin != "default"} == {
        'upstream: "http://<hidden>@engine:1"': f"{path}:1",
        "listen: 0.0.0.0:8001": "VLLM_SLO_LISTEN",
        "drain: 30s": f"{path}:3",
        "engine_token_file: /etc/token": "command line",
        'otlp_header: ["authorization=<hidden>"]': f"{path}:2",
    }
    assert "hunter2" not in printed
    assert len(rows) == len(FLAGS)


def test_the_result_is_a_file_with_the_same_values(path: Path) -> None:
    words = [
        "--upstream",
        UPSTREAM,
        "--request-log",
        "-",
        "--allow-path",
        "/a, b",
        "--model",
        "null",
        "--no-inject-usage",
    ]
    found = given(path, "", *words)
    again = given(path, "\n".join(config_file.described(SidecarFlags, found)))
    for flag in FLAGS.values():
        assert getattr(flags.read(SidecarFlags, again), flag.field) == getattr(
            flags.read(SidecarFlags, found), flag.field
        )


def test_the_example_and_the_schema_are_what_the_flags_give() -> None:
    assert (generated_files.FOLDER / "sidecar.yaml").read_text() == generated_files.example(), "run `make generate`"
    schema = generated_files.FOLDER / "sidecar.schema.json"
    assert schema.read_text() == generated_files.json_schema(), "run `make generate`"


def test_the_example_has_every_key_and_gives_nothing(path: Path) -> None:
    example = generated_files.example()
    keys = [line[1:].partition(":")[0] for line in example.splitlines() if line[:1] == "#" and line[1:2].isalpha()]
    assert keys == [*FLAGS]
    assert given(path, example) == {}


def test_each_default_of_the_example_is_the_default(path: Path) -> None:
    lines = [line[1:] for line in generated_files.example().splitlines() if line[:1] == "#" and line[1:2].isalpha()]
    no_values = {f"{flag.kind.metavar}" for flag in FLAGS.values() if flag.kind}
    for line in lines:
        key, _, value = line.partition(": ")
        if value.strip("[]") not in no_values:
            found = given(path, line, "--upstream", UPSTREAM)
            assert getattr(flags.read(SidecarFlags, found), FLAGS[key].field) == FLAGS[key].default


def test_the_schema_accepts_what_the_reader_does(path: Path) -> None:
    validator = jsonschema.Draft7Validator(json.loads(generated_files.json_schema()))
    good = "upstream: http://h:1\nmodel: [a]\nallow_path: /a\nworkers: 2\nmax_body: never\ndrain: 0\ncut_idle: 1h30m\n"
    given(path, good)
    assert validator.is_valid(yaml.safe_load(good))
    for bad in ("drian: 5s", "workers: 0", "max_body: 5MB", "inject_usage: maybe", "log_format: xml", "drain: soon"):
        assert not validator.is_valid(yaml.safe_load(bad))
        with pytest.raises(FileError):
            given(path, bad)
