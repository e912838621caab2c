"""The kernel that makes bits of offsets, alone: its plan, and the simulated kernel against NumPy, mistakes included."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import simulator
from plans import planned, request
from simulator import CODE, DeviceCode, Memory, SimulationError, find_starts
from views import view

from cuscan.config import StartsConfig, Target
from cuscan.segment_starts import PIECE, StartsPlan, plan_starts

Array = np.ndarray[Any, Any]

needs_compiler = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)
GPU = Target(90, 132)
ENDS = np.iinfo(np.int64)
CHUNK = 32 * StartsConfig("int32").chunk  # positions


# ---- plans ---------------------------------------------------------------------------------------


def starts(shape: tuple[int, ...], offsets: Any, axis: int = -1, target: Target = GPU, **flags: Any) -> StartsPlan:
    made = plan_starts(request(view(shape), axis=axis, segments=("offsets", offsets), **flags), target)
    assert made is not None
    return made


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


# ---- the kernel ----------------------------------------------------------------------------------


def bits_of(offsets: Array, length: int, reverse: bool) -> Array:
    """Whether a segment starts, for each position; the start of the row is none."""
    inside = offsets[(offsets > 0) & (offsets < length)].astype(np.int64)
    marks = np.zeros(length, np.uint8)
    marks[length - inside if reverse else inside] = 1
    return marks


def surrounded(offsets: Array, stride: int, length: int) -> Memory:
    """Offsets in memory, so many entries apart, where all others would be boundaries too."""
    margin, span = 600, (offsets.size - 1) * abs(stride) + 1
    memory = np.random.default_rng(0).integers(1, max(length, 2), span + 2 * margin).astype(offsets.dtype)
    first = margin + (span - 1) * (stride < 0)
    raw = memory.view(np.uint8)
    placed = np.ndarray(offsets.shape, offsets.dtype, raw, first * offsets.itemsize, (stride * offsets.itemsize,))
    placed[...] = offsets
    return Memory(raw, placed)


def found(
    offsets: Array, length: int, *, reverse: bool, run: int = 1, stride: int = 1, seed: int = 0, code: DeviceCode = CODE
) -> Array:
    """The bits of the simulated kernel, `run` pieces a warp."""
    made = starts((length,), view(offsets.shape, offsets.dtype.name, strides=(stride,)), reverse=reverse)
    count, step, *sizes, _, backwards = made.words
    pieces = made.nbytes * 8 // PIECE
    made = made._replace(
        grid=-(-pieces // (run * made.config.warps)), words=(count, step, *sizes, run * PIECE, backwards)
    )
    bits = find_starts(made, surrounded(offsets, stride, length), 90, seed, code)
    marks = np.unpackbits(bits.array.view(np.uint8), bitorder="little")
    if marks[length:].any():
        raise SimulationError("a segment starts beyond the end")
    return marks[:length]


def sorted_offsets(length: int) -> dict[str, Array]:
    """In order; those outside of the axis are none."""
    rng = np.random.default_rng(length)
    some = rng.integers(0, length + 1, length // 9 + 2)
    far = [ENDS.min, ENDS.min + 1, -1, length + 1, 2**40, ENDS.max - 1, ENDS.max]
    third = length // 3
    return {
        "ends": np.array([0, length]),
        "one": np.array([length // 2]),
        "outside": np.array(far),
        "each": np.arange(length + 1),
        "random": np.sort(some),
        "random-int32": np.sort(some).astype(np.int32),
        "far": np.sort(np.concatenate([far, some])),
        "far-int32": np.sort(np.concatenate([np.array([-(2**31), -1, 2**31 - 1]), some])).astype(np.int32),
        "equal": np.full(1000, length // 2),
        "empty": np.sort(
            np.repeat([0, min(5, length), third, third + 1, third + 3, length], [130, 1, 1000, 128, 129, 300])
        ),
    }


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


# Lengths, each with the pieces that a warp has.
SIZES = [
    *((n, 1) for n in (1, 2, 31, 32, 33, 1023, 1024, 1025)),
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
@pytest.mark.parametrize("length, run", SIZES[4:])
def test_offsets_in_disorder_are_safe(length, run, reverse):
    for name, offsets in disordered_offsets(length).items():
        got = found(offsets, length, run=run, reverse=reverse)
        assert not (got > bits_of(offsets, length, reverse)).any(), name


@needs_compiler
def test_no_elements():
    made = starts((0,), view((3,), "int64"), include_initial=True)
    bits = find_starts(made, surrounded(np.zeros(3, np.int64), 1, 0), 90, 0)
    assert not bits.array.any()


# ---- mistakes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mistake:
    """What is wrong, and what to put in the place of what."""

    name: str
    old: str
    new: str


MISTAKES = (
    Mistake("first-of-a-chunk-lost", "start > 0 ? start : 1", "start + 1"),
    Mistake("start-of-the-row-marked", "start > 0 ? start : 1", "start"),
    Mistake("last-of-a-chunk-lost", "offset[k] < to) mark", "offset[k] < to - 1) mark"),
    Mistake("reverse-from-too-late", "? of.length - to + 1 :", "? of.length - to + 2 :"),
    Mistake("reverse-to-too-early", "? of.length - from + 1 :", "? of.length - from :"),
    Mistake("reverse-is-not-mirrored", "(of.reverse ? of.length - offset : offset)", "(offset)"),
    Mistake("reverse-is-one-off", "? of.length - offset :", "? of.length - 1 - offset :"),
    Mistake("search-for-more", "entry(probe) < bound", "entry(probe) <= bound"),
    Mistake("search-goes-too-far", "(found - 1) * stride + 1", "found * stride"),
    Mistake("cursor-not-kept", "target::count_bits(~beyond & (beyond - 1));", "target::kWarp;"),
    Mistake("cursor-one-too-far", "at += target::count_bits(", "at += 1 + target::count_bits("),
    Mistake("cursor-stands-still", "                at += target::kWarp;", ""),
    Mistake("run-of-empties-skipped-too-far", "seek(last + 1)", "seek(last + 2)"),
    Mistake("read-beyond-the-entries", "ahead < left ? entry(at + ahead) : 0;", "entry(at + ahead);"),
    Mistake("chunk-not-cleared", "words[w] = 0", ""),
    Mistake("marked-before-all-is-cleared", "        target::sync_warp();\n        // In", "        // In"),
    Mistake("writes-beyond-the-bits", "of.run < of.positions - begin ? of.run : of.positions - begin", "of.run"),
)  # fmt: skip


def check(code: DeviceCode) -> None:
    """Chunks on both sides of each other, runs of empty segments, a last warp with nothing to do."""
    for length, run in ((7 * PIECE - 3, 1), (2 * CHUNK + 3 * PIECE + 5, 19), (2 * CHUNK + 77, 10)):
        for seed, (offsets, reverse) in enumerate(itertools.product(sorted_offsets(length).values(), (False, True))):
            got = found(offsets, length, run=run, reverse=reverse, seed=seed, code=code)
            np.testing.assert_array_equal(got, bits_of(offsets, length, reverse))


@needs_compiler
def test_good_code_passes():
    check(CODE)


@needs_compiler
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_mistake_is_noticed(mistake):
    code = CODE.broken("kernels/segment_starts.cuh", mistake.old, mistake.new)
    with pytest.raises(AssertionError) as caught:
        check(code)
    assert isinstance(caught.value, SimulationError) or "not equal" in str(caught.value)
