"""Random scans, as a function of a seed alone: what the library is judged by on inputs that nobody tuned for.

This file is frozen: whoever changes what it draws measures the library before and after, and says so. Every number
comes from `random.Random(text).random()`, which Python promises to keep.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from cuscan.bench.buffers import untouched_buffers
from cuscan.bench.cases import Case
from cuscan.bench.layouts import Layout
from cuscan.dtypes import DTYPES, EXACT

MOVED = (64 << 20, 2 << 30)  # bytes: the least and the most
CASES = 400
SEEDS = 3

T = TypeVar("T")

FLOATS = {"float32": 8, "bfloat16": 7, "float16": 3, "float64": 3}
INTEGERS = {"int64": 2, "int32": 2, "int16": 1, "uint8": 2}
NUMBERS = {**FLOATS, **INTEGERS}
EVERY = {**NUMBERS, "bool": 1}
STATES = {"float32": 1}

# What is called beside the plain forward sum, and of which element types (with their weights).
CALLS: tuple[tuple[dict[str, Any], dict[str, int]], ...] = (
    ({"reverse": True}, EVERY),
    ({"exclusive": True}, EVERY),
    ({"reverse": True, "exclusive": True}, EVERY),
    ({"include_initial": True}, EVERY),
    ({"masked": True}, EVERY),
    ({"masked": True, "reverse": True}, EVERY),
    ({"skipna": True}, FLOATS),
    ({"op": "mul"}, NUMBERS),
    ({"op": "max"}, NUMBERS),
    ({"op": "min"}, NUMBERS),
    ({"op": "max", "masked": True}, NUMBERS),
    ({"op": "max with indices"}, NUMBERS),
    ({"op": "min with indices"}, NUMBERS),
    ({"op": "logaddexp"}, FLOATS),
    ({"op": "and"}, {**INTEGERS, "bool": 1}),
    ({"op": "or"}, {**INTEGERS, "bool": 1}),
    ({"op": "xor"}, {**INTEGERS, "bool": 1}),
    ({"segments": "offsets"}, EVERY),
    ({"segments": "reset"}, EVERY),
    ({"segments": "reset", "full_reset": True}, EVERY),
    ({"segments": "keys"}, EVERY),
    ({"segments": "offsets", "reverse": True, "exclusive": True}, EVERY),
    ({"segments": "reset", "full_reset": True, "op": "max", "reverse": True}, NUMBERS),
    ({"op": "linear_recurrence"}, FLOATS),
    ({"op": "linear_recurrence", "decay": "broadcast"}, FLOATS),
    ({"op": "linear_recurrence", "decay": "scalar"}, FLOATS),
    ({"op": "linear_recurrence", "segments": "reset", "full_reset": True}, FLOATS),
    ({"op": "affine"}, STATES),
    ({"op": "matrix_product"}, STATES),
    ({"op": "modular_product"}, {"int64": 1}),
)
VIEWS = {"contiguous": 70, "sliced": 10, "stepped": 3, "transposed": 11, "misaligned": 6}


def seeds_of(commit: str) -> list[int]:
    """The seeds that a commit is measured with, so that nobody chooses them."""
    return [int(hashlib.sha256(f"{commit} {i}".encode()).hexdigest()[:8], 16) for i in range(SEEDS)]


def seeds_seen(records: Iterable[dict[str, Any]]) -> list[int]:
    """The seeds of a measurement that some records are of: all of a commit's, where one of these was begun."""
    begun = {int(r["label"].partition("/")[0], 16): r["commit"] for r in records if r["group"] == "sample"}
    of_commits = (seed for first, commit in begun.items() if first in seeds_of(commit) for seed in seeds_of(commit))
    return list(dict.fromkeys((*of_commits, *begun)))


def sample(seed: int, count: int = CASES, moved: tuple[int, int] = MOVED) -> list[Case]:
    """Some random scans, each of which moves so many bytes; a larger count goes on with more."""
    return [
        dataclasses.replace(_case(seed, number, moved), label=f"{seed:08x}/{number:03d}") for number in range(count)
    ]


def _case(seed: int, number: int, moved: tuple[int, int]) -> Case:
    """Every third is a plain forward sum; two of 13 have a result whose fast axis is not the input's."""
    plain, turned = number % 3 == 0, number % 13 in (0, 6)
    for case in _tries(_Draws(f"cuscan {seed} {number}"), plain, turned, moved):
        if case.shape[case.axis] > 1 and case.transposing == turned and moved[0] <= moved_bytes(case) <= moved[1]:
            return case
    raise AssertionError("tries never end")


def moved_bytes(case: Case) -> int:
    """Bytes that a scan must read and write."""
    return untouched_buffers(dataclasses.replace(case, fresh=False)).nbytes


