"""The share of a worker of a distributed run: worker i of n sends the requests with number % n == i."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from exporters.text.errors import UsageError
from loadgen.schedule.phases import ClosedLoop, Phase
from loadgen.schedule.requests import PlannedRequest, Schedule


@dataclass(frozen=True, slots=True)
class Share:
    """Worker `index` of `workers`; the shares of all workers are disjoint and add up to the whole."""

    index: int
    workers: int

    def has(self, request: PlannedRequest) -> bool:
        return request.number % self.workers == self.index

    def part(self, total: int) -> int:
        """The worker's part of a number of users or slots."""
        return len(range(self.index, total, self.workers))

    def limit(self, flag: str, total: int) -> int:
        """The part of a limit.

        Raises:
            UsageError: a worker would have none of it.
        """
        if total < self.workers:
            raise UsageError(f"{flag} {total}: is divided among {self.workers} workers; set at least {self.workers}")
        return self.part(total)

    def phases(self, phases: Sequence[Phase]) -> list[Phase]:
        """The phases with the users of this worker."""
        return [
            replace(phase, users=self.part(phase.users)) if isinstance(phase, ClosedLoop) else phase for phase in phases
        ]


class SharedSchedule:
    """The requests of a share, with the due times and numbers of the whole schedule."""

    def __init__(self, whole: Schedule, share: Share) -> None:
        self._whole = whole
        self._share = share

    def __iter__(self) -> Iterator[PlannedRequest]:
        return filter(self._share.has, self._whole)

    def users(self, phase: Phase) -> Iterator[PlannedRequest]:
        return filter(self._share.has, self._whole.users(phase))
