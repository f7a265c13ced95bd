"""Mutates real input. A case depends only on a seed and a number, which therefore reproduce it."""

import random
import re
from collections.abc import Callable, Sequence
from itertools import pairwise

CONTENT_LENGTHS = tuple(
    b"content-length: " + value
    for value in b"0|2|5|90|300|+5|-5|0x5|05|5, 5|5 5|4294967296|18446744073709551616".split(b"|")
)

Mutation = Callable[[random.Random, bytes, Sequence[bytes]], bytes]


def _at(rng: random.Random, data: bytes) -> int:
    return rng.randint(0, len(data))


def _range(rng: random.Random, data: bytes) -> tuple[int, int]:
    start = _at(rng, data)
    return start, min(len(data), start + rng.choice((1, 2, 4, 16, 64)))


def _flip(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _drop(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    return data[:start] + data[end:]


def _repeat(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    start, end = _range(rng, data)
    at = _at(rng, data)
    return data[:at] + data[start:end] * rng.choice((1, 2, 9)) + data[at:]


def _insert(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice(strings) + data[at:]


def _replace(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    """Replaces a known string with another one, for example `content-length` with `transfer-encoding`."""
    present = [string for string in strings if string in data]
    if not present:
        return _insert(rng, data, strings)
    old = rng.choice(present)
    return data.replace(old, rng.choice(strings), rng.choice((1, -1)))


def _insert_line(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    """Inserts at the end of a line, so that a head remains a head."""
    ends = [at for at in range(2, len(data) + 1) if data[at - 2 : at] == b"\r\n"]
    at = rng.choice(ends) if ends else 0
    return data[:at] + rng.choice(strings) + b"\r\n" * rng.randint(0, 1) + data[at:]


def _cut_off(rng: random.Random, data: bytes, strings: Sequence[bytes]) -> bytes:
    return data[: _at(rng, data)]


MUTATIONS: tuple[Mutation, ...] = (_flip, _drop, _repeat, _insert, _replace, _insert_line, _insert_line, _cut_off)


def mutated(rng: random.Random, corpus: Sequence[bytes], strings: Sequence[bytes]) -> bytes:
    """One to three entries of the corpus with zero to six mutations; rarely random bytes."""
    if rng.random() < 0.02:
        return rng.randbytes(rng.randint(1, 200))
    data = b"".join(rng.choice(corpus) for _ in range(rng.choice((1, 1, 1, 2, 3))))
    for _ in range(rng.choice((0, 1, 1, 2, 3, 6))):
        data = rng.choice(MUTATIONS)(rng, data, strings)
    return data


def cut(rng: random.Random, data: bytes, mark: bytes) -> list[bytes]:
    """The data in reads: one read, split after each `mark`, split anywhere, or byte by byte."""
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
