"""More than 2^32 elements: every index and every product of sizes needs 64 bits.

All results are known in closed form and periodic, so they are checked on the GPU, a piece at a time.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from math import isqrt
from typing import Any

import numpy as np
import pytest
from gpu import config_of, cupy, free_bytes, need

import cuscan

pytestmark = pytest.mark.gpu

MANY = 2**32  # elements
PIECE = 2**28
PERIOD = 1024  # distance between ones, in arrays of float32


@pytest.fixture
def room() -> Iterator[Callable[[int], None]]:
    """A function that skips the test if fewer bytes are free than it is called with."""

    def need_bytes(nbytes: int) -> None:
        gc.collect()
        free = free_bytes()
        if free < nbytes + 2**30:
            pytest.skip(f"{nbytes / 1e9:.0f} GB of GPU memory are needed, {free / 1e9:.0f} GB are free")

    yield need_bytes
    gc.collect()
    free_bytes()


def pieces(array: Any) -> Iterator[tuple[int, Any]]:
    """Successive parts of a flat array, each with its start."""
    for start in range(0, array.size, PIECE):
        yield start, array[start : start + PIECE]


def filled(shape: tuple[int, ...], dtype: type, value: int) -> Any:
    array = cupy.empty(shape, dtype)
    for _, piece in pieces(array.reshape(-1)):
        piece[...] = value
    return array


def assert_counts(flat: Any, first: int, step: int) -> None:
    """A flat int8 array contains first, first + step, first + 2 step, ... modulo 256."""
    for start, piece in pieces(flat):
        expected = (first + step * (start + np.arange(256, dtype=np.int64))).astype(np.int8)
        assert_repeats(piece, cupy.asarray(expected), start)


def assert_repeats(piece: Any, pattern: Any, start: int) -> None:
    times, rest = divmod(piece.size, pattern.size)
    same = bool((piece[: piece.size - rest].reshape(times, pattern.size) == pattern).all())
    assert same, f"wrong between elements {start} and {start + piece.size}"
    assert bool((piece[piece.size - rest :] == pattern[:rest]).all()), f"wrong before element {start + piece.size}"


# ---- bytes ------------------------------------------------------------------------------------------------


def test_one_row_of_bytes(room):
    n = MANY + 12_345
    room(2 * n + PIECE)
    x = filled((n,), np.int8, 1)
    assert_counts(cuscan.scan(x, dtype="int8"), 1, 1)
    assert_counts(cuscan.scan(x, dtype="int8", reverse=True, exclusive=True, out=x), n - 1, -1)


def test_two_rows_of_bytes(room):
    n = MANY // 2 + 5
    room(5 * n + PIECE)
    x = filled((2, n), np.int8, 1)
    kept = filled((n,), np.bool_, 1)
    kept[:7] = False
    out = cuscan.scan(x, axis=1, dtype="int8", mask=kept)
    for row in out:
        assert bool((row[:7] == 0).all())
        assert_counts(row[7:], 1, 1)


@pytest.mark.parametrize(
    "shape",
    [(MANY // 2 + 5, 2), (MANY // 65 + 9, 65), (isqrt(MANY) + 1, isqrt(MANY) + 3)],
    ids=["narrow", "whole rows", "wide"],
)
def test_columns_of_bytes(room, shape):
    length, width = shape
    room(2 * length * width + 2 * PIECE)
    x = filled(shape, np.int8, 1)
    family = {2: "strips", 65: "whole_rows"}.get(width, "panels")
    assert config_of(x, axis=0, dtype="int8").family == family
    out = cuscan.scan(x, axis=0, dtype="int8")
    if width == 2:
        for column in (0, 1):
            for start in range(0, length, PIECE):  # copies one piece of the column at a time
                assert_counts(out[start : start + PIECE, column].copy(), start + 1, 1)
    else:
        expected = cupy.arange(1, length + 1).astype(np.int8)[:, None]
        for start in range(0, length, 4096):
            assert bool((out[start : start + 4096] == expected[start : start + 4096]).all()), start


def test_many_short_rows_of_bytes(room):
    rows = MANY // 16 + 3
    room(2 * rows * 16 + PIECE)
    x = filled((rows, 16), np.int8, 1)
    out = cuscan.scan(x, axis=1, dtype="int8").reshape(-1)
    pattern = cupy.arange(1, 17).astype(np.int8)
    for start, piece in pieces(out):
        assert_repeats(piece, pattern, start)


def test_a_torch_tensor_of_bytes(room):
    torch = need("torch").torch
    n = MANY + 77
    room(2 * n + PIECE)
    x = torch.ones(n, dtype=torch.int8, device="cuda")
    out = cuscan.scan(x, dtype=torch.int8)
    torch.cuda.synchronize()
    assert_counts(cupy.from_dlpack(out), 1, 1)


# ---- float32 ----------------------------------------------------------------------------------------------


def with_ones(n: int) -> Any:
    """A float32 array of zeros, with a one at every multiple of PERIOD: sums stay below 2^24, so they are exact."""
    x = filled((n,), np.float32, 0)
    for _, piece in pieces(x):
        piece[::PERIOD] = 1
    return x


def assert_ones_before(out: Any, count: Callable[[Any], Any]) -> None:
    """Each element is `count` of the number of its period; so all elements of a period are equal."""
    for start, piece in pieces(out):
        times, rest = divmod(piece.size, PERIOD)
        expected = count(start // PERIOD + cupy.arange(times + 1)).astype(np.float32)
        same = bool((piece[: piece.size - rest].reshape(times, PERIOD) == expected[:times, None]).all())
        assert same, f"wrong between elements {start} and {start + piece.size}"
        assert bool((piece[piece.size - rest :] == expected[times]).all()), f"wrong before element {start + piece.size}"


def test_one_row_of_float32(room):
    n = MANY + 123
    room(8 * n + 2 * PIECE)
    x = with_ones(n)
    assert_ones_before(cuscan.scan(x), lambda period: period + 1)


def test_one_row_of_float32_backwards_in_place(room):
    n = MANY + 123
    room(4 * n + 2 * PIECE)
    x = with_ones(n)
    ones = -(-n // PERIOD)
    cuscan.scan(x, reverse=True, exclusive=True, initial=5, out=x)  # exclusive: the one of a period is at its start
    assert_ones_before(x, lambda period: 5 + ones - 1 - period)


def test_a_view_that_reaches_beyond_2_32_elements(room):
    n = MANY + 2**20
    room(4 * n + PIECE)
    x = with_ones(n)
    far = x[:: 4 * PERIOD]  # a million elements, all of them ones
    assert bool((cuscan.scan(far) == cupy.arange(1, far.size + 1)).all())
    back = cuscan.scan(x[::-1][: 2**21 + 5])
    expected = cupy.cumsum(x[-(2**21 + 5) :][::-1].astype(np.float64))
    assert bool((back == expected).all())


@pytest.mark.parametrize("reverse", [False, True])
def test_the_error_stays_small_over_2_31_elements(room, reverse):
    """|error| <= 16 eps sum |x|, against sums of integers, which are exact."""
    n = 2**31
    room(8 * n + 40 * PIECE)
    x = cupy.empty((n,), np.float32)

    def integers(start: int, size: int) -> Any:
        """Integers of both signs and 20 bits, in scan order, without a pattern that would suit float32."""
        mixed = (start + cupy.arange(size, dtype=np.int64)) * 2654435761 % 4294967291
        return mixed * 40503 % 2097143 - 1048571

    order = slice(None, None, -1 if reverse else 1)
    for start, piece in pieces(x[order]):
        piece[...] = integers(start, piece.size)
    got = cuscan.scan(x, reverse=reverse)
    total, magnitude = 0, 0
    for start, piece in pieces(got[order]):
        numbers = integers(start, piece.size)
        exact = total + cupy.cumsum(numbers)
        bound = (magnitude + cupy.cumsum(cupy.abs(numbers))) * (16 * float(np.finfo("f4").eps))
        assert bool((cupy.abs(piece - exact.astype(np.float64)) <= bound).all()), start
        total, magnitude = int(exact[-1]), magnitude + int(cupy.abs(numbers).sum())
