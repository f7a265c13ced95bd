"""The paged KV cache on its own."""

from hypothesis import given
from hypothesis import strategies as st

from compose.simulator.kv_cache import BlockPool, chained

TOKENS = st.lists(st.integers(0, 3), max_size=40)


@given(st.lists(TOKENS, max_size=12), st.integers(1, 4))
def test_a_pool_gives_back_what_it_was_given(prompts: list[list[int]], size: int) -> None:
    pool = BlockPool(200)
    held = []
    for tokens in prompts:
        hashes = list(chained(tokens, size))
        hits = pool.find(hashes)
        pool.share(hits)
        fresh = pool.take(len(hashes) - len(hits))
        for block, content in zip(hits + fresh, hashes, strict=True):
            pool.label(block, content)
        held.append(hits + fresh)
    assert pool.free == 200 - len({block for blocks in held for block in blocks})
    for blocks in held:
        pool.release(blocks)
    assert pool.free == pool.capacity
    assert pool.usage == 0


@given(TOKENS, TOKENS, TOKENS)
def test_two_sequences_share_hashes_exactly_as_far_as_they_share_full_blocks(
    prefix: list[int], left: list[int], right: list[int]
) -> None:
    one, two = list(chained(prefix + left, 4)), list(chained(prefix + right, 4))
    common = 0
    while (prefix + left)[: 4 * common + 4] == (prefix + right)[: 4 * common + 4] and common < min(len(one), len(two)):
        common += 1
    assert one[:common] == two[:common]
    assert not set(one[common:]) & set(two[common:])


def test_the_longest_unused_content_is_evicted_first_and_the_end_of_a_sequence_before_its_beginning() -> None:
    pool = BlockPool(4)
    old, young = pool.take(2), pool.take(2)
    for content, block in enumerate(old + young):
        pool.label(block, content)
    pool.release(old)
    pool.release(young)
    assert pool.find([0, 1]) == old
    pool.take(1)
    assert pool.find([0, 1]) == old[:1]
    pool.take(1)
    assert pool.find([0, 1]) == []
    assert pool.find([2, 3]) == young


def test_cached_content_that_nobody_uses_counts_as_free() -> None:
    pool = BlockPool(10)
    blocks = pool.take(4)
    pool.label(blocks[0], 7)
    assert pool.usage == 0.4
    pool.release(blocks)
    assert pool.usage == 0
    assert pool.idle(pool.find([7])) == 1


def test_the_first_of_two_blocks_with_the_same_content_stays_the_one_that_is_found() -> None:
    pool = BlockPool(3)
    first, second = pool.take(2)
    pool.label(first, 7)
    pool.label(second, 7)
    assert pool.find([7]) == [first]
