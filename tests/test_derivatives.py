"""Derivatives with NumPy in the place of a framework: they need no more of it than they say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cuscan import backends
from cuscan.call import Operands, make_flags
from cuscan.derivatives import Call, kept, pullback, pushforward
from cuscan.dtypes import DTYPES, DType
from cuscan.interop import adopt
from cuscan.operators import LINEAR_RECURRENCE

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
    listed.append((Call(make_flags(LINEAR_RECURRENCE, -1, False, return_last=True), ("a", "b", "initial")), ()))
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


class Like:
    """An array that is not kept."""

    def __init__(self, array: Array) -> None:
        self.shape, self.dtype = array.shape, array.dtype
