"""`vllm-slo roofline` on the command line, and its JSON in the sidecar."""

import json
from pathlib import Path
from typing import Any

import pytest

from exporters.vocabulary.ceilings import Ceilings, read_ceilings
from tests.exporters.analysis.roofline.model_configs import GPT_OSS, LLAMA_70B, MIXTRAL, QWEN_14B, write
from tests.support.command_line import CommandLine
from tests.support.sidecar_process import sidecar

DOCS = Path(__file__).parents[4] / "docs" / "roofline.md"


def roofline(cli: CommandLine, folder: Path, model: object, gpu: str, flags: str = "", status: int = 0) -> str:
    words = ("--model-config", write(folder, model), "--gpu", gpu, *flags.split())
    return cli("roofline", *words, status=status)


def test_the_docs_have_the_table(tmp_path: Path, cli: CommandLine) -> None:
    output = roofline(cli, tmp_path, QWEN_14B, "RTX 6000 Ada")
    assert "".join(f"    {line}".rstrip() + "\n" for line in output.splitlines()) in DOCS.read_text()


def test_the_table_of_a_mixture_on_two_gpus_with_context(tmp_path: Path, cli: CommandLine) -> None:
    flags = "--tensor-parallel 2 --context 4000 --batch 1 --batch 256"
    assert roofline(cli, tmp_path, MIXTRAL, "h100", flags) == (
        "GPU             2 x H100: 989.5 TFLOP/s bf16, 3350 GB/s, 80 GiB "
        "(NVIDIA H100 Tensor Core GPU datasheet, SXM (1,979 and 3,958 with sparsity))\n"
        "Weights         46.70 B parameters, 12.75 B active: 93.4 GB (bf16)\n"
        "FLOP per token  25.50 G\n"
        "Prefill         74,556 tok/s\n"
        "KV cache        131,072 B per token (bf16); 467,040 tokens fit\n"
        "Decode          always memory-bound, with 4,000 tokens each\n"
        "\n"
        "   batch       tok/s      each  limit\n"
        "       1         258     257.5  memory\n"
        "     256       7,544      29.5  memory; exceeds the KV cache\n"
    )


def test_the_dtype_of_the_experts_is_printed_if_it_is_not_that_of_the_other_weights(
    tmp_path: Path, cli: CommandLine
) -> None:
    weights = roofline(cli, tmp_path, GPT_OSS, "H200").splitlines()[1]
    assert weights == "Weights         116.78 B parameters, 5.12 B active: 61.6 GB (bf16, experts fp4)"


def test_weights_that_do_not_fit_are_reported_with_flags_that_would_fit(tmp_path: Path, cli: CommandLine) -> None:
    lines = roofline(cli, tmp_path, LLAMA_70B, "H100", "--batch 1", status=1).splitlines()
    assert lines[4] == "KV cache        327,680 B per token (bf16); does not fit"
    assert lines[-1] == (
        "The weights do not fit: 141.1 GB, available 77.3 GB (90 % of the memory). Would fit: --tensor-parallel 2, "
        "or --weight-dtype fp8, or --gpu 'B200'."
    )
    for flags in ("--tensor-parallel 2", "--weight-dtype fp8", "--gpu B200"):
        roofline(cli, tmp_path, LLAMA_70B, "H100", flags)


@pytest.fixture
def path(tmp_path: Path, cli: CommandLine) -> Path:
    """The JSON of Qwen2.5-14B on one H200."""
    path = tmp_path / "roofline.json"
    path.write_text(roofline(cli, tmp_path, QWEN_14B, "H200", "--format json --batch 1 --batch 8"))
    return path


