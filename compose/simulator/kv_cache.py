"""The paged KV cache: blocks with reference counts, found by the hash of their tokens, evicted oldest first."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

ROOT = 0
"""The parent hash of the first block."""


def block_hash(parent: int, tokens: Sequence[int]) -> int:
    """The hash of a full block: its own tokens and, through `parent`, all before them."""
    return hash((parent, *tokens))  # of integers, so the same in every process


def block_hashes(tokens: Sequence[int], block_size: int) -> Iterator[int]:
    """The hashes of the full blocks of `tokens`."""
    parent = ROOT
    for end in range(block_size, len(tokens) + 1, block_size):
        parent = block_hash(parent, tokens[end - block_size : end])
        yield parent


class BlockPool:
    """Blocks `1..capacity`; a free block keeps its content until it is allocated again, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, capacity + 1))
        self._references = [0] * (capacity + 1)
        self._hash: list[int | None] = [None] * (capacity + 1)
        self._by_hash: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that no request uses, with cached content or without."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0 to 1: cached content that no request uses counts as free, as in vLLM."""
        return 1 - len(self._free) / self.capacity

    def find(self, hashes: Sequence[int]) -> list[int]:
        """The blocks with the longest cached prefix of `hashes`."""
        blocks = []
        for each in hashes:
            block = self._by_hash.get(each)
            if block is None:
                break
            blocks.append(block)
        return blocks

    def count_unused(self, blocks: Sequence[int]) -> int:
        """How many of `blocks` are free: `share` makes them used."""
        return sum(not self._references[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """One more reference to each of `blocks`."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """`count` of the free blocks for new content; their cached content is evicted."""
        blocks = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
            content = self._hash[block]
            if content is not None:
                del self._by_hash[content]
                self._hash[block] = None
        return blocks

    def register(self, block: int, content: int) -> None:
        """Make `block` findable by `content`; of several blocks with the same content, the first stays findable."""
        if content not in self._by_hash and self._hash[block] is None:
            self._by_hash[content] = block
            self._hash[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """One reference less to each; a request's last blocks are evicted first, as its prefix is shared more often."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._free[block] = None
