"""One line of the request log, as far as it is compared."""

import math
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from exporters.errors import UsageError, system_reason
from exporters.signals import Outcome, Verdict


class Line(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The fields of a line that are compared; `time` is when the request arrived."""

    time: Annotated[datetime, msgspec.Meta(tz=True)]
    request_class: str = msgspec.field(name="class")
    stream: bool
    outcome: Outcome
    e2e_ms: Annotated[float, msgspec.Meta(ge=0)]
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    queue_ms: float | None = None
    wait_ms_at_least: float | None = None
    slo: dict[str, Verdict] = {}
    config_revision: str | None = None
    arrived: float = 0.0
    ended: float = 0.0

    def __post_init__(self) -> None:
        """Unix seconds, made once: they are read twenty times."""
        arrived = self.time.timestamp()
        msgspec.structs.force_setattr(self, "arrived", arrived)
        msgspec.structs.force_setattr(self, "ended", arrived + self.e2e_ms / 1000)

    @property
    def ttft(self) -> float | None:
        return _seconds(self.ttft_ms)

    @property
    def tpot(self) -> float | None:
        return _seconds(self.tpot_ms)

    @property
    def queue(self) -> float | None:
        return _seconds(self.queue_ms)

    @property
    def tokens(self) -> int:
        return (self.prompt_tokens or 0) + (self.completion_tokens or 0)

    @property
    def wait(self) -> float | None:
        """Seconds to the first token of a stream; infinite if the server kept it from coming.

        Who left before counts as having waited so long: less than the truth, but they are not forgotten.
        """
        if not self.stream or self.outcome is Outcome.CLIENT_ERROR:
            return None
        if self.ttft is not None:
            return self.ttft
        if self.outcome is Outcome.CLIENT_ABORT:
            return _seconds(self.wait_ms_at_least)
        return None if self.outcome is Outcome.OK else math.inf


def read(paths: Iterable[Path]) -> tuple[list[Line], dict[Path, int]]:
    """All lines of some files, and of each file how many lines are none.

    Raises:
        UsageError: a file cannot be read.
    """
    decode = msgspec.json.Decoder(Line).decode
    lines, broken = [], dict.fromkeys(paths, 0)
    for path in broken:
        try:
            with path.open("rb") as file:
                for text in file:
                    try:
                        lines.append(decode(text))
                    except (msgspec.DecodeError, UnicodeDecodeError):  # a cut-off write, another program's line
                        broken[path] += 1
        except OSError as error:
            raise UsageError(f"--request-log: {path} cannot be read: {system_reason(error)}") from error
    return lines, broken


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
