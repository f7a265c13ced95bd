"""Mutates real input: each case follows from a seed and a number alone, so that those are its reproducer."""

import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _at(rng: random.Random, data: bytes) -> int:
    return rng.randint(0, len(data))


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = _at(rng, data)
    return start, min(len(data), start + rng.choice((1, 2, 4, 16, 64)))


def _flip(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _drop(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    at = _at(rng, data)
    return data[:at] + data[start:end] * rng.choice((1, 2, 9)) + data[at:]


def _insert(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice(words) + data[at:]


def _swap_word(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """One known word for another that is present: `content-length` for `transfer-encoding`, say."""
    present = [word for word in words if word in data]
    if not present:
        return _insert(rng, data, words)
    old = rng.choice(present)
    return data.replace(old, rng.choice(words), rng.choice((1, -1)))


def _insert_line(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    """Where a line ends, so that a head stays a head."""
    ends = [at for at in range(2, len(data) + 1) if data[at - 2 : at] == b"\r\n"]
    at = rng.choice(ends) if ends else 0
    return data[:at] + rng.choice(words) + b"\r\n" * rng.randint(0, 1) + data[at:]


def _cut_off(rng: random.Random, data: bytes, words: Sequence[bytes]) -> bytes:
    return data[: _at(rng, data)]


MUTATIONS: tuple[Mutation, ...] = (_flip, _drop, _repeat, _insert, _swap_word, _insert_line, _insert_line, _cut_off)


def mutated(rng: random.Random, corpus: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """One to three of the corpus in a row with a few mutations, now and then none; or plain noise."""
    if rng.random() < 0.02:
        return rng.randbytes(rng.randint(1, 200))
    data = b"".join(rng.choice(corpus) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        data = rng.choice(MUTATIONS)(rng, data, words)
    return data


def cut(rng: random.Random, data: bytes, mark: bytes) -> list[bytes]:
    """The data as a socket may give it: in one read, cut after each `mark`, cut anywhere, or byte by byte."""
    match rng.choice(("whole", "marks", "marks", "few", "bytes")):
        case "whole":
            places = []
        case "marks":
            places = [match.end() for match in re.finditer(re.escape(mark), data)]
        case "few":
            places = [_at(rng, data) for _ in range(rng.choice((1, 3, 10)))]
        case _:
            places = list(range(len(data)))
    return [data[start:end] for start, end in pairwise(sorted({0, len(data), *places}))]
