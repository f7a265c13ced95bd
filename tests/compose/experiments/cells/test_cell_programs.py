"""The programs of a cell: its engine with the flags of the configuration, and HAProxy in front of several engines."""

import subprocess
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.cells import balancer
from compose.experiments.cells.engine_program import EngineProgram, check_command, words
from compose.experiments.setup.cell_store import CellStatus, read_experiment
from compose.experiments.setup.experiment_file import Engine
from compose.experiments.setup.pools import Pool, Pools, Routing
from compose.programs.haproxy import Haproxy
from exporters.text.errors import UsageError
from loadgen.results.record import read_records
from tests.compose.experiments.toy_experiment import write_experiment

ENGINE = Engine(preset="toy", flags={"enable-prefix-caching": "false", "enforce-eager": "true", "max-num-seqs": "4"})
WORDS = ("--no-enable-prefix-caching", "--enforce-eager", "--max-num-seqs", "4")


def test_switches_have_no_value() -> None:
    assert words(ENGINE.flags or {}) == WORDS


def test_the_simulator_has_the_preset_and_the_flags() -> None:
    service = EngineProgram("simulator").service(ENGINE, 9)
    assert service.command[-8:] == ("--listen", "127.0.0.1:9", "--preset", "toy", *WORDS)[-8:]
    assert service.ready_url == "http://127.0.0.1:9/health"


def test_a_command_has_its_port_and_the_flags() -> None:
    service = EngineProgram("vllm serve 'my model' --port {port}").service(ENGINE, 9)
    assert service.command == ("vllm", "serve", "my model", "--port", "9", *WORDS)


def test_each_of_several_engines_has_its_number() -> None:
    program = EngineProgram("env CUDA_VISIBLE_DEVICES={number} vllm serve m --port {port}")
    services = [program.service(ENGINE, port, number) for number, port in enumerate([8, 9])]
    assert [service.command[1] for service in services] == ["CUDA_VISIBLE_DEVICES=0", "CUDA_VISIBLE_DEVICES=1"]
    assert [service.name for service in services] == ["engine", "engine-1"]


@pytest.mark.parametrize(
    "text,message",
    [
        pytest.param(
            "vllm serve m",
            "--engine: 'vllm serve m' has no {port}; write simulator, vllm-cpu, or a command such as "
            "'vllm serve MODEL --port {port}'",
            id="no port",
        ),
        pytest.param("vllm 'm", '--engine: "vllm \'m" is not a command: no closing quotation', id="quotation"),
    ],
)
def test_a_command_that_cannot_run_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_command(text)
    assert str(caught.value) == message


POOLS: Pools = (Pool(1, classes=("short",)), Pool(2, Routing.LEAST_REQUESTS, ("long", "tall")))


def written(folder: Path, pools: Pools, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(balancer, "find_haproxy", lambda: Haproxy(Path("/haproxy"), {}))
    engines = range(1, 1 + sum(pool.replicas for pool in pools))
    service = balancer.balancer(folder, pools, engines, 9)
    assert service.ready_url == "http://127.0.0.1:9/balancer/ready"
    return (folder / "haproxy.cfg").read_text()


def test_a_class_is_sent_to_the_engines_of_its_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert written(tmp_path, POOLS, monkeypatch).endswith("""\
  use_backend pool-0 if { req.hdr(x-request-class) -m str short }
  use_backend pool-1 if { req.hdr(x-request-class) -m str long tall }
  default_backend pool-0
backend pool-0
  balance roundrobin
  server engine-1 127.0.0.1:1
backend pool-1
  balance leastconn
  server engine-2 127.0.0.1:2
  server engine-3 127.0.0.1:3
""")


@pytest.mark.parametrize("routing", list(Routing))
def test_haproxy_accepts_each_routing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, haproxy: Haproxy, routing: Routing
) -> None:
    written(tmp_path, (Pool(2, routing),), monkeypatch)
    command = [str(haproxy.program), "-c", "-f", str(tmp_path / "haproxy.cfg")]
    done = subprocess.run(command, env=dict(haproxy.environment), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


CONVERSATION = """\
load:
  name: small
  seed: 1
  timeout: 20s
  stream_share: 1
  classes:
    chat:
      share: 1
      prompt_tokens: {min: 90, max: 120}
      output_tokens: {min: 4, max: 8}
      conversation:
        turns: {min: 4, max: 4}
        think_time: {min: 20ms, max: 30ms}
  phases: [{name: steady, duration: 2s, rate: 10}]
"""


@pytest.mark.long
def test_turns_find_their_history_only_if_their_sessions_are_routed(tmp_path: Path, haproxy: Haproxy) -> None:
    head = """\
name: small
source: a test
description: a small experiment
engine: {preset: toy, replicas: 3}
configurations:
  turns: {routing: round_robin, replicas: 3}
  sessions: {routing: session, replicas: 3}
"""
    path = write_experiment(tmp_path, head=head, load=CONVERSATION)
    assert main(["experiment", "run", str(path), "--out", str(tmp_path / "out")]) == 0
    _, cells = read_experiment(tmp_path / "out")
    assert [stored.cell.status for stored in cells] == [CellStatus.DONE] * 2
    turns, sessions = (stored.cell.engine for stored in cells)
    for stored in cells:  # the engines together computed what was sent; a slow machine sends fewer of the last turns
        sent = sum(record.prompt_tokens or 0 for record in read_records(stored.folder))
        assert stored.cell.engine.prefix_query_tokens == sent
    assert 1.5 * (turns.prefix_hit_tokens or 0) < (sessions.prefix_hit_tokens or 0)
