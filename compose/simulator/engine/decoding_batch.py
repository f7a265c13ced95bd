"""The jobs that compute one token in each step, advanced as a whole, whatever their number."""

from array import array
from collections import defaultdict
from collections.abc import Sequence
from operator import attrgetter, sub

from compose.simulator.engine.job import Job

_LATEST_STEPS = 65_536
"""Steps after which all jobs are updated, so that the ends of those before can be forgotten."""
admission = attrgetter("admission")
"""The order in which the scheduler goes through its jobs."""


class DecodingBatch:
    """The fields of a job are those at a step in the past until it is updated or removed."""

    def __init__(self, block_size: int) -> None:
        self.jobs: dict[Job, None] = {}
        self.context = 0
        """Tokens of all jobs whose keys and values are in the cache."""
        self._steps = 0
        self._forgotten = 0
        self._ends = array("d")  # of the steps since those forgotten
        # Jobs by the step that ends them, and by the steps that begin a block: both stay true while a job decodes.
        self._ending: defaultdict[int, dict[Job, None]] = defaultdict(dict)
        self._by_block: list[dict[Job, None]] = [{} for _ in range(block_size)]
        self._hashed = 0  # jobs whose tokens are known

    def add(self, job: Job) -> None:
        """Add a job whose last token is the only one that is not computed."""
        job.counted = self._steps
        self.jobs[job] = None
        self.context += job.computed
        self._ending[_last_step(job)][job] = None
        self._by_block[self._block_key(job)][job] = None
        self._hashed += job.generate is not None

    def remove(self, job: Job) -> None:
        """Remove a job, which is then up to date."""
        self.update(job)
        del self.jobs[job]
        self.context -= job.computed
        del self._by_block[self._block_key(job)][job]
        self._hashed -= job.generate is not None
        last = _last_step(job)
        del self._ending[last][job]
        if not self._ending[last]:
            del self._ending[last]

    def update(self, job: Job) -> None:
        """Add to a job what the steps since its last update have changed."""
        steps = self._steps - job.counted
        if not steps or job.last_token_at is None:
            return
        first = job.counted - self._forgotten
        job.gaps.append(self._ends[first] - job.last_token_at)
        if steps > 1:
            ends = self._ends[first:]
            job.gaps.extend(map(sub, ends[1:], ends))
        job.last_token_at = self._ends[-1]
        job.generated += steps
        job.computed += steps
        job.chunks += steps
        job.counted = self._steps

    def advance(self, ends: float) -> Sequence[Job]:
        """Run a step that ends at this time in seconds; returns the jobs that it ends, which are removed."""
        self._steps += 1
        self._ends.append(ends)
        self.context += len(self.jobs)
        if len(self._ends) == _LATEST_STEPS:
            for job in self.jobs:
                self.update(job)
            self._forgotten, self._ends = self._steps, array("d")
        if self._steps not in self._ending:
            return ()
        ended = sorted(self._ending[self._steps], key=admission)
        for job in ended:
            self.remove(job)
        return ended

    @property
    def ends_a_job(self) -> bool:
        """Whether the next step has the last token of a job."""
        return self._steps + 1 in self._ending

    @property
    def beginning_a_block(self) -> dict[Job, None]:
        """The jobs whose next token is the first of a block."""
        return self._by_block[self._steps % len(self._by_block)]

    @property
    def filling_a_block(self) -> dict[Job, None]:
        """The jobs whose next token is the last of a block; none if no tokens are known."""
        return self._by_block[(self._steps + 1) % len(self._by_block)] if self._hashed else {}

    def _block_key(self, job: Job) -> int:
        return (job.counted - job.computed) % len(self._by_block)


def _last_step(job: Job) -> int:
    return job.counted + job.output_length - job.generated
