"""The kernels that compute segment starts as bits, alone: plans, and the simulated kernels compared with NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import simulator
from plans import planned, request
from segment_bits import CHUNK, ENDS, GPU, bits_of, found, found_in, sorted_offsets, starts, starts_in, surrounded
from simulator import Memory, run_before
from views import view

from cuscan.operators import INDEXED
from cuscan.planning.config import StartsConfig, Target
from cuscan.planning.segment_starts import FEWEST, FEWEST_ACROSS, plan_starts

Array = np.ndarray[Any, Any]

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)


# ---- plans ---------------------------------------------------------------------------------------

PIECE = StartsConfig("int64").piece


def test_other_scans_have_no_such_launch():
    x, flags = view((1000,)), view((1000,), "bool")
    for segments in (None, ("reset", flags), ("keys", flags)):
        assert plan_starts(request(x, segments=segments), GPU) is None


@pytest.mark.parametrize(
    "offsets, count, step",
    [
        (view((6,), "int32"), 6, 4),
        (view((6,), "int64"), 6, 8),
        (view((1,), "int64"), 1, 8),
        (view((6,), "int32", strides=(3,)), 6, 12),
        (view((6,), "int64", strides=(-2,), pointer=80), 6, -16),
        (view((6,), "int64", strides=(0,)), 6, 0),
    ],
)
def test_a_plan_by_hand(offsets, count, step):
    for reverse, axis, longer in itertools.product((False, True), (0, 1), (False, True)):
        made = starts((1025, 3000), offsets, axis, reverse=reverse, include_initial=longer)
        length = (1025, 3000)[axis]
        pieces = (2, 3)[axis]
        assert made == (
            StartsConfig(offsets.dtype.name),
            "offsets",
            1,
            (count, step, length, 1024 * pieces, 1024, int(reverse)),
            128 * pieces,
        )


@pytest.mark.parametrize(
    "length, grid, run",
    [(0, 1, 1), (1, 1, 1), (2**13 + 1, 2, 1), (2**26, 1024, 8), (2**28, 1024, 32), (2**40, 1056, 0)],
)
def test_a_gpu_is_filled_and_no_more(length, grid, run):
    made = starts((length,), view((2,), "int64"), include_initial=length == 0)
    *_, positions, of_a_warp, _ = made.words
    assert made.grid == grid <= 8 * GPU.sm_count and positions == made.nbytes * 8
    assert positions >= max(length, 1) > positions - PIECE and of_a_warp % PIECE == 0
    assert made.grid * made.config.warps * of_a_warp >= positions
    assert not run or of_a_warp == run * PIECE


def test_scans_are_compiled_once_for_all_offsets():
    assert {starts((99,), view((n,), "int32"), target=Target(90, n)).config for n in (1, 9)} == {StartsConfig("int32")}
    kinds = {planned(view((99,)), segments=("offsets", view((9,), kind))).config for kind in ("int32", "int64")}
    assert len(kinds) == 1


ROWS, LONG = 4, FEWEST // 4


@pytest.mark.parametrize("kind, dtype", [("reset", "bool"), ("keys", "int64"), ("keys", "float16")])
def test_flags_and_keys_of_all_lines_are_bits(kind, dtype):
    def made(shape, axis, items, **call):
        return plan_starts(request(view(shape), axis=axis, segments=(kind, items), **call), GPU)

    size = np.dtype(dtype).itemsize
    along, across = view((LONG,), dtype, strides=(-3,)), view((LONG, 1), dtype, strides=(2, 1))
    for shape, axis, items, step in [((ROWS, LONG), 1, along, -3), ((LONG, ROWS), 0, across, 2)]:
        plan = made(shape, axis, items, reverse=True)
        assert plan.config == StartsConfig(np.dtype(dtype).name.replace("bool", "boolean"), kind)
        of_a_warp = {"reset": 256, "keys": 512}[kind]  # keys in flight take registers, so fewer warps
        assert plan.words == (LONG, step * size, LONG, LONG, of_a_warp, 1) and plan.nbytes == LONG // 8
        assert plan.grid == LONG // of_a_warp // plan.config.warps
        of_bits = planned(view(shape), axis=axis, segments=(kind, items)).config
        assert of_bits is planned(view(shape), axis=axis, segments=("offsets", view((9,), "int64"))).config
    carry = {"return_carry": True}
    assert (made((ROWS, LONG), 1, along, **carry) is None) == (kind == "keys")  # each line has a last key of its own
    for op, of, bits in [
        ("add", "complex64", True),
        ("add", "complex128", False),
        (INDEXED["max", "last"], "int64", False),
    ]:
        wide = request(view((ROWS, LONG), of), op, axis=1, segments=(kind, along), dtype=of if op == "add" else None)
        assert (plan_starts(wide, GPU) is not None) == bits
    for shape, items in [
        ((ROWS, LONG - 1), view((1, LONG - 1), dtype)),
        ((ROWS, LONG), view((ROWS, LONG), dtype)),
        ((2, 2, LONG), view((2, 1, LONG), dtype)),
        ((1, ROWS * LONG), view((1, ROWS * LONG), dtype)),
        ((ROWS * LONG,), view((ROWS * LONG,), dtype)),
    ]:
        assert made(shape, len(shape) - 1, items) is None, shape


def test_keys_across_the_lines_become_bits_earlier_where_strips_can_take_them():
    def becomes_bits(shape, axis=0, kind="keys", target=GPU, x_strides=None):
        items = view(shape, "int32" if kind == "keys" else "bool", [int(a == axis) for a in range(len(shape))])
        return plan_starts(request(view(shape, "float32", x_strides), axis=axis, segments=(kind, items)), target)

    few = FEWEST_ACROSS // 64
    assert becomes_bits((few, 64)) and not becomes_bits((few - 1, 64)) and not becomes_bits((few, 64), kind="reset")
    assert becomes_bits((16, 256, 64), 1) and not becomes_bits((32, 255, 64), 1)  # panels take short axes
    assert not becomes_bits((64, few), 1) and not becomes_bits((64, few), 1, x_strides=(2 * few, 2))
    assert not becomes_bits((few, 64), target=Target(80, 108))  # so they do all of them there


# ---- the kernels ---------------------------------------------------------------------------------


def disordered_offsets(length: int) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    return {
        "near": rng.integers(-length, 2 * length, 500),
        "anywhere": rng.integers(ENDS.min, ENDS.max, 500, endpoint=True),
        "descending": np.arange(length, -1, -1),
        "in-turn": np.tile([1, length - 1], 200),
        "runs": np.repeat(np.array([ENDS.max, 3, ENDS.min, 2]), 130),
        "runs-of-the-largest": np.repeat(np.array([length - 1, ENDS.max]), 200),
        "int32": rng.integers(-(2**31), 2**31, 500).astype(np.int32),
    }


# Lengths, each with the number of pieces per warp.
SIZES = [
    *((n, 1) for n in (1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025)),
    (3000, 2),
    (8193, 8),
    (20_000, 3),
    (5 * CHUNK + 77, 19),
]


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length, run", SIZES)
def test_offsets_in_order(length, run, reverse):
    for (name, offsets), stride in zip(sorted_offsets(length).items(), itertools.cycle((1, 3, -2)), strict=False):
        got = found(offsets, length, run=run, reverse=reverse, stride=stride)
        np.testing.assert_array_equal(got, bits_of(offsets, length, reverse), name)


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length, run", SIZES[7:])
def test_offsets_in_disorder_are_safe(length, run, reverse):
    for name, offsets in disordered_offsets(length).items():
        got = found(offsets, length, run=run, reverse=reverse)
        assert not (got > bits_of(offsets, length, reverse)).any(), name


@needs_compiler
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length, run", SIZES)
def test_flags_and_keys(length, run, reverse):
    rng = np.random.default_rng(length)
    keys = np.repeat(rng.integers(0, 3, length), 3)[:length]
    for dtype, stride in zip(("bool", "uint8", "float16", "int32", "float64"), (1, 1, 3, -2, 0), strict=True):
        items = keys.astype(dtype) if stride else np.full(length, 2.0)
        if dtype == "float16":
            items[[0, -1, length // 2]] = np.nan  # equals no other key
        for given in ("keys", "reset") if dtype == "bool" else ("keys",):
            got = found_in(given, items, run=run, reverse=reverse, stride=stride)
            np.testing.assert_array_equal(got, starts_in(given, items, reverse), dtype)


@needs_compiler
def test_offsets_beyond_2_31():
    """The first block of a launch in reverse, which searches for the last offsets."""
    length = 2**31 + 5 * PIECE
    offsets = length - np.array([length, 2**31, 3 * PIECE, 70, 1, 0])
    made = starts((length,), view(offsets.shape, "int64"), target=Target(90, 2**20), reverse=True)
    assert made.words[4] == PIECE
    positions = made.config.warps * PIECE
    made = made._replace(grid=1, words=(*made.words[:3], positions, *made.words[4:]), nbytes=positions // 8)
    bits = run_before(made, Memory.like(offsets), 90, 0)
    marks = np.unpackbits(bits.array.view(np.uint8), bitorder="little")
    np.testing.assert_array_equal(np.flatnonzero(marks), [1, 70, 3 * PIECE])


@needs_compiler
def test_no_elements():
    made = starts((0,), view((3,), "int64"), include_initial=True)
    bits = run_before(made, surrounded(np.zeros(3, np.int64), 1, 0), 90, 0)
    assert not bits.array.any()
