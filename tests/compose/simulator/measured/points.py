"""Measured TTFT and TPOT of vLLM, and the same by the simulator's scheduler with a closed loop of requests."""

import csv
import hashlib
import json
import random
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

from compose.simulator.engine.flags import preset_flags
from compose.simulator.engine.job import FinishReason, Job
from compose.simulator.engine.scheduler import Scheduler
from compose.simulator.presets.preset import Preset
from compose.simulator.presets.step_terms import StepTerms, preset_of
from exporters.analysis.roofline.formulas import Setup
from exporters.analysis.roofline.gpus import SHIPPED, Dtype, Gpu, find_gpu, read_gpus
from exporters.analysis.roofline.model_shape import ModelShape, read_shape
from tests.exporters.analysis.roofline.model_configs import (
    GPT_OSS,
    KIMI_K2,
    LLAMA_8B,
    LLAMA_70B,
    MINIMAX_M2,
    QWEN3_32B,
    QWEN3_235B,
)

CONFIGS = {
    "Kimi-K2.5": KIMI_K2,
    "Llama-3.1-70B": LLAMA_70B,
    "Llama-3.1-8B-Instruct-FP8": LLAMA_8B,
    "MiniMax-M2.5": MINIMAX_M2,
    "Qwen3-235B-A22B": QWEN3_235B,
    "Qwen3-32B": QWEN3_32B,
    "gpt-oss-120b": GPT_OSS,
}
REQUESTS = 10
"""Requests of each client of the loop, as in InferenceX."""
OLDER_SEQUENCE_SECONDS = 3.54e-5
"""More for each request in a step of an older release: sampling and bookkeeping, which newer ones do in parallel."""


@dataclass(frozen=True, slots=True)
class Point:
    """A run with `concurrency` clients, each of which sends its next request when the last one ends; in seconds."""

    model: str
    gpu: str
    release: str
    dtype: Dtype
    varied: bool
    tensor_parallel: int
    input: int
    output: int
    concurrency: int
    ttft: float
    tpot: float

    @property
    def fits(self) -> bool:
        """Whether the point is for the fit: three of ten, by the hash of all that identifies it."""
        words = (self.model, self.gpu, self.tensor_parallel, self.input, self.output, self.concurrency)
        return int(hashlib.sha256(repr(words).encode()).hexdigest(), 16) % 10 < 3

    @property
    def mixture(self) -> bool:
        """Whether the model has experts."""
        return _shape(self.model).experts is not None

    def preset(self, terms: StepTerms) -> Preset:
        preset = preset_of(setup_of(self), name=self.model, model=self.model, terms=terms)
        return replace(preset, sequence_seconds=OLDER_SEQUENCE_SECONDS) if self.older else preset

    @property
    def older(self) -> bool:
        """Whether a step of the release costs time for each sequence: all points of 0.11 and 0.12."""
        return self.release.startswith(("0.11.", "0.12."))


def setup_of(point: Point) -> Setup:
    """The KV cache has 16 bits, as the source names no other."""
    return Setup(
        gpu=find_gpu(point.gpu, _gpus()),
        shape=_shape(point.model),
        dtype=point.dtype,
        weight_dtype=point.dtype,
        kv_dtype=Dtype.BF16,
        tensor_parallel=point.tensor_parallel,
    )


@cache
def _gpus() -> tuple[Gpu, ...]:
    return read_gpus(SHIPPED)


@cache
def _shape(model: str) -> ModelShape:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(CONFIGS[model], file)
        file.flush()
        return read_shape(Path(file.name))


def read_points() -> Iterator[Point]:
    with (Path(__file__).parent / "aiconfigurator.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            yield Point(
                model=row["model"],
                gpu=row["gpu"],
                release=row["release"],
                dtype=Dtype(row["dtype"]),
                varied=row["varied"] == "yes",
                tensor_parallel=int(row["tensor_parallel"]),
                input=int(row["input"]),
                output=int(row["output"]),
                concurrency=int(row["concurrency"]),
                ttft=float(row["ttft"]) / 1000,
                tpot=float(row["tpot"]) / 1000,
            )


@dataclass(frozen=True, slots=True)
class Prediction:
    """Means over all requests, in seconds."""

    ttft: float
    tpot: float


def predict(point: Point, terms: StepTerms, requests: int = REQUESTS) -> Prediction:
    """The same run with the simulator's scheduler: each request reaches it after the latency before the queue.

    Each client sends `requests`, at least two.
    """
    preset = point.preset(terms)
    scheduler = Scheduler(replace(preset_flags(preset), enable_prefix_caching=False), preset)
    rng, now = random.Random(0), 0.0  # noqa: S311 - repeatable, not secret
    arrivals, left = deque([0.0] * point.concurrency), point.concurrency * (requests - 1)
    ended: list[tuple[Job, float]] = []
    while True:
        while arrivals and arrivals[0] <= now:
            scheduler.submit(_job(point, rng), arrivals.popleft())
        step = scheduler.step(now)
        if step is None:
            if not arrivals:
                break
            now = arrivals[0]
            continue
        now = step.ends_at
        for token in step.tokens:
            if token.finish is not None:
                ended.append((token.job, now))
                if left:
                    left -= 1
                    arrivals.append(now + preset.request_seconds)
    return Prediction(
        ttft=_mean(ended, lambda job, _: (job.first_token_at or 0.0) - job.queued_at + preset.request_seconds),
        tpot=_mean(ended, lambda job, at: (at - (job.first_token_at or 0.0)) / max(1, job.output_length - 1)),
    )


def _mean(ended: Sequence[tuple[Job, float]], of: Callable[[Job, float], float]) -> float:
    """The mean over the requests of a run with `REQUESTS` of each client, in which the first of all come at once."""
    first, later = ([of(job, at) for job, at in ended if (job.queued_at > 0) is later] for later in (False, True))
    return (fmean(first) + (REQUESTS - 1) * fmean(later)) / REQUESTS


def _job(point: Point, rng: random.Random) -> Job:
    least = 0.8 if point.varied else 1.0
    prompt, output = (rng.randint(int(least * length), length) for length in (point.input, point.output))
    return Job(
        tokens=[0] * prompt,
        prompt_length=prompt,
        output_length=output,
        finish=FinishReason.LENGTH,
        generate=lambda _: 0,
    )
