"""Products and recurrences of complex numbers, whose parts are separate fields.

NumPy may contract the parts of its own complex product to fused multiply-adds, and two separate, contiguous fields take
a third of the time. A state has the real and the imaginary part of its decay, if there is one, then the imaginary and
the real part of its number.

Few elements take NumPy less time than a call does. So a program combines them in *rows*: all fields of a state, one
after the other. One call multiplies the rows by the real part of a factor, and each row's neighbour by the imaginary
part. One call subtracts, and one adds: thanks to the order of the fields, the imaginary parts lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from cuscan.backends.record import Noted
from cuscan.backends.steps import Combine, States, at, doubling, put

Array = np.ndarray[Any, Any]
Out = Any  # arrays for the result, or None (see `Combine`)

FEW = 256  # elements of a field, up to which a call takes more time than its arithmetic


def split(numbers: States) -> States:
    """Return the fields of states, which are decays or nothing and then a complex number."""
    *decays, number = numbers
    return *[part for decay in decays for part in (decay.real, decay.imag)], number.imag, number.real


def joined(fields: States) -> States:
    """Invert `split`."""
    *decays, imag, real = fields
    return *map(_complex, decays[::2], decays[1::2]), _complex(real, imag)


def _complex(real: Array, imag: Array) -> Array:
    whole = np.empty_like(real, np.result_type(real.dtype, np.complex64))
    whole.real[...], whole.imag[...] = real, imag
    return whole


def _multiplied(a: Array, b: Array, c: Array, d: Array, out: Out) -> States:
    """Return the real and the imaginary part of (a + ib)(c + id). `out` may be `a` and `b`."""
    bd, ad = b * d, a * d
    bc, ac = np.multiply(b, c, out=out and out[1]), np.multiply(a, c, out=out and out[0])
    return np.subtract(ac, bd, out=ac), np.add(bc, ad, out=bc)


def _products(earlier: States, later: States, out: Out) -> States:
    (b, a), (d, c) = earlier, later
    real, imag = _multiplied(a, b, c, d, out and out[::-1])
    return imag, real


def _steps(earlier: States, later: States, out: Out) -> States:
    if _STEPS.fit(later):
        return _STEPS.once(earlier, later)
    (a, b, *states), (c, d, *_) = earlier, later
    return *_multiplied(a, b, c, d, out and out[:2]), *_states(tuple(states), later, out and out[2:])


def _states(earlier: States, later: States, out: Out) -> States:
    (b, a), (c, d, more_imag, more_real) = earlier, later
    real, imag = _multiplied(a, b, c, d, out and out[::-1])
    return np.add(imag, more_imag, out=imag), np.add(real, more_real, out=real)


# ---- rows ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComplexRows:
    """Combines states of `count` fields.

    `factor` and `summands` are places in later states: of the real and the imaginary part that multiply, and of what is
    added to the number.
    """

    count: int
    factor: tuple[int, int]
    summands: slice | None = None

    def fit(self, states: States) -> bool:
        """Return whether states are few elements of a program."""
        return isinstance(states[0], Noted) and 0 < states[0].size <= FEW

    def once(self, earlier: States, later: States) -> States:
        """Combine two states."""
        _, steps = self.chain(earlier, at(later, None))
        return next(steps)

    def scan(self, states: States) -> States:
        """Return the inclusive scan by doubling distances.

        All rows move at once. What crosses the end of a row arrives at the front of the next one. Nothing precedes the
        states there, so they stay as they are.
        """
        shape, stride = (self.count, *states[0].shape), states[0][0].size
        rows = np.empty_like(states[0], order="C", shape=(2, self.count, states[0].size))
        put(states, tuple(rows[0].reshape(shape)))
        for distance in doubling(shape[1]):
            new, front = np.empty_like(rows), distance * stride
            factors = self._repeated(tuple(rows[0][:, None]))[0]
            summands = None if self.summands is None else rows[0][self.summands]
            self._step(rows, factors, summands, new[0], front)
            new[0][:, :front] = rows[0][:, :front]
            rows = new
        return tuple(rows[0].reshape(shape))

    def chain(self, before: States, items: States) -> tuple[States, Iterator[States]]:
        """Return memory for `before` combined with each item in turn, and an iterator that does it, as `steps.chain`.

        The rows of all states lie one after the other, each with as much memory behind them for their neighbours.
        """
        count, *shape = items[0].shape
        room = np.empty_like(items[0], order="C", shape=(1 + count, 2, self.count, items[0][0].size))
        states = tuple(np.moveaxis(room[:, 0].reshape(1 + count, self.count, *shape), 1, 0))
        put(before, at(states, 0))
        return states, self._steps(room, states, items)

    def _steps(self, room: Array, states: States, items: States) -> Iterator[States]:
        count, factors, summands = len(items[0]), self._repeated(items), None
        if self.summands is not None:
            summands = np.empty_like(items[0], order="C", shape=(count, 2, room.shape[-1]))
            put(tuple([part.reshape(count, -1) for part in items[self.summands]]), (summands[:, 0], summands[:, 1]))
        for i in range(count):
            self._step(room[i], factors[i], None if summands is None else summands[i], room[i + 1, 0])
            yield at(states, i + 1)

    def _repeated(self, laters: States) -> Array:
        """Return both parts of the factors, each once for every row."""
        items, size = len(laters[0]), laters[0][0].size
        repeated: Array = np.empty_like(laters[0], order="C", shape=(items, 2, self.count, size))
        for i, part in enumerate(self.factor):
            repeated[:, i] = laters[part].reshape(items, 1, size)
        return repeated

    def _step(self, rows: Array, factors: Array, summands: Array | None, out: Array, front: int = 0) -> None:
        """Combine rows, moved by the length of their fronts, with later states. The fronts of `out` get any values.

        Differences are real parts; where rows are imaginary parts, sums replace them.
        """
        size = rows.shape[-1]
        pairs = self.count // 2, 2, size
        rows[1].reshape(pairs)[...] = rows[0].reshape(pairs)[:, ::-1]
        products, moved = np.empty_like(rows), rows.reshape(-1)[: rows.size - front]
        np.multiply(moved, factors.reshape(-1)[front:], out=products.reshape(-1)[front:])
        (by_real, by_imag), flat = products.reshape(2, -1), out.reshape(-1)
        np.subtract(by_real[front:], by_imag[front:], out=flat[front:])
        imag = slice((self.count // 2 - 1) * size + front, (self.count - 1) * size)
        np.add(by_real[imag], by_imag[imag], out=flat[imag])
        if summands is not None:
            number = flat[-summands.size + front :]
            np.add(number, summands.reshape(-1)[front:], out=number)


_STEPS, _STATES = ComplexRows(4, (0, 1), slice(2, 4)), ComplexRows(2, (0, 1), slice(2, 4))
_PRODUCTS = ComplexRows(2, (1, 0))
RECURRENCE = Combine(_steps, hidden=2, shown=_states, rows=_STEPS, shown_rows=_STATES)
PRODUCT = Combine(_products, rows=_PRODUCTS, shown_rows=_PRODUCTS)
