"""HAProxy in front of the engines of a cell: its configuration, and whole cells of several engines."""

import subprocess
from pathlib import Path

import pytest

from compose.cli import main
from compose.experiments.cells import balancer
from compose.experiments.setup.cell_store import CellStatus, read_experiment
from compose.experiments.setup.pools import Pool, Pools, Routing
from compose.programs.haproxy import Haproxy
from tests.compose.experiments.toy_experiment import write_experiment

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
    assert turns.prefix_query_tokens == sessions.prefix_query_tokens  # of all engines
    assert 1.5 * (turns.prefix_hit_tokens or 0) < (sessions.prefix_hit_tokens or 0)
