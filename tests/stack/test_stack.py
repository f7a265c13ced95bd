"""The container lab: `make stack-test` starts it, burns an error budget, kills containers and stops it, in this order.

Without the images of Grafana and Tempo the other services are tested, and the queries of the boards on Prometheus
itself; without any other image the tests are skipped. With REQUIRE_IMAGES=1 a missing image or Docker is a failure.
The logs of the services are left in .lab/stack.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote

import pytest
from packaging.utils import canonicalize_name

from dashboards.live.reader import TimeRange, read_dashboards
from exporters.vocabulary.signals import (
    ENGINE_CONFIG_CHANGE,
    ENGINE_UP,
    GOODPUT_EVENTS,
    GOODPUT_REQUESTS,
    REQUESTS,
    ROOFLINE_PREFILL,
)
from tests.stack.grafana_checks import (
    Board,
    Sources,
    annotation_problems,
    board_problems,
    exemplar_problems,
    panel_problems,
    served_boards,
    trace_problems,
)
from tests.support.image_locks import LOCKS, pinned
from tests.support.steady_client import SteadyClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.stack

ROOT = Path(__file__).parents[2]
BOARDS = ROOT / "dashboards" / "generated"
LOGS = ROOT / ".lab" / "stack"
SCRAPE_INTERVAL = 1.0
"""Seconds, of the sidecar in `compose/prometheus/prometheus.yml`."""
PROJECT = "vllm-slo-stack-test"
PUBLISHED = (
    "RELAY",
    "SIDECAR",
    "RELAY_2",
    "SIDECAR_2",
    "LOCUST_2",
    "PROMETHEUS",
    "ALERTMANAGER",
    "GRAFANA",
    "LOCUST",
    "TEMPO",
)
TWO_ENGINES = {"COMPOSE_FILE": "compose/compose.yaml:compose/compose.engines.yaml"}
FLIPPED = "num_gpu_blocks_override"
CHANGED = f'{ENGINE_CONFIG_CHANGE.name}{{setting="{FLIPPED}",new="3500"}}'
LOG = "/var/lib/vllm-slo/requests.jsonl"
UNSENT = 1.0
"""Seconds: a record is on disk so long after the end of its request. Relays send records every 50 ms."""


def docker(*words: str, within: float = 30, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=within
    )


def missing_docker() -> str | None:
    """The reason why this machine cannot start containers."""
    if shutil.which("docker") is None:
        return "Docker is not installed"
    if docker("compose", "version").returncode:
        return "Docker's Compose v2 is not installed"
    daemon = docker("info", "--format", "{{.ServerVersion}}")
    if daemon.returncode:
        return f"Docker's daemon does not respond: {daemon.stderr.strip().splitlines()[-1]}"
    return None


def is_available(image: str) -> bool:
    """Whether the image exists or can be pulled."""
    return not docker("image", "inspect", image).returncode or not docker("pull", "-q", image, within=300).returncode


@dataclass(frozen=True)
class Stack:
    """The running lab, on its own ports; `env` selects it for docker commands."""

    env: dict[str, str]
    services: dict[str, str]
    absent: frozenset[str]
    started: float

    def time_range(self) -> TimeRange:
        return TimeRange(self.started, time.time(), SCRAPE_INTERVAL)

    def down(self) -> subprocess.CompletedProcess[str]:
        """Remove the containers, and keep their logs."""
        with (LOGS / "services.log").open("a", encoding="utf-8") as file:
            for words in (("ps", "--all"), ("logs", "--no-color", "--timestamps")):
                with suppress(subprocess.TimeoutExpired):
                    file.write(docker("compose", *words, within=60, env=self.env | TWO_ENGINES).stdout)
        return clear(self.env)

    def compose(self, *words: str, within: float = 60) -> str:
        """The output of a command that succeeds."""
        run = docker("compose", *words, within=within, env=self.env)
        assert run.returncode == 0, f"docker compose {' '.join(words)}: {run.stderr}"
        return run.stdout

    def url(self, service: str) -> str:
        return f"http://127.0.0.1:{self.env[f'{service.upper()}_PORT']}"

    def get(self, url: str) -> Any:
        with urllib.request.urlopen(url, timeout=10) as response:
            return json.load(response)

    def value(self, query: str, at: float | None = None) -> float:
        """The value of a query, in the past at a time in unix seconds; 0 without a sample."""
        when = "" if at is None else f"&time={at:.3f}"
        response = self.get(f"{self.url('prometheus')}/api/v1/query?query={quote(query)}{when}")
        return sum(float(each["value"][1]) for each in response["data"]["result"])

    def pages(self) -> list[dict[str, str]]:
        """The labels of every received page."""
        lines = self.compose("exec", "-T", "webhook", "cat", "/var/lib/vllm-slo/pages.jsonl").splitlines()
        arrived = [json.loads(line) for line in lines]
        return [each["labels"] for each in arrived if each["receiver"] == "page" and each["status"] == "firing"]

    def logged(self) -> Counter[str]:
        """How many lines of the request log each request id has; every line is complete."""
        lines = self.compose("exec", "-T", "sidecar", "cat", LOG).splitlines()
        return Counter(json.loads(line)["request_id"] for line in lines)

    def processes(self) -> dict[str, int]:
        """The process id of each container on the host, 0 for a stopped one, by service."""
        form = '{{index .Config.Labels "com.docker.compose.service"}} {{.State.Pid}}'
        inspected = docker("inspect", "--format", form, *self.compose("ps", "--all", "--quiet").split()).stdout
        return {name: int(pid) for name, pid in (line.split() for line in inspected.splitlines())}

    def kill(self, service: str) -> None:
        """Send SIGKILL from outside, as the kernel does without memory; `docker kill` would prevent the restart."""
        kill = f"import os; os.kill({self.processes()[service]}, 9)"
        host = ("--rm", "--pid=host", "--user=0", "--network=none", "--entrypoint=python", self.services["sidecar"])
        done = docker("run", *host, "-c", kill)
        assert done.returncode == 0, done.stderr

    def is_healthy(self) -> bool:
        return all(state == "running healthy" for name, state in self.states().items() if name != "rules")

    def states(self) -> dict[str, str]:
        """`running healthy`, `exited` and so on, by service."""
        lines = self.compose("ps", "--all", "--format", "json").splitlines()
        return {each["Service"]: f"{each['State']} {each['Health']}".strip() for each in map(json.loads, lines)}


def settings() -> dict[str, str]:
    """The environment of the lab under test, without the caller's settings and with free ports."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("COMPOSE_", "VLLM_", "LOCUST_"))
    }
    environment["COMPOSE_ENV_FILES"] = ".env.example"  # with the defaults only
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in PUBLISHED]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        ports = {f"{name}_PORT": str(each.getsockname()[1]) for name, each in zip(PUBLISHED, sockets, strict=True)}
    return {**environment, **ports, "COMPOSE_PROJECT_NAME": PROJECT}


