"""The file of GPUs: the shipped figures, the search by name, and the errors."""

import re
from pathlib import Path

import pytest

from exporters.analysis.roofline.gpus import SHIPPED, Dtype, find_gpu, read_gpus
from exporters.text.errors import UsageError
from tests.support.promtool import ROOT

GPUS = read_gpus(SHIPPED)
ONE = """\
gpus:
  - name: RTX 9000
    memory_gib: 96
    bandwidth_gb_s: 1792
    tflops: {bf16: 500}
    source: a leaflet
"""


def test_every_shipped_gpu_names_its_datasheet_and_is_found_by_its_name() -> None:
    for gpu in GPUS:
        assert "datasheet" in gpu.source.replace(" sheet", "sheet") or "whitepaper" in gpu.source
        assert find_gpu(gpu.name, GPUS) is gpu


@pytest.mark.parametrize(
    "spelling, name",
    [
        pytest.param("NVIDIA H200", "H200", id="nvidia-smi"),
        pytest.param("Tesla T4", "T4", id="older nvidia-smi"),
        pytest.param("rtx-6000-ada", "RTX 6000 Ada", id="a label"),
        pytest.param("AMD Instinct MI300X", "MI300X", id="its vendor"),
    ],
)
def test_a_gpu_is_found_by_any_spelling(spelling: str, name: str) -> None:
    assert find_gpu(spelling, GPUS).name == name


@pytest.mark.parametrize(
    "name, message",
    [
        pytest.param(
            "RTX 6000 Adda",
            "'RTX 6000 Adda' is unknown; did you mean 'RTX 6000 Ada'? known: {names}; define others with --gpu-file "
            "FILE",
        ),
        ("toaster", "'toaster' is unknown; known: {names}; define others with --gpu-file FILE"),
        ("H100 1g.5gb", "the H100 has no MIG profile 1g.5gb; its instances have 10 GB, 20 GB, 40 GB, 80 GB"),
        ("L40S 1g.6gb", "the L40S has no MIG profile 1g.6gb; it has no MIG"),
    ],
)
def test_an_unknown_gpu_or_profile_is_rejected_with_those_that_exist(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(name, GPUS)
    assert str(caught.value) == f"--gpu: {message.format(names=', '.join(gpu.name for gpu in GPUS))}"


@pytest.mark.parametrize(
    "name, memory, compute",
    [
        pytest.param("H100 1g.10gb", 1 / 8, 1 / 7, id="the smallest"),
        pytest.param("NVIDIA H100 MIG 1g.20gb", 2 / 8, 26 / 132, id="more memory, as nvidia-smi spells it"),
        pytest.param("h100-3g.40gb", 4 / 8, 60 / 132, id="half"),
        pytest.param("H100 7g.80gb", 1, 1, id="all"),
        pytest.param("H200 1g.18gb", 1 / 8, 1 / 7, id="a rounded size"),
        pytest.param("B200 2g.45gb", 2 / 8, 2 / 7, id="B200"),
    ],
)
def test_a_mig_instance_has_the_share_of_its_slices(name: str, memory: float, compute: float) -> None:
    instance, whole = find_gpu(name, GPUS), find_gpu(name.replace("NVIDIA ", "")[:4], GPUS)
    assert (instance.memory, instance.bandwidth) == (whole.memory * memory, whole.bandwidth * memory)
    assert instance.flops[Dtype.BF16] == whole.flops[Dtype.BF16] * compute


def test_another_file_has_other_gpus(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(ONE)
    (gpu,) = read_gpus(path)
    assert (gpu.name, gpu.memory, gpu.bandwidth, gpu.flops) == ("RTX 9000", 96 * 2**30, 1792e9, {Dtype.BF16: 500e12})


def test_a_file_with_mistakes_is_rejected_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "gpus.yaml"
    path.write_text(
        ONE.replace("96", "-1").replace("1792", "fast").replace("{bf16: 500}", "{bf17: 500, fp8: .inf}")
        + "  - {name: half, memory: 3}\n"
    )
    with pytest.raises(UsageError) as caught:
        read_gpus(path)
    assert str(caught.value).replace(str(path), "FILE") == (
        "FILE:3:17: gpus[0].memory_gib: expected a number of at least 1, found '-1'\n"
        "FILE:4:21: gpus[0].bandwidth_gb_s: expected a number of at least 1, found 'fast'\n"
        "FILE:5:14: gpus[0].tflops.bf17: unknown key; did you mean 'bf16'?\n"
        "FILE:5:30: gpus[0].tflops.fp8: expected a number of at least 1, found '.inf'\n"
        "FILE:7:5: gpus[1]: memory_gib is missing\n"
        "FILE:7:5: gpus[1]: bandwidth_gb_s is missing\n"
        "FILE:7:5: gpus[1]: tflops is missing\n"
        "FILE:7:5: gpus[1]: source is missing\n"
        "FILE:7:18: gpus[1].memory: unknown key; did you mean 'memory_gib'?"
    )


def test_no_recorded_mig_profile_has_more_than_its_bound() -> None:
    """Recorded with `nvidia-smi mig -lgip` on an H100: the memory in GiB and the multiprocessors, of 132."""
    recorded = (ROOT / "tests/contract/nvidia-smi/h100-mig-profiles.txt").read_text(encoding="utf-8")
    profiles = re.findall(r"MIG (\dg\.\d+gb) .*?\d/\d +([\d.]+) +No +(\d+)", recorded)
    assert len(profiles) == 6
    whole = find_gpu("H100", GPUS)
    for profile, memory, multiprocessors in profiles:
        instance = find_gpu(f"H100 {profile}", GPUS)
        assert instance.memory / 2**30 == pytest.approx(float(memory), rel=0.03), profile
        share = int(multiprocessors) / 132
        assert share <= instance.flops[Dtype.BF16] / whole.flops[Dtype.BF16] <= 1.2 * share, profile