class _Draws:
    """Random numbers by a text, made of nothing but `random()`."""

    def __init__(self, text: str) -> None:
        self.random = random.Random(text).random

    def below(self, count: int) -> int:
        """One of 0, 1, ..., count - 1."""
        return int(self.random() * count)

    def pick(self, weights: dict[str, int]) -> str:
        """One of the keys."""
        place = self.random() * sum(weights.values())
        for key, weight in weights.items():
            place -= weight
            if place < 0:
                return key
        return key

    def between(self, least: float, most: float) -> float:
        """Log-uniform: all sizes are as likely as their halves."""
        return float(least * (most / least) ** self.random())

    def shuffled(self, items: Sequence[T]) -> tuple[T, ...]:
        """In any order."""
        left = list(items)
        return tuple(left.pop(self.below(len(left))) for _ in items)


def _tries(draws: _Draws, plain: bool, turned: bool, moved: tuple[int, int]) -> Iterator[Case]:
    call, dtypes = ({}, EVERY) if plain else CALLS[draws.below(len(CALLS))]
    dtype = draws.pick(dtypes)
    result = None if "op" in call else _given_dtype(draws, dtype)
    wanted = draws.between(*moved)
    ndim = 2 + draws.below(3) if turned else 1 + draws.below(4)
    peers = ("torch",) if plain else ()
    fixed = {**call, "dtype": dtype, "result": result, "peers": peers, "group": "sample", "how": "sample"}
    while True:
        one = Case((1000,), **{**fixed, "split": "4 even"})
        shape = _shape(draws, ndim, max(int(wanted * 1000 / moved_bytes(one)), 2))
        axis = draws.below(ndim)
        view = _view(draws, shape)
        out, fresh = _results(draws, view, ndim, turned)
        split = _split(draws, shape[axis]) if "segments" in call else ""
        yield Case(shape, axis=axis, view=view, out=out, fresh=fresh, split=split, **fixed)


def _given_dtype(draws: _Draws, dtype: str) -> str | None:
    """The result's dtype where a call gives one: half of the time for integers, now and then for 16-bit floats."""
    given = draws.random()
    if DTYPES[dtype].kind in EXACT:
        return ("int32" if dtype == "bool" else dtype) if given < 0.5 else None
    return "float32" if DTYPES[dtype].itemsize == 2 and given < 0.2 else None


def _shape(draws: _Draws, ndim: int, elements: int) -> tuple[int, ...]:
    """Log-uniform sizes, in any order, that make about so many elements."""
    cuts = sorted([0.0, 1.0, *(draws.random() for _ in range(ndim - 1))])
    sizes = [max(round(elements ** (b - a)), 1) for a, b in itertools.pairwise(cuts)]
    return draws.shuffled(sizes)


def _view(draws: _Draws, shape: tuple[int, ...]) -> Layout:
    ndim, kind = len(shape), draws.pick(VIEWS)
    if kind == "sliced":
        room = [max(size // 8, 1) for size in shape]
        left = [(draws.below(min(most, 64)), draws.below(min(most, 64)) + 1) for most in room]
        chosen = draws.below(ndim)  # along this axis for sure, along others now and then
        keep = [axis == chosen or draws.random() < 0.3 for axis in range(ndim)]
        ahead, behind = ([pair[k] * kept for pair, kept in zip(left, keep, strict=True)] for k in range(2))
        return Layout(ahead=tuple(ahead), behind=tuple(behind))
    if kind == "stepped":
        chosen, step = draws.below(ndim), 2 + draws.below(2)
        return Layout(steps=tuple(step if axis == chosen else 1 for axis in range(ndim)))
    if kind == "transposed" and ndim > 1:
        order = draws.shuffled(range(ndim))
        return Layout(order=order if order != tuple(range(ndim)) else order[::-1])
    return Layout(shift=1 + draws.below(15)) if kind == "misaligned" else Layout()


def _results(draws: _Draws, view: Layout, ndim: int, turned: bool) -> tuple[Layout | None, bool]:
    """Where results go: to new memory, to memory as the input's, or to memory of any other order of axes."""
    shift = 1 + draws.below(15) if draws.random() < 0.1 else 0
    order = draws.shuffled(range(ndim))
    if turned:
        return Layout(order=order, shift=shift), False
    if draws.random() < 0.5:
        return None, True
    return Layout(order=view.order, shift=shift), False


def _split(draws: _Draws, length: int) -> str:
    most = max(min(length // 4, 1 << 22), 4)
    count = 4 * max(int(draws.between(4, most)) // 4, 1)
    return f"{count} {('even', 'skewed', 'tiny')[draws.below(3)]}"
