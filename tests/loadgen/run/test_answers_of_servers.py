"""A run finds servers that do not generate what was requested, and nothing on one that does."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.loadgen.load_process import load, scripted_server
from tests.support.simulator import simulator

pytestmark = pytest.mark.slow

REPEATED = "prompts: 2, "


def run_and_check(folder: Path, target: str, name: str, *more: str, keys: str = "") -> tuple[int, dict[str, Any], str]:
    """The exit status of a run with one class, what it found by the name of the check, and what it printed."""
    scenario, out = folder / "scenario.yaml", folder / "out"
    scenario.write_text(
        f"name: small\nseed: 3\ntimeout: 1m\nphases: [{{name: one, duration: 1s, rate: 40}}]\nclasses:\n"
        f"  {name}: {{{keys}share: 1, prompt_tokens: {{min: 10, max: 20}}, output_tokens: {{min: 40, max: 60}}}}\n"
    )
    before = 'from loadgen.results import client_health; client_health.MAX_STALLED = float("inf")'  # on a busy machine
    flags = ("--scenario", str(scenario), "--target", target, "--out", str(out), "--max-send-lag", "1h", *more)
    process = load("run", *flags, "--log-level", "warning", before=before)
    assert process.stderr == ""
    summary = json.loads((out / "summary.json").read_text())
    return process.returncode, {check["name"]: check for check in summary["answers"] if check["found"]}, process.stdout


def test_a_server_that_delivers_less_makes_the_run_invalid(tmp_path: Path) -> None:
    with scripted_server() as target:
        status, found, shown = run_and_check(tmp_path, target, "brief")
    assert status == 1
    check = found["delivered tokens"]
    assert check["share"] > 0.8  # a unary answer may have special tokens without text
    assert "have fewer: " in check["seen"]
    assert f"INVALID: delivered tokens: expected {check['expected']}; {check['seen']}" in " ".join(shown.split())
    assert "delivered tokens" in (tmp_path / "out" / "report.html").read_text()


def test_canned_answers_are_found_although_their_number_and_times_are_right(tmp_path: Path) -> None:
    with scripted_server() as target:
        status, found, shown = run_and_check(tmp_path, target, "canned")
    assert (status, [*found]) == (0, ["identical answers"])
    assert f"! identical answers: expected {found['identical answers']['expected']}" in shown


def test_answers_faster_than_the_hardware_allows_make_the_run_invalid(tmp_path: Path) -> None:
    roofline = tmp_path / "roofline.json"  # steps of 1 s; the server needs 2 ms per token
    bounds = {"prefill_tokens_per_second": 50.0, "decode_tokens_per_second": {"1": 1.0}, "kv_tokens": 1000}
    roofline.write_text(json.dumps(bounds))
    with scripted_server() as target:
        status, found, _ = run_and_check(tmp_path, target, "canned", "--roofline", str(roofline))
    assert (status, found["decode on the hardware"]["share"]) == (1, 1.0)
    assert "62.5 ms: 16 tokens in a step of 1e+03 ms" in found["decode on the hardware"]["expected"]


async def test_a_response_cache_is_found(tmp_path: Path) -> None:
    async with simulator(response_cache=True) as url:
        status, found, shown = await asyncio.to_thread(run_and_check, tmp_path, url, "siso", keys=REPEATED)
    assert (status, [*found]) == (0, ["repeated bodies"])
    assert "they look cached" in shown


async def test_nothing_is_found_on_an_engine_that_repeats_answers_and_has_a_prefix_cache(tmp_path: Path) -> None:
    async with simulator() as url:
        status, found, _ = await asyncio.to_thread(run_and_check, tmp_path, url, "siso", keys=REPEATED)
    assert (status, found) == (0, {})
