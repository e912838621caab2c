"""Realistic user operators, each with its meaning, spelled out on lists of elements in plain Python.

An element is a tuple of numbers, one for each field (a single one for an operator on one value). `draw(rng, shape)`
makes a tuple of arrays of elements for which every association gives the same bits: no float is ever rounded, and no
integer of the accumulator overflows. `meaning(elements)` is the combination of the elements, computed without the
operator's own formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import cuscan

Array = np.ndarray[Any, Any]
Element = tuple[Any, ...]

MODULUS = 1_000_003
BASE, PRIME = 257, 2**31 - 1


@dataclass(frozen=True)
class Example:
    """An operator's arguments, and the oracle of its tests."""

    name: str
    combine: str
    identity: Any
    state: dict[str, str] | None
    numpy: Callable[[Array, Array], Any]
    draw: Callable[[np.random.Generator, Any], tuple[Array, ...]]
    meaning: Callable[[list[Element]], Element]

    def operator(self, **changes: Any) -> Any:
        """The operator, with some arguments of the constructor changed."""
        arguments = {"state": self.state, "numpy": self.numpy, **changes}
        first = [arguments.pop(key, getattr(self, key)) for key in ("name", "combine", "identity")]
        return cuscan.Operator(*first, **arguments)

    @property
    def dtypes(self) -> list[str]:
        """The dtypes of the values and of the results."""
        return ["int64"] if self.state is None else list(self.state.values())

    def __str__(self) -> str:
        return self.name


# ---- modular product ----------------------------------------------------------------------------


