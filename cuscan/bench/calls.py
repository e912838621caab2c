"""The calls of cases: one row for every operator, with the public function, the fills of its inputs, and its meaning.

The meaning is written down independently, on tuples of 64-bit arrays of NumPy or CuPy, so that no result is checked
against the code that computed it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import cuscan
from cuscan.bench import fills
from cuscan.bench.fills import Fill
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS, Monoid
from cuscan.signatures import OpName

Array = Any
State = tuple[Array, ...]


class Meaning(NamedTuple):
    """What an operator does to 64-bit states, and the tolerance of a rounded result.

    `lift` makes the state of an element from its values and its position; `lower` returns the results of a state. A
    result may be off by `roundings(log2(n))` roundings of `scale(xp, expected, absolute)`. `absolute` is the same scan
    of absolute values, which is computed only if the flag `absolute` is set. Without `roundings`, the result must be
    exact.
    """

    combine: Callable[[Any, State, State], State]
    lift: Callable[[State, Array], State] = lambda values, position: values
    lower: Callable[[State], State] = lambda state: state
    roundings: Callable[[float], float] | None = None
    absolute: bool = False
    scale: Callable[[Any, Array, Array], Array] = lambda xp, expected, absolute: absolute


class Call(NamedTuple):
    """One row: the call is `function(*values, **keywords)`, and each of its values has a fill."""

    operator: Monoid
    function: Callable[..., Any]
    fills: tuple[Fill, ...]
    meaning: Meaning


# ---- meanings --------------------------------------------------------------------------------------------------------


def _ufunc(name: str) -> Callable[[Any, State, State], State]:
    return lambda xp, earlier, later: (getattr(xp, name)(earlier[0], later[0]),)


def _kept_with_index(better: str, xp: Any, earlier: State, later: State) -> State:
    keep = getattr(xp, better)(earlier[0], later[0]) & (earlier[1] >= 0)  # the identity, at -1, loses ties
    return xp.where(keep, earlier[0], later[0]), xp.where(keep, earlier[1], later[1])


def _affine(xp: Any, earlier: State, later: State) -> State:
    return later[0] * earlier[0], later[0] * earlier[1] + later[1]


def _matrices(xp: Any, earlier: State, later: State) -> State:
    a, b, c, d = earlier
    e, f, g, h = later
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h


_SUM = Meaning(_ufunc("add"), roundings=lambda log: 24 + log, absolute=True)
# A sum of exponentials is at least as large as each of them, so its relative error is the absolute error of its
# logarithm.
_LOG_SUM = Meaning(
    _ufunc("logaddexp"), roundings=lambda log: 2.5 * (24 + log), scale=lambda xp, expected, absolute: 1 + abs(expected)
)
# Each step back costs half a rounding (see `cuscan.linear_recurrence`); after a hundred steps, values have decayed.
_RECURRENCE = Meaning(_affine, lower=lambda state: state[1:], roundings=lambda log: 64 + 2 * log, absolute=True)
_MAXIMUM_WITH_INDEX, _MINIMUM_WITH_INDEX = (
    Meaning(functools.partial(_kept_with_index, better), lift=lambda values, position: (*values, position.copy()))
    for better in ("greater_equal", "less_equal")
)


# ---- operators in the form that users write --------------------------------------------------------------------------

AFFINE = cuscan.Operator(
    "affine",
    "State{later.scale * earlier.scale, later.scale * earlier.shift + later.shift}",
    (1, 0),
    state={"scale": "float32", "shift": "float32"},
    numpy=lambda earlier, later: (
        later["scale"] * earlier["scale"],
        later["scale"] * earlier["shift"] + later["shift"],
    ),
)
MATRIX_PRODUCT = cuscan.Operator(
    "matrix_product",
    """
        return State{
            earlier.a * later.a + earlier.b * later.c,
            earlier.a * later.b + earlier.b * later.d,
            earlier.c * later.a + earlier.d * later.c,
            earlier.c * later.b + earlier.d * later.d,
        };
    """,
    (1, 0, 0, 1),
    state={"a": "float32", "b": "float32", "c": "float32", "d": "float32"},
    numpy=lambda earlier, later: (
        earlier["a"] * later["a"] + earlier["b"] * later["c"],
        earlier["a"] * later["b"] + earlier["b"] * later["d"],
        earlier["c"] * later["a"] + earlier["d"] * later["c"],
        earlier["c"] * later["b"] + earlier["d"] * later["d"],
    ),
)
MODULUS = 1_000_003
MODULAR_PRODUCT = cuscan.Operator(
    "modular_product",
    f"earlier * later % {MODULUS}",
    1,
    numpy=lambda earlier, later: earlier * later % MODULUS,
)


# ---- the table -------------------------------------------------------------------------------------------------------


def _scan(op: OpName, fill: Fill, meaning: Meaning) -> Call:
    # Look `cuscan.scan` up at the call, so that tests can replace it.
    return Call(OPERATORS[op], lambda x, **keywords: cuscan.scan(x, op, **keywords), (fill,), meaning)


def _scan_tuple(op: cuscan.Operator, parts: tuple[Fill, ...], meaning: Meaning) -> Call:
    return Call(op, lambda *values, **keywords: cuscan.scan(values, op, **keywords), parts, meaning)


_ROWS = (
    _scan("add", fills.numbers, _SUM),
    _scan("mul", fills.units, Meaning(_ufunc("multiply"))),
    _scan("min", fills.numbers, Meaning(_ufunc("minimum"))),
    _scan("max", fills.numbers, Meaning(_ufunc("maximum"))),
    _scan("and", fills.mostly_ones, Meaning(_ufunc("bitwise_and"))),
    _scan("or", fills.mostly_zeros, Meaning(_ufunc("bitwise_or"))),
    _scan("xor", fills.numbers, Meaning(_ufunc("bitwise_xor"))),
    _scan("logaddexp", fills.logarithms, _LOG_SUM),
    Call(
        INDEXED["max", "first"],
        lambda x, **keywords: cuscan.cummax(x, return_indices=True, **keywords),
        (fills.numbers,),
        _MAXIMUM_WITH_INDEX,
    ),
    Call(
        INDEXED["min", "first"],
        lambda x, **keywords: cuscan.cummin(x, return_indices=True, **keywords),
        (fills.numbers,),
        _MINIMUM_WITH_INDEX,
    ),
    Call(LINEAR_RECURRENCE, cuscan.linear_recurrence, (fills.decays, fills.numbers), _RECURRENCE),
    Call(
        MODULAR_PRODUCT,
        lambda x, **keywords: cuscan.scan(x, MODULAR_PRODUCT, **keywords),
        (functools.partial(fills.residues, MODULUS),),
        Meaning(lambda xp, earlier, later: (earlier[0] * later[0] % MODULUS,)),
    ),
    _scan_tuple(AFFINE, (fills.signs, fills.steps), Meaning(_affine)),
    _scan_tuple(MATRIX_PRODUCT, tuple(functools.partial(fills.symmetry, i) for i in range(4)), Meaning(_matrices)),
)

CALLS = {row.operator.name: row for row in _ROWS}