def test_the_sidecar_reads_the_json(path: Path) -> None:
    document = json.loads(path.read_text())
    assert read_ceilings(path) == Ceilings(
        document["prefill_tokens_per_second"],
        {1: document["decode_tokens_per_second"]["1"], 8: document["decode_tokens_per_second"]["8"]},
        document["kv_tokens"],
    )
    assert {key: document[key] for key in ("gpu", "kv_bytes_per_token", "crossover_batch", "would_fit")} == {
        "gpu": "H200",
        "kv_bytes_per_token": 196_608,
        "crossover_batch": 206,
        "would_fit": [],
    }


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--dtype bf61", "--dtype: 'bf61' is unknown; did you mean 'bf16'?"),
        pytest.param(
            "--gpu T4",
            "--dtype: the datasheet of T4 has no figure for bf16; it has fp16, int8; for smaller weights only, use "
            "--weight-dtype",
        ),
        ("--weight-dtype int3", "--weight-dtype: 'int3' is unknown; did you mean 'int8'?"),
        ("--kv-dtype auto", "--kv-dtype: 'auto' is unknown; known: fp16, bf16, fp8, int8, fp4, int4"),
        ("--parameters=-14e9", "--parameters: -1.4e+10 is out of range; write a number above 0, such as 14.8e9"),
        ("--parameters nan", "--parameters: nan is out of range; write a number above 0, such as 14.8e9"),
        *(
            pytest.param(
                f"--tensor-parallel {size}",
                f"--tensor-parallel: 40 heads and 8 KV heads cannot be divided among {size} GPUs; "
                "use one of 1, 2, 4, 8, 40",
            )
            for size in (0, 5)
        ),
        (
            "--gpu-memory-utilization 90",
            "--gpu-memory-utilization: 90 is not a share; write a number above 0, at most 1",
        ),
        ("--context=-1", "--context: -1 is out of range; use 0 to 10,000,000 tokens"),
        ("--batch 0", "--batch: '0' is not a number of requests; use 1 or more"),
        ("--model-config none.json", "none.json: cannot be read: no such file or directory"),
    ],
)
def test_a_wrong_flag_is_rejected_with_valid_values(flags: str, message: str, tmp_path: Path, cli: CommandLine) -> None:
    assert roofline(cli, tmp_path, QWEN_14B, "H200", flags, status=2) == ""
    assert cli.errors == f"vllm-slo: {message}\n"


ADVICE = "FILE: create this file with: vllm-slo roofline --format json"


@pytest.mark.parametrize(
    "document, message",
    [
        pytest.param(
            {},
            "FILE: prefill_tokens_per_second: expected a number above 0, found None\n"
            "FILE: kv_tokens: expected a number above 0, found None\n"
            "FILE: decode_tokens_per_second: expected an object of rates by batch, found None\n" + ADVICE,
            id="another document",
        ),
        pytest.param(
            {"prefill_tokens_per_second": True, "kv_tokens": 0, "decode_tokens_per_second": {"0": 3, "8": "fast"}},
            "FILE: prefill_tokens_per_second: expected a number above 0, found True\n"
            "FILE: kv_tokens: expected a number above 0, found 0\n"
            "FILE: decode_tokens_per_second: expected a batch of 1 or more, found '0'\n"
            "FILE: decode_tokens_per_second.8: expected a number above 0, found 'fast'\n" + ADVICE,
            id="several mistakes",
        ),
    ],
)
def test_a_file_with_other_content_is_rejected_by_the_sidecar(
    document: dict[str, Any], message: str, tmp_path: Path, cli: CommandLine
) -> None:
    path = tmp_path / "roofline.json"
    path.write_text(json.dumps(document))
    refused = cli.refusal("sidecar", "--upstream", "http://127.0.0.1:1", "--roofline", path)
    assert refused == message.replace("FILE", str(path))


@pytest.mark.slow
async def test_the_sidecar_exposes_the_ceilings(tmp_path: Path, path: Path) -> None:
    ceilings = read_ceilings(path)
    async with sidecar(tmp_path, "http://127.0.0.1:1", "--roofline", str(path)) as running:
        samples = await running.samples()
        assert {name: value for name, value in samples.items() if name.startswith("llm_roofline_")} == {
            "llm_roofline_prefill_tokens_per_second{}": ceilings.prefill,
            "llm_roofline_decode_tokens_per_second{1}": ceilings.decode[1],
            "llm_roofline_decode_tokens_per_second{8}": ceilings.decode[8],
            "llm_roofline_kv_tokens{}": ceilings.kv_tokens,
        }
        assert await running.stop() == 0
