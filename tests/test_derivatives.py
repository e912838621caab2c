"""Derivatives with NumPy in place of a framework: they need only what their namespace declares."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

from cuscan import backends
from cuscan.autograd.tape import Recorder
from cuscan.derivatives import Call, kept, pullback, pushforward, reads_result
from cuscan.dtypes import DTYPES, DType
from cuscan.interop import adopt
from cuscan.linearised import joined
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import Operands, make_flags

Array = np.ndarray[Any, Any]
EPS = 1e-6


class Numpy:
    """See `derivatives.Namespace`."""

    where, exp, isnan, logical_and = np.where, np.exp, np.isnan, np.logical_and
    zeros_like, ones_like, full_like = np.zeros_like, np.ones_like, np.full_like
    concat, expand_dims, broadcast_to, conj = np.concatenate, np.expand_dims, np.broadcast_to, np.conj

    @staticmethod
    def scan(call: Call, arrays: tuple[Any, ...]) -> tuple[Array, ...]:
        views = tuple(adopt(np.asarray(array), role) for role, array in zip(call.roles, arrays, strict=True))
        results = backends.run(call.flags, Operands(views, call.roles), call.initial)
        return tuple(part for result in results for part in (result if isinstance(result, tuple) else (result,)))

    @staticmethod
    def cast(x: Array, dtype: DType) -> Array:
        return x.astype(dtype.name)

    @staticmethod
    def sum_to(x: Array, shape: tuple[int, ...]) -> Array:
        x = x.sum(axis=tuple(range(x.ndim - len(shape))))
        return x.sum(axis=tuple(i for i, n in enumerate(shape) if n == 1), keepdims=True)

    @staticmethod
    def positions(x: Array, axis: int) -> Array:
        return np.arange(x.shape[axis]).reshape(-1, *(1,) * (-axis - 1))

    @staticmethod
    def times_shifted(x: Array, states: Array, first: Array | complex, reverse: bool, axis: int) -> Array:
        return x * joined(states, first, reverse, axis, Numpy)


def calls() -> list[Any]:
    rng = np.random.default_rng(0)
    mask, reset = rng.random((2, 3, 6)) < 0.6
    listed = [
        (Call(make_flags(op, -1, False, exclusive, include), roles, 0.5), arrays)
        for op in ("add", "mul", "max", "logaddexp")
        for exclusive, include, roles, arrays in (
            (False, False, ("x",), ()),
            (True, False, ("x", "mask"), (mask,)),
            (False, True, ("x", "reset"), (reset,)),
            (True, True, ("x", "mask", "reset"), (mask, reset)),
        )
    ]
    listed.append((Call(make_flags("mul", 0, True), ("x", "keys")), (np.array([1, 1, 2]),)))
    listed.append((Call(make_flags(LINEAR_RECURRENCE, 1, True), ("a", "b", "reset")), (reset,)))
    for more in ({"return_last": True}, {"reverse": True}, {"exclusive": True}, {"include_initial": True}):
        flags = make_flags(LINEAR_RECURRENCE, -1, **{"reverse": False, **more})
        listed.append((Call(flags, ("a", "b", "initial")), ()))
    return [pytest.param(*each, id=f"{each[0].flags.op}-{i}") for i, each in enumerate(listed)]


@pytest.mark.parametrize("call, beside", calls())
def test_pushforward_and_pullback(call: Call, beside: tuple[Array, ...]) -> None:
    rng = np.random.default_rng(1)
    shapes = {"a": (3, 1), "b": (3, 6), "x": (3, 6), "initial": (3,)}
    made = {role: rng.standard_normal(shapes[role]) for role in call.roles if role in shapes}
    others = iter(beside)
    arrays = tuple(made[role] if role in made else next(others) for role in call.roles)
    tangents = [
        rng.standard_normal(array.shape) if role in made else None
        for role, array in zip(call.roles, arrays, strict=True)
    ]
    needs = [role in made for role in call.roles]

    def moved(by: float) -> tuple[Array, ...]:
        return tuple(a if t is None else a + by * t for a, t in zip(arrays, tangents, strict=True))

    results = Numpy.scan(call, arrays)
    pushed = pushforward(call, arrays, tangents, DTYPES["float64"], Numpy)
    ahead, behind = Numpy.scan(call, moved(EPS)), Numpy.scan(call, moved(-EPS))
    for tangent, one, other in zip(pushed, ahead, behind, strict=True):
        np.testing.assert_allclose(tangent, (one - other) / (2 * EPS), rtol=1e-6, atol=1e-7)

    cotangents = [rng.standard_normal(result.shape) for result in results]
    read = tuple(a if keep else Like(a) for a, keep in zip(arrays, kept(call, needs), strict=True))
    pulled = pullback(call, read, cotangents, needs, DTYPES["float64"], Numpy)
    forward = sum((g * t).sum() for g, t in zip(cotangents, pushed, strict=True))
    backward = sum((g * t).sum() for g, t in zip(pulled, tangents, strict=True) if t is not None)
    np.testing.assert_allclose(forward, backward, rtol=1e-10)
    assert all((gradient is None) == (not need) for gradient, need in zip(pulled, needs, strict=True))

    if reads_result(call, needs, DTYPES["float64"]):  # the same derivatives, without another scan
        fewer = kept(call, needs, with_result=True)
        known = tuple(a if keep else Like(a) for a, keep in zip(arrays, fewer, strict=True))
        same = pullback(call, known, cotangents, needs, DTYPES["float64"], Numpy, result=results[0])
        for one, other in zip(same, pulled, strict=True):
            assert one is other is None or np.allclose(one, other, rtol=1e-12)
        same = pushforward(call, arrays, tangents, DTYPES["float64"], Numpy, results[0])
        for one, other in zip(same, pushed, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-12)

    recorder = Recorder(Numpy)
    inputs = [*(a for a, keep in zip(arrays, kept(call, needs), strict=True) if keep), *cotangents]
    traced = [recorder.add(array) for array in inputs]
    places = iter(traced)
    again = tuple(next(places) if isinstance(array, np.ndarray) else array for array in read)
    tape, found = recorder.finish(pullback(call, again, [*places], needs, DTYPES["float64"], recorder))
    doubled = [2 * g for g in cotangents]
    other = pullback(call, read, doubled, needs, DTYPES["float64"], Numpy)
    rerun = tape.run([*inputs[: -len(cotangents)], *doubled])
    for results, expected in ((found, pulled), (rerun, other)):
        for one, another in zip(results, expected, strict=True):
            assert one is another is None or np.array_equal(one, another)


class Array2(np.ndarray):  # type: ignore[type-arg]
    """An array that can have weak references."""


def test_a_tape_lets_go_of_what_nobody_reads() -> None:
    alive: list[int] = []
    made: list[weakref.ref[Any]] = []

    class Watched(Numpy):
        @staticmethod
        def twice(x: Array) -> Array:
            alive.append(sum(ref() is not None for ref in made))
            doubled = (2 * x).view(Array2)
            made.append(weakref.ref(doubled))
            return doubled

        @staticmethod
        def pair(x: Array) -> tuple[Array, Array]:
            return Watched.twice(x), Watched.twice(x)

    recorder = Recorder(Watched)
    x = recorder.add(np.ones(3))
    y = recorder.pair(recorder.twice(recorder.twice(recorder.twice(x))))[1]
    tape, (result, nothing) = recorder.finish((y + recorder.concat((1 - x, x), 0)[:3], None))
    assert result.tolist() == [16, 16, 16] and nothing is None
    del recorder, x, y, result
    made.clear(), alive.clear()
    assert tape.run([np.full(3, 2.0)])[0].tolist() == [31, 31, 31]
    assert alive == [0, 1, 1, 1, 2]  # arrays that are still read, and the first of the pair
    assert not [ref for ref in made if ref() is not None]


class Like:
    """The shape and dtype of an array that is not kept."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype = array.shape, array.dtype
