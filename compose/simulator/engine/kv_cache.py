"""The paged KV cache: reference-counted blocks, found by the hash of their tokens, evicted oldest first."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence

ROOT = 0
"""The parent hash of the first block."""


def block_hash(parent: int, tokens: Sequence[int]) -> int:
    """The hash of a full block: its own tokens and, through `parent`, all before them."""
    return hash((parent, *tokens))  # hashes of integers are the same in every process


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
        """Blocks that no request uses, with or without cached content."""
        return len(self._free)

    @property
    def usage(self) -> float:
        """Share of the blocks in use, 0 to 1; as in vLLM, unused cached content counts as free."""
        return 1 - self.free / self.capacity

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
        """How many of `blocks` are free."""
        return sum(not self._references[block] for block in blocks)

    def share(self, blocks: Sequence[int]) -> None:
        """Add a reference to each of `blocks`."""
        for block in blocks:
            if not self._references[block]:
                del self._free[block]
            self._references[block] += 1

    def allocate(self, count: int) -> list[int]:
        """Allocate `count` free blocks and evict their cached content."""
        blocks = []
        for _ in range(count):
            block, _ = self._free.popitem(last=False)
            self._references[block] = 1
            content = self._hash[block]
            if content is not None:
                del self._by_hash[content]
                self._hash[block] = None
            blocks.append(block)
        return blocks

    def register(self, block: int, content: int) -> None:
        """Add `block` to the cache under the hash `content`, unless another block has it."""
        if content not in self._by_hash and self._hash[block] is None:
            self._by_hash[content] = block
            self._hash[block] = content

    def release(self, blocks: Sequence[int]) -> None:
        """Remove a reference from each; evict the last blocks of a request first, as prefixes are shared more often."""
        references, free = self._references, self._free
        for block in reversed(blocks):
            references[block] -= 1
            if not references[block]:
                free[block] = None


class UnsharedBlockPool(BlockPool):
    """The pool of an engine without prefix caching: each block has one user, so the free ones are alike."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks = [*range(1, capacity + 1)]

    @property
    def free(self) -> int:
        return len(self._blocks)

    def allocate(self, count: int) -> list[int]:
        blocks = self._blocks[-count:]
        del self._blocks[-count:]
        return blocks

    def release(self, blocks: Sequence[int]) -> None:
        self._blocks.extend(blocks)
