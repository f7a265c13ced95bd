"""The paged KV cache: blocks with reference counts, found again by the hash of the tokens they hold, evicted by age."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

ROOT = 0
"""The hash that stands before the first block."""


def chain(parent: int, tokens: Sequence[int]) -> int:
    """The hash of a full block: its own tokens and, through `parent`, all before them."""
    return hash((parent, *tokens))  # of integers, so the same in every process


def chained(tokens: Sequence[int], block_size: int) -> Iterator[int]:
    """The hashes of the full blocks of `tokens`."""
    parent = ROOT
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = chain(parent, tokens[end - block_size : end])
        yield parent


class BlockPool:
    """Blocks `1..capacity`; a free block keeps its content until it is given out again, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, capacity + 1))
        self._users = [0] * (capacity + 1)
        self._hash: list[int | None] = [None] * (capacity + 1)
        self._by_hash: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody uses, cached content or not."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0 to 1: cached content that nobody uses counts as free, as in vLLM."""
        return 1 - len(self._free) / self.capacity

    def find(self, hashes: Sequence[int]) -> list[int]:
        """The blocks that hold the longest known beginning of `hashes`."""
        found = []
        for each in hashes:
            block = self._by_hash.get(each)
            if block is None:
                break
            found.append(block)
        return found

    def idle(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` nobody uses: sharing those takes them from the free ones."""
        return sum(not self._users[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """One more user for each of `blocks`."""
        for block in blocks:
            if not self._users[block]:
                del self._free[block]
            self._users[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` blocks for new content, no more than are free; what they held is forgotten."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._users[block] = 1
            held = self._hash[block]
            if held is not None:
                del self._by_hash[held]
                self._hash[block] = None
        return taken

    def label(self, block: int, content: int) -> None:
        """Let `block` be found by `content`; the first of several blocks with the same content stays the one found."""
        if content not in self._by_hash and self._hash[block] is None:
            self._by_hash[content] = block
            self._hash[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """One user less for each; a request's last blocks are evicted first, for its beginning is shared more often."""
        for block in reversed(blocks):
            self._users[block] -= 1
            if not self._users[block]:
                self._free[block] = None
