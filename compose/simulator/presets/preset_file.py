"""A file with a preset that was fitted to a request log, its errors, and the range of the log."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from compose.simulator.presets.preset import Preset
from exporters.text.errors import UsageError

RANGES = ("prompt_tokens", "completion_tokens", "open_requests")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a preset was fitted to: median relative errors of requests, None if not in the log, and each range."""

    requests: int
    ttft_error: float | None
    tpot_error: float | None
    prompt_tokens: tuple[int, int]
    completion_tokens: tuple[int, int]
    open_requests: tuple[int, int]

    def ranges(self) -> dict[str, tuple[int, int]]:
        return {name: getattr(self, name) for name in RANGES}

    def exceeded_by(self, ranges: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
        """The names of the ranges, with least and most, that are not within those of the calibration."""
        for name, (least, most) in self.ranges().items():
            low, high = ranges[name]
            if low < least or high > most:
                yield name.replace("_", " "), low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedPreset:
    """The content of the file."""

    preset: Preset
    calibration: Calibration


def write_preset(path: Path, content: CalibratedPreset) -> None:
    """Write the file as JSON.

    Raises:
        UsageError: the file cannot be written.
    """
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n")
    except OSError as error:
        raise UsageError(f"--out: {path}: {error.strerror}; choose a file that can be written") from error


def read_preset(path: Path) -> CalibratedPreset:
    """Read what `write_preset` has written.

    Raises:
        UsageError: the file cannot be read, or is not such a file.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=CalibratedPreset)
    except OSError as error:
        raise UsageError(f"--preset-file: {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise UsageError(
            f"--preset-file: {path}: {error}; give a file that `vllm-slo simulate --calibrate --out FILE` has written"
        ) from error