def _draw_residues(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    return (rng.integers(1, MODULUS, shape, np.int64),)


MODULAR_PRODUCT = Example(
    name="modular_product",
    combine="earlier * later % 1000003",
    identity=1,
    state=None,
    numpy=lambda earlier, later: earlier * later % MODULUS,
    draw=_draw_residues,
    meaning=lambda elements: (math.prod(residue for (residue,) in elements) % MODULUS,),
)


# ---- 2x2 matrices, from left to right -----------------------------------------------------------


def _draw_symmetries(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    """Symmetries of the square: they do not commute, and their products are again symmetries."""
    first, second = rng.choice([-1.0, 1.0], (2, *np.empty(shape).shape))
    swap = rng.random(shape) < 0.5
    parts = (np.where(swap, 0, first), np.where(swap, first, 0), np.where(swap, second, 0), np.where(swap, 0, second))
    return tuple(part.astype(np.float32) for part in parts)


def _matrix_product(elements: list[Element]) -> Element:
    product = np.eye(2, dtype=np.int64)
    for element in elements:
        product = product @ np.array(element, np.int64).reshape(2, 2)
    return tuple(product.ravel().tolist())


MATRIX_PRODUCT = Example(
    name="matrix_product",
    combine="""
        return State{
            earlier.a * later.a + earlier.b * later.c,
            earlier.a * later.b + earlier.b * later.d,
            earlier.c * later.a + earlier.d * later.c,
            earlier.c * later.b + earlier.d * later.d,
        };
    """,
    identity=(1, 0, 0, 1),
    state={"a": "float32", "b": "float32", "c": "float32", "d": "float32"},
    numpy=lambda earlier, later: (
        earlier["a"] * later["a"] + earlier["b"] * later["c"],
        earlier["a"] * later["b"] + earlier["b"] * later["d"],
        earlier["c"] * later["a"] + earlier["d"] * later["c"],
        earlier["c"] * later["b"] + earlier["d"] * later["d"],
    ),
    draw=_draw_symmetries,
    meaning=_matrix_product,
)


# ---- hash of a string (Rabin & Karp 1987) -------------------------------------------------------


def _draw_characters(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    return rng.integers(0, 256, shape, np.uint64), np.full(shape, BASE, np.uint64)


def _polynomial(elements: list[Element]) -> Element:
    powers = range(len(elements) - 1, -1, -1)
    total = sum(code * pow(BASE, power, PRIME) for (code, _), power in zip(elements, powers, strict=True))
    return total % PRIME, pow(BASE, len(elements), PRIME)


STRING_HASH = Example(
    name="string_hash",
    combine="""State{
        (earlier.hash * later.power + later.hash) % 2147483647u,
        earlier.power * later.power % 2147483647u
    }""",
    identity=(0, 1),
    state={"hash": "uint64", "power": "uint64"},
    numpy=lambda earlier, later: (
        (earlier["hash"] * later["power"] + later["hash"]) % np.uint64(PRIME),
        earlier["power"] * later["power"] % np.uint64(PRIME),
    ),
    draw=_draw_characters,
    meaning=_polynomial,
)


# ---- running (min, max) -------------------------------------------------------------------------


def _draw_twice(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    x = np.asarray(rng.standard_normal(shape), np.float32)
    return x, x.copy()


MIN_MAX = Example(
    name="min_max",
    combine="""
        float32 lowest = later.lowest < earlier.lowest ? later.lowest : earlier.lowest;
        float32 highest = later.highest > earlier.highest ? later.highest : earlier.highest;
        return State{lowest, highest};
    """,
    identity=(math.inf, -math.inf),
    state={"lowest": "float32", "highest": "float32"},
    numpy=lambda earlier, later: (
        np.minimum(earlier["lowest"], later["lowest"]),
        np.maximum(earlier["highest"], later["highest"]),
    ),
    draw=_draw_twice,
    meaning=lambda elements: (
        min((low for low, _ in elements), default=math.inf),
        max((high for _, high in elements), default=-math.inf),
    ),
)


# ---- brackets that stay unmatched: the bicyclic monoid ------------------------------------------


def _draw_brackets(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    opens = np.asarray(rng.random(shape) < 0.5)
    return (~opens).astype(np.int32), opens.astype(np.int32)


def _unmatched(elements: list[Element]) -> Element:
    closing, depth = 0, 0
    for bracket in elements:
        if bracket == (0, 1):
            depth += 1
        elif depth:
            depth -= 1
        else:
            closing += 1
    return closing, depth


BRACKETS = Example(
    name="brackets",
    combine="""
        int32 matched = earlier.opening < later.closing ? earlier.opening : later.closing;
        return State{earlier.closing + later.closing - matched, earlier.opening + later.opening - matched};
    """,
    identity=(0, 0),
    state={"closing": "int32", "opening": "int32"},
    numpy=lambda earlier, later: (
        earlier["closing"] + later["closing"] - np.minimum(earlier["opening"], later["closing"]),
        earlier["opening"] + later["opening"] - np.minimum(earlier["opening"], later["closing"]),
    ),
    draw=_draw_brackets,
    meaning=_unmatched,
)


# ---- affine maps z -> scale z + shift, the earlier one applied first ----------------------------


def _draw_maps(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    scale, shift = rng.choice([-1, 1], shape), rng.integers(-3, 4, shape)
    return np.asarray(scale, np.float32), np.asarray(shift, np.float32)


def _composition(elements: list[Element]) -> Element:
    at_zero, at_one = 0, 1
    for scale, shift in elements:
        at_zero, at_one = scale * at_zero + shift, scale * at_one + shift
    return at_one - at_zero, at_zero


AFFINE = Example(
    name="affine",
    combine="State{later.scale * earlier.scale, later.scale * earlier.shift + later.shift}",
    identity=(1, 0),
    state={"scale": "float32", "shift": "float32"},
    numpy=lambda earlier, later: (
        later["scale"] * earlier["scale"],
        later["scale"] * earlier["shift"] + later["shift"],
    ),
    draw=_draw_maps,
    meaning=_composition,
)


# ---- the greatest sum of adjacent numbers (Bentley 1984) ----------------------------------------


def _draw_steps(rng: np.random.Generator, shape: Any) -> tuple[Array, ...]:
    step = np.asarray(rng.integers(-9, 10, shape, np.int32))
    gain = np.maximum(step, 0)
    return step, gain, gain.copy(), gain.copy()


def _greatest_sums(elements: list[Element]) -> Element:
    sums = np.concatenate([[0], np.cumsum([step for step, *_ in elements], dtype=np.int64)])
    rise = sums - np.minimum.accumulate(sums)
    return tuple(int(number) for number in (sums[-1], sums.max(), sums[-1] - sums.min(), rise.max()))


GREATEST_SUM = Example(
    name="greatest_sum",
    combine="""
        int32 before = earlier.total + later.first > earlier.first ? earlier.total + later.first : earlier.first;
        int32 after = earlier.last + later.total > later.last ? earlier.last + later.total : later.last;
        int32 across = earlier.last + later.first;
        int32 best = earlier.best > later.best ? earlier.best : later.best;
        return State{earlier.total + later.total, before, after, across > best ? across : best};
    """,
    identity=(0, 0, 0, 0),
    state={"total": "int32", "first": "int32", "last": "int32", "best": "int32"},
    numpy=lambda earlier, later: (
        earlier["total"] + later["total"],
        np.maximum(earlier["first"], earlier["total"] + later["first"]),
        np.maximum(later["last"], earlier["last"] + later["total"]),
        np.maximum(np.maximum(earlier["best"], later["best"]), earlier["last"] + later["first"]),
    ),
    draw=_draw_steps,
    meaning=_greatest_sums,
)

EXAMPLES = [MODULAR_PRODUCT, MATRIX_PRODUCT, STRING_HASH, MIN_MAX, BRACKETS, AFFINE, GREATEST_SUM]
