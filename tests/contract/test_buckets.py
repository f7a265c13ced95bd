"""The declared bounds and families of vLLM match its expositions."""

import re
from itertools import pairwise

import pytest

from exporters.engines.signal_table import VLLM
from exporters.engines.vllm_buckets import FINISHED, NEWEST, OLDEST, family, first_with, histogram, order
from exporters.vocabulary.signals import (
    ENGINE_DECODE,
    ENGINE_DURATION,
    ENGINE_PREFILL,
    ENGINE_QUEUE,
    ENGINE_TPOT,
    ENGINE_TTFT,
    Signal,
)
from tests.contract.expositions import DATA, RECORDED, VLLM_VERSIONS

LATENCIES = (ENGINE_TTFT, ENGINE_TPOT, ENGINE_DURATION, ENGINE_QUEUE, ENGINE_PREFILL, ENGINE_DECODE)


@pytest.mark.parametrize("version", ["0.25.1", "0.32.0"])
@pytest.mark.parametrize("signal", LATENCIES, ids=lambda signal: signal.name)
def test_the_bounds_match_a_recorded_exposition(signal: Signal, version: str) -> None:
    declared = histogram(signal, version)
    assert declared is not None
    exposition = (DATA / f"vllm-{version}.txt").read_text()
    bounds = re.findall(rf'^{declared.name}_bucket{{[^}}]*le="([^"+]+)"', exposition, re.MULTILINE)
    assert declared.bounds == tuple(map(float, bounds))


@pytest.mark.parametrize("version", VLLM_VERSIONS)
def test_every_mapped_family_exists_in_that_release(version: str) -> None:
    recorded = {f"vllm:{name}" for name, each in RECORDED["families"].items() if version in each["in"].split()}
    read = {source.name for row in VLLM.rows if (source := family(row, version))} | {FINISHED}
    assert {name.removesuffix("_total").removesuffix("_sum") for name in read} <= {
        name.removesuffix("_total") for name in recorded
    }


@pytest.mark.parametrize("signal", LATENCIES, ids=lambda signal: signal.name)
def test_a_histogram_exists_from_its_first_release_and_its_bounds_ascend(signal: Signal) -> None:
    first = first_with(signal)
    for version in (*VLLM_VERSIONS, OLDEST, NEWEST, "1.0"):
        declared = histogram(signal, version)
        assert (declared is not None) == (order(version) >= order(first))
        assert declared is None or all(below < above for below, above in pairwise(declared.bounds))


@pytest.mark.parametrize(
    "version,largest",
    [
        pytest.param("0.8.4", 10.0, id="the last release with the lower bounds"),
        pytest.param("0.8.5", 2560.0, id="the first release with the higher bounds"),
        pytest.param("v0.25", 2560.0, id="the tag of an image"),
    ],
)
def test_releases_are_compared_numerically(version: str, largest: float) -> None:
    ttft = histogram(ENGINE_TTFT, version)
    assert ttft is not None
    assert ttft.bounds[-1] == largest
    assert order("0.10.2") > order("0.9.2")
