"""`--prompt-hash-salt-file`: replicas write the same hash for the same prompt."""

from pathlib import Path

import pytest

from compose.cli import main
from exporters.records import PREFIX_BLOCK
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import SLOS, sidecar
from tests.support.waiting import until

FLAG = "--prompt-hash-salt-file"
SHAREABLE = "llm_shareable_prompt_tokens_total"


async def logged_hash(folder: Path, engine: Engine, *words: str) -> tuple[str, list[str]]:
    """The hash that a new sidecar logs for a prompt, and its log lines."""
    async with sidecar(folder, engine.url, *words) as running:
        assert await running.ask("one") == 200
        await until(running.lines)
        (line,) = running.lines()
        return line["prompt_sha256"], running.log_lines()


@pytest.mark.slow
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


@pytest.mark.slow
async def test_with_the_flag_log_and_series_have_the_prefixes_of_prompts(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a" * 3 * PREFIX_BLOCK}]}
    lines, pages = [], []
    async with serving(Engine()) as engine:
        for words in ([], ["--log-prefix-hashes"]):
            async with sidecar(tmp_path_factory.mktemp("run"), engine.url, *words) as running:
                for number in (1, 2):
                    headers = {"x-request-id": f"request-{number}"}
                    async with running.session.post(running.completions, json=body, headers=headers) as response:
                        assert response.status == 200
                await running.logs("request-1", "request-2")
                lines.append(running.lines())
                samples = await running.samples()
                pages.append([value for name, value in samples.items() if name.startswith(SHAREABLE)])
    assert [line["prefix_hashes"] for line in lines[0]] == [None, None]
    first, second = (line["prefix_hashes"] for line in lines[1])
    assert len(first) == 3
    assert first == second
    assert [line["shareable_tokens"] for line in lines[1]] == [0, 3]
    assert pages[0] == []
    assert sum(pages[1]) == 3


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
