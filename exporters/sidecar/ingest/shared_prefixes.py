"""Finds which part of a prompt other requests have sent within the last hour, from the hashes of its blocks."""

from array import array

from exporters.records.messages import PREFIX_BLOCK

WINDOW = 3600
"""Seconds for which a hash is remembered."""

WAYS = 16
MAX_HASHES = 1_000_000
"""Hashes that are kept; they take 12 MB."""


class SharedPrefixes:
    """A set-associative table of hashes, which cover the model: a full set of `WAYS` hashes drops its oldest one."""

    def __init__(self, size: int = MAX_HASHES) -> None:
        self._sets = size // WAYS
        self._hashes = array("Q", bytes(8 * self._sets * WAYS))
        self._times = array("I", bytes(4 * self._sets * WAYS))  # 0: unused

    def add(self, value: int, now: float) -> bool:
        """Whether the hash was added within the window before `now`, in monotonic seconds."""
        at = int(now) + 1
        first = value % self._sets * WAYS
        times = self._times[first : first + WAYS]
        try:
            way = self._hashes[first : first + WAYS].index(value)
        except ValueError:
            way = times.index(min(times))
            seen = False
        else:
            seen = times[way] > 0 and at - times[way] <= WINDOW
        self._hashes[first + way] = value
        self._times[first + way] = at
        return seen

    def share(self, hashes: list[int], characters: int, now: float) -> float:
        """Add the hashes of a prompt; the share of its characters before the first block that is new."""
        known = [self.add(value, now) for value in hashes]
        blocks = known.index(False) if False in known else len(known)
        return blocks * PREFIX_BLOCK / characters if blocks else 0.0