def clear(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    words = ("compose", "down", "--volumes", "--remove-orphans", "--timeout", "10")
    return docker(*words, within=120, env=env | TWO_ENGINES)


def cannot_run(reason: str) -> NoReturn:
    """A skipped test, or a failed one where the machine must be able to run it, as in CI."""
    if os.environ.get("REQUIRE_IMAGES"):
        pytest.fail(f"REQUIRE_IMAGES is set: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    if reason := missing_docker():
        cannot_run(reason)
    env = settings()
    configuration = docker("compose", "config", "--format", "json", env=env)
    assert configuration.returncode == 0, configuration.stderr
    services = {name: str(each["image"]) for name, each in json.loads(configuration.stdout)["services"].items()}
    base = re.search(r"^ARG PYTHON=(\S+)$", (ROOT / "compose" / "Dockerfile").read_text(), re.MULTILINE)
    assert base
    foreign = {image for image in services.values() if not image.startswith("vllm-slo")} | {base[1]}
    absent = frozenset(image for image in foreign if not is_available(image))
    optional = set() if os.environ.get("REQUIRE_IMAGES") else {services["grafana"], services["tempo"]}
    if needed := sorted(absent - optional):
        cannot_run(f"not available: {', '.join(needed)}")
    lab = Stack(env, services, absent, time.time())
    LOGS.mkdir(parents=True, exist_ok=True)
    (LOGS / "services.log").unlink(missing_ok=True)
    clear(env)  # removes the volumes of a killed run
    try:
        lab.compose("build", within=600)
        started = [name for name in services if services[name] not in absent and name != "rules"]
        up = docker("compose", "up", "--detach", "--wait", "--wait-timeout", "150", *started, within=200, env=env)
        if up.returncode:
            logs = docker("compose", "logs", "--tail", "20", env=env).stdout
            pytest.fail(f"{up.stderr}\n{logs}")
        yield lab
    finally:
        lab.down()


Needs = Callable[[str], None]


@pytest.fixture
def needs(stack: Stack, request: pytest.FixtureRequest) -> Needs:
    """Skips the test, with its sentence as the reason, without the image of a service."""

    def check(service: str) -> None:
        if (image := stack.services[service]) in stack.absent:
            pytest.skip(f"{image} is not available: {request.node.name.removeprefix('test_').replace('_', ' ')}")

    return check


@dataclass(frozen=True)
class View:
    """The boards, and the data sources that they query."""

    boards: list[Board]
    sources: Sources


@pytest.fixture(params=["through Grafana", "without Grafana"])
def view(stack: Stack, needs: Needs, request: pytest.FixtureRequest) -> View:
    """The boards that Grafana serves, with its data sources; and the files, with Prometheus and Tempo themselves."""
    if request.param == "without Grafana":
        return View(list(read_dashboards(BOARDS).values()), Sources(stack.url("prometheus"), stack.url("tempo")))
    needs("grafana")
    return View(served_boards(stack.url("grafana"), BOARDS), Sources.through(stack.url("grafana")))


def no_problem_remains(problems: Callable[[], list[str]]) -> None:
    """Waits, because data arrives with the next scrape, evaluation or batch of spans; then fails with what remains."""
    wait_until(lambda: not problems(), seconds=60)
    if left := problems():
        pytest.fail("\n".join(left), pytrace=False)


def test_every_service_is_healthy_and_the_rules_were_rendered(stack: Stack) -> None:
    daemons = [name for name, image in stack.services.items() if image not in stack.absent and name != "rules"]
    assert stack.states() == {**dict.fromkeys(daemons, "running healthy"), "rules": "exited"}


def test_the_image_of_the_sidecar_has_the_packages_of_its_lock_in_its_sbom_too_and_no_pip(stack: Stack) -> None:
    image = stack.services["sidecar"]
    lists = (
        "import importlib.metadata as m, json, os, pathlib; "
        "bom = json.loads(pathlib.Path('/opt/vllm-slo/sbom.cdx.json').read_text()); "
        "print(json.dumps([[d.name for d in m.distributions()], [c['name'] for c in bom['components']], os.getuid()]))"
    )
    run = docker("run", "--rm", "--network=none", "--entrypoint=python", image, "-c", lists)
    assert run.returncode == 0, run.stderr
    installed, in_sbom, user = json.loads(run.stdout)
    locked = set(pinned(f"{LOCKS}/sidecar.lock"))
    assert {canonicalize_name(name) for name in installed} == locked | {"vllm-slo"}
    assert {canonicalize_name(name) for name in in_sbom} - {"vllm-slo"} == locked
    assert user == 10001
    files = ("find", "/", "-xdev", "-path", "*-packages/pip", "-o", "-path", "*/bin/pip*", "-o", "-name", "ensurepip")
    found = docker("run", "--rm", "--network=none", "--user=0", f"--entrypoint={files[0]}", image, *files[1:])
    assert found.stdout == ""
    history = docker("history", "--human=false", "--format", "{{.Size}} {{.CreatedBy}}", image).stdout.splitlines()
    assert 0 < sum(int(line.split()[0]) for line in history if "COPY / /" not in line) < 60e6  # above the base
    settings = json.loads(docker("image", "inspect", "--format", "{{json .Config}}", image).stdout)
    assert settings["Labels"]["org.opencontainers.image.version"] == image.partition(":")[2]
    assert settings["Healthcheck"]["Test"][0] == "CMD"


def test_the_relay_responds_on_loopback(stack: Stack) -> None:
    assert stack.get(f"{stack.url('relay')}/v1/models")["data"]


def test_only_the_sidecar_can_connect_to_the_engine(stack: Stack) -> None:
    container = stack.compose("ps", "--quiet", "simulator").strip()
    assert not json.loads(docker("inspect", "--format", "{{json .HostConfig.PortBindings}}", container).stdout)
    reach = "import socket; socket.create_connection(('simulator', 8000), 3)"
    assert not docker("compose", "exec", "-T", "sidecar", "python", "-c", reach, env=stack.env).returncode
    assert docker("compose", "exec", "-T", "locust", "python", "-c", reach, env=stack.env).returncode


def test_prometheus_scrapes_every_target(stack: Stack) -> None:
    def targets() -> dict[str, str]:
        active = stack.get(f"{stack.url('prometheus')}/api/v1/targets?state=active")["data"]["activeTargets"]
        return {target["labels"]["job"]: target["health"] for target in active}

    wanted = dict.fromkeys(("vllm-slo-sidecar", "vllm-slo-load", "prometheus", "alertmanager"), "up")
    assert wait_until(lambda: targets() == wanted, seconds=30), targets()  # two of them are scraped every 15 s
    assert stack.value(ENGINE_UP.name) == 1


def test_the_rules_are_loaded_and_evaluate_without_error(stack: Stack) -> None:
    def rules() -> list[dict[str, Any]]:
        groups = stack.get(f"{stack.url('prometheus')}/api/v1/rules")["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]

    # The group of baselines is evaluated once a minute, first at any time within it.
    assert wait_until(lambda: all(rule["health"] != "unknown" for rule in rules()), seconds=120)
    assert {rule["name"] for rule in rules() if rule["type"] == "alerting"} >= {"LLMErrorBudgetBurn", "LLMEngineDown"}
    assert [rule["lastError"] for rule in rules() if rule["health"] != "ok"] == []


def test_grafana_has_each_board_with_each_of_its_queries(stack: Stack, needs: Needs) -> None:
    needs("grafana")
    no_problem_remains(lambda: board_problems(stack.url("grafana"), BOARDS))


def test_load_started_in_locusts_web_ui_changes_goodput(stack: Stack) -> None:
    with urllib.request.urlopen(stack.url("locust"), timeout=10) as page:
        assert b"locust" in page.read().lower()
    start = urllib.request.Request(f"{stack.url('locust')}/swarm", data=b"user_count=1&spawn_rate=1")
    with urllib.request.urlopen(start, timeout=10) as response:
        assert json.load(response)["success"]
    assert wait_until(lambda: stack.value(f"sum({GOODPUT_REQUESTS.name})") > 10, seconds=60)
    assert stack.value(f"sum({GOODPUT_EVENTS.name})") >= stack.value(f"sum({GOODPUT_REQUESTS.name})")
    assert stack.get(f"{stack.url('locust')}/stats/requests")["state"] == "running"


def test_tempo_has_the_traces_of_the_load(stack: Stack, needs: Needs) -> None:
    needs("tempo")
    query = quote('{ span.vllm_slo.outcome = "ok" }')
    assert wait_until(lambda: bool(stack.get(f"{stack.url('tempo')}/api/search?q={query}")["traces"]), seconds=60)


def test_requests_have_exemplars(stack: Stack, view: View) -> None:
    no_problem_remains(lambda: exemplar_problems(view.sources, stack.time_range()))


def test_the_traces_of_exemplars_are_in_tempo(stack: Stack, view: View, needs: Needs) -> None:
    needs("tempo")
    no_problem_remains(lambda: trace_problems(view.sources, stack.time_range()))


def test_a_stopped_engine_burns_the_error_budget_and_both_pages_arrive(stack: Stack) -> None:
    stack.compose("stop", "simulator")
    assert wait_until(lambda: stack.value(ENGINE_UP.name) == 0, seconds=20)

    def arrived() -> set[tuple[str, str]]:
        return {(page["alertname"], page.get("slo", "")) for page in stack.pages()}

    wanted = {("LLMErrorBudgetBurn", "availability"), ("LLMEngineDown", "")}
    assert wait_until(lambda: wanted <= arrived(), seconds=120), arrived()


def test_it_recovers_when_the_engine_restarts(stack: Stack) -> None:
    before = stack.value(f"sum({GOODPUT_REQUESTS.name})")
    stack.compose("start", "simulator")
    assert wait_until(lambda: stack.value(ENGINE_UP.name) == 1, seconds=60)
    assert wait_until(lambda: stack.value(f"sum({GOODPUT_REQUESTS.name})") > before, seconds=60)


@pytest.fixture
def client(stack: Stack) -> Iterator[SteadyClient]:
    model = stack.get(f"{stack.url('relay')}/v1/models")["data"][0]["id"]
    with SteadyClient(stack.url("relay"), model) as running:
        assert wait_until(lambda: running.completed(0) >= 3)
        yield running


@pytest.fixture(scope="module")
def flipped(stack: Stack) -> float:
    """The time of the request for a config change, which leaves the engine as fast as before, in unix seconds."""
    flip = (
        "from urllib.request import Request, urlopen; "
        "urlopen(Request('http://simulator:8000/simulator/config', data=b'{\"num_gpu_blocks\": 3500}'))"
    )
    asked = time.time()
    stack.compose("exec", "-T", "sidecar", "python", "-c", flip)
    assert wait_until(lambda: stack.value(CHANGED) > 0)
    return asked


@pytest.mark.usefixtures("flipped")
def test_a_config_change_of_the_engine_survives_a_restart_of_the_sidecar(stack: Stack, client: SteadyClient) -> None:
    before, pids = stack.value(CHANGED), stack.processes()

    stack.compose("restart", "sidecar")
    assert wait_until(lambda: stack.is_healthy() and stack.value(ENGINE_UP.name) == 1)
    done = client.completed(0)
    assert wait_until(lambda: client.completed(done) >= 3)
    assert stack.value(CHANGED) == before > 0
    assert stack.value(ROOFLINE_PREFILL.name) > 0
    after = stack.processes()
    assert {name for name in pids if pids[name] != after[name]} == {"sidecar"}
    answered = {each.request_id: 1 for each in list(client.sent) if each.ok}

    def lines() -> dict[str, int]:
        return {name: count for name, count in stack.logged().items() if name in answered}

    assert wait_until(lambda: lines() == answered)


def test_the_config_change_is_an_annotation_of_each_board(stack: Stack, view: View, flipped: float) -> None:
    def problems() -> list[str]:
        return annotation_problems(view.boards, view.sources, FLIPPED, flipped, stack.time_range())

    no_problem_remains(problems)


def test_each_query_of_the_boards_has_data_or_its_panel_states_why_not(stack: Stack, view: View) -> None:
    assert view.boards
    no_problem_remains(lambda: panel_problems(view.boards, view.sources, stack.time_range()))


@pytest.mark.parametrize(
    "name", ["webhook", "alertmanager", "locust", "grafana", "tempo", "prometheus", "simulator", "sidecar"]
)
def test_a_killed_container_restarts_and_only_its_own_gap_is_lost(
    stack: Stack, client: SteadyClient, needs: Needs, name: str
) -> None:
    needs(name)
    total = f"sum({REQUESTS.name})"
    # A sample has the time at which its scrape began, and may not be stored yet.
    pids, pages, then = stack.processes(), stack.pages(), time.time() - 2.0
    counted = stack.value(total, then)
    killed = time.time()
    stack.kill(name)
    assert wait_until(lambda: stack.processes()[name] not in {0, pids[name]} and stack.is_healthy())
    done = client.completed(0)
    assert wait_until(lambda: client.completed(done) >= 3)
    back = time.time()

    after = stack.processes()
    assert {each for each in pids if pids[each] != after[each]} == {name}
    assert stack.pages()[: len(pages)] == pages
    assert stack.value(total, then) == counted

    sent = list(client.sent)
    lost = [each for each in sent if not each.ok]
    assert name in {"simulator", "sidecar"} or not lost
    assert all(each.ended >= killed for each in lost)
    certain = (
        sent if name != "sidecar" else [each for each in sent if each.ok and not killed - UNSENT < each.ended < back]
    )
    wanted = {each.request_id: 1 for each in certain}

    def lines() -> dict[str, int]:
        return {each: count for each, count in stack.logged().items() if each in wanted}

    assert wait_until(lambda: lines() == wanted), wanted.keys() - lines().keys()


def test_a_second_engine_has_its_own_sidecar_and_load_generator(stack: Stack) -> None:
    two = replace(stack, env=stack.env | TWO_ENGINES)
    two.compose("up", "--detach", "--wait", "prometheus", "locust-2", within=200)
    assert wait_until(lambda: two.value(f"count({ENGINE_UP.name} == 1)") == 2)
    start = urllib.request.Request(f"{two.url('locust_2')}/swarm", data=b"user_count=1&spawn_rate=1")
    with urllib.request.urlopen(start, timeout=10) as response:
        assert json.load(response)["success"]
    second = '{instance="sidecar-2:9464",model!="other"}'
    assert wait_until(lambda: two.value(f"sum({REQUESTS.name}{second})") > 3)
    assert wait_until(lambda: two.value('sum(up{job="vllm-slo-load"})') == 2)


def test_down_leaves_no_container_no_volume_and_no_network(stack: Stack) -> None:
    done = stack.down()
    assert done.returncode == 0, done.stderr
    ours = ("--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}")
    left = [docker(*kind, *ours).stdout for kind in (("ps", "--all"), ("volume", "ls"), ("network", "ls"))]
    assert left == ["", "", ""]
