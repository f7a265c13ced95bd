"""The paged KV cache on its own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.engine.kv_cache import BlockPool, block_hashes

TOKENS = st.lists(st.integers(0, 3), max_size=40)


@pytest.mark.slow
@given(st.lists(TOKENS, max_size=12), st.integers(1, 4))
def test_released_blocks_are_free_again(prompts: list[list[int]], size: int) -> None:
    pool = BlockPool(200)
    allocations = []
    for tokens in prompts:
        hashes = list(block_hashes(tokens, size))
        hits = pool.find(hashes)
        pool.share(hits)
        fresh = pool.allocate(len(hashes) - len(hits))
        for block, content in zip(hits + fresh, hashes, strict=True):
            pool.register(block, content)
        allocations.append(hits + fresh)
    assert pool.free == 200 - len({block for blocks in allocations for block in blocks})
    for blocks in allocations:
        pool.release(blocks)
    assert pool.free == pool.capacity
    assert pool.usage == 0


@given(TOKENS, TOKENS, TOKENS)
def test_two_sequences_share_hashes_exactly_as_far_as_they_share_full_blocks(
    prefix: list[int], left: list[int], right: list[int]
) -> None:
    one, two = list(block_hashes(prefix + left, 4)), list(block_hashes(prefix + right, 4))
    common = 0
    while (prefix + left)[: 4 * common + 4] == (prefix + right)[: 4 * common + 4] and common < min(len(one), len(two)):
        common += 1
    assert one[:common] == two[:common]
    assert not set(one[common:]) & set(two[common:])


def test_the_longest_unused_content_is_evicted_first_and_the_end_of_a_sequence_before_its_beginning() -> None:
    pool = BlockPool(4)
    old, young = pool.allocate(2), pool.allocate(2)
    for content, block in enumerate(old + young):
        pool.register(block, content)
    pool.release(old)
    pool.release(young)
    assert pool.find([0, 1]) == old
    pool.allocate(1)
    assert pool.find([0, 1]) == old[:1]
    pool.allocate(1)
    assert pool.find([0, 1]) == []
    assert pool.find([2, 3]) == young


def test_cached_content_that_no_request_uses_counts_as_free() -> None:
    pool = BlockPool(10)
    blocks = pool.allocate(4)
    pool.register(blocks[0], 7)
    assert pool.usage == 0.4
    pool.release(blocks)
    assert pool.usage == 0
    assert pool.count_unused(pool.find([7])) == 1


def test_the_first_of_two_blocks_with_the_same_content_stays_findable() -> None:
    pool = BlockPool(3)
    first, second = pool.allocate(2)
    pool.register(first, 7)
    pool.register(second, 7)
    assert pool.find([7]) == [first]
