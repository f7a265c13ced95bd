"""`--prompt-hash-salt-file`: replicas write the same hash for the same prompt."""

from pathlib import Path

import pytest

from compose.cli import main
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import SLOS, sidecar
from tests.support.waiting import until

FLAG = "--prompt-hash-salt-file"


async def logged_hash(folder: Path, engine: Engine, *words: str) -> tuple[str, list[str]]:
    """The hash that a new sidecar logs for a prompt, and its log lines."""
    async with sidecar(folder, engine.url, *words) as running:
        assert await running.ask("one") == 200
        await until(running.lines)
        (line,) = running.lines()
        return line["prompt_sha256"], running.log_lines()


async def test_sidecars_with_one_salt_agree_on_the_hash_of_a_prompt_and_others_do_not(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    salt, readable = tmp_path / "salt", tmp_path / "readable"
    salt.write_text("0123456789abcdef\n")
    salt.chmod(0o600)
    readable.write_text("0123456789abcdef")
    readable.chmod(0o644)
    async with serving(Engine()) as engine:
        first, quiet = await logged_hash(tmp_path_factory.mktemp("first"), engine, FLAG, str(salt))
        second, warned = await logged_hash(tmp_path_factory.mktemp("second"), engine, FLAG, str(readable))
        third, _ = await logged_hash(tmp_path_factory.mktemp("third"), engine)
    assert first == second != third
    warning = f"WARNING supervisor: {FLAG}: {readable} is readable by all users; run: chmod o-r {readable}"
    assert warning in warned
    assert not any("0123456789abcdef" in line or FLAG in line for line in [*quiet, *warned] if line != warning)


@pytest.mark.parametrize(
    "content",
    [pytest.param("", id="empty"), pytest.param("two words", id="two words"), pytest.param("é", id="not ASCII")],
)
def test_an_invalid_salt_file_is_rejected(tmp_path: Path, content: str, capsys: pytest.CaptureFixture[str]) -> None:
    slos, salt = tmp_path / "slos.yaml", tmp_path / "salt"
    slos.write_text(SLOS)
    salt.write_text(content)
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--slos", str(slos), FLAG, str(salt)]) == 2
    expected = f"{FLAG}: {salt}: a salt is one word of printable ASCII; generate one with: openssl rand -hex 32"
    assert capsys.readouterr().err == f"vllm-slo: {expected}\n"


def test_a_missing_salt_file_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slos, salt = tmp_path / "slos.yaml", tmp_path / "salt"
    slos.write_text(SLOS)
    assert main(["sidecar", "--upstream", "http://127.0.0.1:1", "--slos", str(slos), FLAG, str(salt)]) == 2
    assert capsys.readouterr().err == f"vllm-slo: {FLAG}: {salt} cannot be read: no such file or directory\n"
