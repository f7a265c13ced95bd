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


@pytest.mark.parametrize(
    "name, memory, bandwidth, dtype, flops",
    [
        pytest.param("T4", 16, 320e9, Dtype.FP16, 65e12, id="T4"),
        pytest.param("A100 40GB", 40, 1555e9, Dtype.BF16, 312e12, id="A100 40 GB"),
        pytest.param("A100 80GB", 80, 2039e9, Dtype.BF16, 312e12, id="A100 80 GB"),
        pytest.param("L4", 24, 300e9, Dtype.BF16, 121e12, id="L4"),
        pytest.param("L40S", 48, 864e9, Dtype.BF16, 362.05e12, id="L40S"),
        pytest.param("RTX 6000 Ada", 48, 960e9, Dtype.BF16, 364.2e12, id="RTX 6000 Ada"),
        pytest.param("H100", 80, 3350e9, Dtype.FP8, 1979e12, id="H100 SXM"),
        pytest.param("H200", 141, 4800e9, Dtype.FP8, 1979e12, id="H200"),
        pytest.param("B200", 180, 7700e9, Dtype.FP4, 9000e12, id="B200"),
        pytest.param("MI300X", 192, 5300e9, Dtype.FP8, 2614.9e12, id="MI300X"),
    ],
)
def test_the_shipped_gpus_have_the_dense_figures_of_their_datasheets(
    name: str, memory: float, bandwidth: float, dtype: Dtype, flops: float
) -> None:
    gpu = find_gpu(name, GPUS)
    assert (gpu.memory, gpu.bandwidth, gpu.flops[dtype]) == (memory * 2**30, bandwidth, flops)


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


NAMES = "T4, A100 40GB, A100 80GB, A100 80GB PCIe, L4, L40S, RTX 6000 Ada, H100, H100 PCIe, H200, B200, MI300X"


@pytest.mark.parametrize(
    "name, guess",
    [
        pytest.param("RTX 6000 Adda", "did you mean 'RTX 6000 Ada'? ", id="a typo"),
        pytest.param("toaster", "", id="no similar name"),
    ],
)
def test_an_unknown_gpu_is_rejected_with_the_nearest_and_all(name: str, guess: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(name, GPUS)
    assert str(caught.value) == f"--gpu: {name!r} is unknown; {guess}known: {NAMES}; define others with --gpu-file FILE"


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


@pytest.mark.parametrize(
    "name, message",
    [
        pytest.param(
            "H100 1g.5gb",
            "--gpu: the H100 has no MIG profile 1g.5gb; its instances have 10 GB, 20 GB, 40 GB, 80 GB",
            id="of another GPU",
        ),
        pytest.param("L40S 1g.6gb", "--gpu: the L40S has no MIG profile 1g.6gb; it has no MIG", id="without MIG"),
    ],
)
def test_an_unknown_mig_profile_is_rejected_with_those_that_exist(name: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_gpu(name, GPUS)
    assert str(caught.value) == message


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
