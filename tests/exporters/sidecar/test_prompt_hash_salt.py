"""`--prompt-hash-salt-file`: replicas write the same hash for the same prompt."""

from pathlib import Path
from typing import Any

import pytest

from exporters.records.messages import PREFIX_BLOCK
from tests.support.fake_engine import Engine, serving
from tests.support.sidecar_process import sidecar

FLAG = "--prompt-hash-salt-file"
SHAREABLE = "llm_shareable_prompt_tokens_total"


async def run(folder: Path, engine: Engine, *words: str) -> tuple[list[dict[str, Any]], list[float], list[str]]:
    """What a new sidecar logs of two requests with one prompt, its series of prefixes, and its messages."""
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a" * 3 * PREFIX_BLOCK}]}
    async with sidecar(folder, engine.url, *words) as running:
        for number in (1, 2):
            headers = {"x-request-id": f"request-{number}"}
            async with running.session.post(running.completions, json=body, headers=headers) as response:
                assert response.status == 200
        await running.logs("request-1", "request-2")
        await running.samples()  # the first exposition has first counts at 0
        samples = await running.samples()
        series = [value for name, value in samples.items() if name.startswith(SHAREABLE)]
        return running.lines(), series, running.log_lines()


@pytest.mark.slow
async def test_sidecars_with_one_salt_agree_on_the_hash_of_a_prompt_and_one_has_its_prefixes(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    salt, readable = tmp_path / "salt", tmp_path / "readable"
    salt.write_text("0123456789abcdef\n")
    salt.chmod(0o600)
    readable.write_text("0123456789abcdef")
    readable.chmod(0o644)
    async with serving(Engine()) as engine:
        plain, no_series, quiet = await run(tmp_path_factory.mktemp("plain"), engine, FLAG, str(salt))
        words = ("--log-prefix-hashes", FLAG, str(readable))
        with_prefixes, series, warned = await run(tmp_path_factory.mktemp("prefixes"), engine, *words)
        without_salt, *_ = await run(tmp_path_factory.mktemp("without"), engine)
    (first,), (second,), (third,) = (
        {line["prompt_sha256"] for line in lines} for lines in (plain, with_prefixes, without_salt)
    )
    assert first == second != third
    assert [line["prefix_hashes"] for line in plain] == [None, None]
    hashes, again = (line["prefix_hashes"] for line in with_prefixes)
    assert len(hashes) == 3
    assert hashes == again
    assert [line["shareable_tokens"] for line in with_prefixes] == [0, 3]
    assert (no_series, sum(series)) == ([], 3)
    warning = f"WARNING supervisor: {FLAG}: {readable} is readable by all users; run: chmod o-r {readable}"
    assert warning in warned
    assert not any("0123456789abcdef" in line or FLAG in line for line in [*quiet, *warned] if line != warning)
