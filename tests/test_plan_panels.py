"""Plans of panels: the columns of each block, and the places of a tile's arrays in shared memory."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import random
from unittest import mock

import numpy as np
import pytest
from plans import H200, RECURRENCE, constants, gaps_of, of_shape, planned, request, state_of
from views import view

import cuscan
from cuscan.dtypes import DTYPES as ALL_DTYPES
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayView, Device, number_like
from cuscan.order import COLUMNS
from cuscan.planning import make_plan
from cuscan.planning.config import HEADER_BYTES, Target
from cuscan.planning.crossing import Sides, tile_axes
from cuscan.planning.panel_shapes import faster_shape
from cuscan.planning.panel_tile import DENSE, IN_BULK, SPLIT, PanelScan, Share, _array, _split_row, smaller, tile_words
from cuscan.request.layout import Dimension, layout_of, order_of

OLDER = Target(80, 132)  # without strips and whole rows
CONSUMER = Target(86, 84, shared_bytes=100 * 1024)


def beside(made):
    """The geometry words of panels: for the tile, and for each of its arrays."""
    arrays = len(made.config.operands) - 2 - len(made.config.carry_in) - len(made.config.carry_out)
    words = made.geometry[-(18 + 9 * arrays) :]
    columns, outers, panels, blocks, abreast, rows, stack, exchange, kept, levels = words[:10]
    tile = dict(columns=columns, outers=outers, panels=panels, blocks=blocks, abreast=abreast, rows=rows, stack=stack)
    tile |= dict(zip(("parts", "units", "chunk_levels", "chunk_tiles"), words[10:14], strict=True))
    return tile, (exchange, kept, levels), [words[i : i + 6] for i in range(18, len(words), 9)]


def of_number(dtype: str = "float32") -> ArrayView:
    """A decay that is a number, for values of a dtype."""
    accumulator = ALL_DTYPES[ALL_DTYPES[dtype].accumulator]
    return number_like(np.dtype(accumulator.name).type(0.5), accumulator, LIBRARY, Device("cuda", 0))


def axes(array):
    """The axes of an array in the tile (0 steps, 1 columns, 2 rows of the batch), the fastest first."""
    return [array[5] >> 2 * i & 3 for i in range(3)]


def dense(array):
    """The number of axes in a segment."""
    return array[5] >> DENSE & 7


def is_split(array):
    """Whether there is a gap after the steps of each row of threads."""
    return bool(array[5] & SPLIT)


def in_panels(*arguments, **keywords):
    """A plan as if flags could not lie in the tiles of strips and whole rows, which leave the call to panels."""
    with (
        mock.patch("cuscan.planning.strips.staged_flags", return_value=None),
        mock.patch("cuscan.planning.whole_rows.staged_flags", return_value=None),
    ):
        made = planned(*arguments, **keywords)
    assert made.config.family == "panels"
    return made


def height(made):
    steps, runs = constants(made, "Steps", "Runs")
    return steps * runs * beside(made)[0]["rows"]


def test_blocks_keep_panels_where_there_are_enough_and_share_few():
    chains = {}
    for width in (100, 2000, 3000, 6000):
        made = planned(view((3000, width + 1)), axis=0, target=OLDER)
        chains[width] = (constants(made, "Kept")[0], made.config.grid)
        assert made.config.family == "panels"
    # 3,000 columns are enough panels for 0.6 of the blocks, but with rows of 128 bytes.
    assert chains == {100: (0, True), 2000: (0, True), 3000: (0, True), 6000: (1, False)}
    whole = planned(view((5, 2**20 + 1)), axis=0)
    assert constants(whole, "Kept", "Steps", "Runs") == (0, 8, 1) and not whole.config.grid


def test_short_axes_take_short_runs_of_many_columns():
    shapes = {
        length: constants(planned(view((length, 2**22 + 1)), axis=0), "Steps", "Runs", "Slots")
        for length in (2, 3, 8, 9, 17, 25)
    }
    assert shapes == {2: (2, 1, 16), 3: (4, 1, 8), 8: (8, 1, 4), 9: (8, 2, 2), 17: (8, 1, 4), 25: (8, 4, 1)}


def test_a_thread_has_as_many_elements_as_its_registers_hold():
    """Halves share registers, and bytes, unless states take more; what does not vary along the axis takes none.

    Bytes are four to a word.
    """

    def elements(*dtypes, shape=(3000, 2**20 + 1), **call):
        values = of_shape(shape, *dtypes) if len(dtypes) > 1 else view(shape, *dtypes)
        made = in_panels(values, axis=0, **(call or {"dtype": dtypes[0]}))
        assert made.config.family == "panels" and made.config.grid == (shape[1] < 1000)
        return math.prod(constants(made, "Slots", "Runs", "Steps"))

    sums = {dtype: elements(dtype) for dtype in ("uint8", "bfloat16", "float32", "float64")}
    assert sums == {"uint8": 32, "bfloat16": 64, "float32": 32, "float64": 16}
    masked = {"dtype": "bfloat16", "mask": view((3000, 101), "bool")}
    assert elements("bfloat16", shape=(3000, 101), **masked) == 64
    recurrences = [elements(dtype, dtype, **RECURRENCE) for dtype in ("bfloat16", "float32", "float64")]
    assert recurrences == [32, 16, 16]
    assert elements("bfloat16", "bfloat16", shape=(3000, 101), **RECURRENCE) == 32  # blocks share panels

    exponentials = [elements(dtype, op="logaddexp", dtype=dtype) for dtype in ("bfloat16", "float32")]
    assert exponentials == [64, 32]

    resets = {"segments": ("reset", view((3000, 2**20 + 1), "bool"))}
    by_segments = [elements(dtype, dtype=dtype, **resets) for dtype in ("uint8", "bfloat16", "float32", "float64")]
    assert by_segments == [32, 32, 32, 16]
    assert elements("bfloat16", "bfloat16", **RECURRENCE, **resets) == 32
    wide = [elements(dtype, dtype=result) for dtype, result in (("bfloat16", "float32"), ("int16", "int64"))]
    assert wide == [64, 32]

    for dtype, count in {"bfloat16": 64, "float32": 32, "float64": 16}.items():
        b = view((3000, 2**20 + 1), dtype)
        for decay in (of_number(dtype), view(b.shape, dtype, strides=(0, 1))):
            made = in_panels((decay, b), axis=0, **RECURRENCE)
            of_decay, of_b = made.config.values
            assert of_decay.by_value or (of_decay.access, of_b.access) == ("PerLine", "Strided")
            assert math.prod(constants(made, "Slots", "Runs", "Steps")) == count


def test_bytes_of_a_thread_fill_registers():
    """By fours, or one by one: also where results are wide, or just two columns are aligned."""

    def made(dtype, result, columns, **call):
        plan = in_panels(view((3000, columns), dtype), axis=0, dtype=result, **call)
        return constants(plan, "Runs", "Slots", "Pack")

    assert made("uint8", "int32", 2**20 + 1) == (2, 4, 1) and made("uint8", "int32", 2**20 + 2) == (2, 4, 2)
    assert made("bool", "int64", 2**20 + 2) == (1, 4, 2) and made("bool", "int64", 2**20 + 1) == (4, 1, 1)
    resets = {"segments": ("reset", view((3000, 2**20 + 1), "bool"))}
    assert made("uint8", "int32", 2**20 + 1, **resets) == (4, 1, 1)
    resets = {"segments": ("reset", view((3000, 2**20 + 2), "bool"))}
    assert made("uint8", "int32", 2**20 + 2, **resets) == (2, 2, 2)


def test_tiles_of_two_axes_divide_few_lines_evenly():
    assert Sides(39, 7, 256, 16, 8, 1).of(256) == (20, 7) and Sides(21266, 9, 1024, 32, 8, 1).of(1024) == (113, 9)
    assert Sides(1000, 100, 256, 16, 8, 1).of(256) == (16, 15)  # in place of 16, 16, ... and 4
    assert Sides(1000, 100, 1024, 60, 8, 1).of(256) == (32, 8) and Sides(39, 1000, 576, 39, 8, 1).of(300) == (39, 7)


def test_tiles_of_two_axes_have_a_vector_of_each_array():
    """Otherwise threads read it one by one."""
    fewer = Sides(36, 74, 288, 36, 8, 4)  # rows of the batch are four bytes apart
    assert fewer.of(288) == (36, 8) and fewer.of(128) == (32, 4) and fewer.of(70) == (16, 4)
    assert fewer.of(31) == (31, 1)  # fewer columns than a sector has would cost more
    assert Sides(24, 14, 288, 24, 2, 9).of(278, 2) == (24, 9)  # as many lines fit


def test_tiles_span_the_axis_along_which_values_are_closest():
    """Gaps of up to three times an item move with the values."""
    shape = (4, 2724, 44855)
    out = turned(shape, (0, 2, 1), "uint8")
    for step in (3, 5):
        x = view(shape, "uint8", strides=(shape[1] * shape[2] * step, shape[2] * step, step))
        wanted = request(x, axis=0, out=out, dtype="uint8")
        axes = tile_axes(wanted, layout_of(wanted), 2**15)
        assert (axes.batch[0].strides[0] == step and axes.sides is not None) == (step == 3)


@pytest.mark.parametrize("pack, sector", [(1, 8), (2, 4), (4, 32)])
def test_tiles_get_smaller_until_nothing_is_left(pack, sector):
    share = Share(4, 4, 4, pack, 8, 1, 1, 8, 576, 32, 4, 1, 576)
    for columns, outers, lines, wide in itertools.product((4, 20, 400), (3, 20, 900), (64, 576), (4, 8, 50)):
        column, batch = Dimension(columns, (4,)), (Dimension(outers, (8,)),)
        sides = Sides(columns, outers, lines, min(wide, columns), sector, min(4, outers))
        scan = PanelScan(1000, column, batch, share, lines, sides, 0)
        shape, count = share.tile(4, *sides.of(lines, pack)), math.inf
        while shape[:3] != (1, pack, 1):
            assert shape.rows * shape.width < count
            count = shape.rows * shape.width
            shape = smaller(scan, shape, shares=False)


def turned(shape, order, dtype):
    """An array whose axes lie in memory in this order, the slowest first."""
    strides = {axis: math.prod(shape[a] for a in order[at + 1 :]) for at, axis in enumerate(order)}
    return view(shape, dtype, strides=tuple(strides[axis] for axis in range(len(shape))))


@pytest.mark.parametrize(
    "shape, axis, dtype, order",
    [
        ((1000, 2, 293), 0, "bfloat16", (0, 2, 1)),
        ((400, 5, 2, 2645), 1, "bfloat16", (0, 3, 2, 1)),
        ((264, 5, 2, 662), 1, "uint8", (1, 0, 3, 2)),
        ((1000, 40), 0, "uint8", (1, 0)),
    ],
)
@pytest.mark.parametrize("flags", [{}, {"segments": "reset"}, {"reverse": True}], ids=str)
def test_columns_are_whole_packs_and_fit_in_a_row_of_threads(shape, axis, dtype, order, flags):
    if flags.get("segments"):
        flags = {"segments": ("reset", view(shape, "bool"))}
    for target in (H200, OLDER, CONSUMER):
        made = planned(view(shape, dtype), axis=axis, op="max", out=turned(shape, order, dtype), target=target, **flags)
        tile, _, _ = beside(made)
        threads, slots, pack = constants(made, "Threads", "Slots", "Pack")
        assert tile["columns"] % pack == 0 and tile["rows"] > 0
        assert tile["columns"] * tile["outers"] <= (threads - 32) // tile["rows"] * slots


def test_random_turned_arrays_have_plans():
    rng = random.Random(2)
    for _ in range(300):
        shape = tuple(rng.choice((2, 3, 5, 8, 41, 300, 2645)) for _ in range(rng.choice((2, 3, 4))))
        dtype, axis = rng.choice(("uint8", "bfloat16", "float32", "float64")), rng.randrange(len(shape))
        arrays = [turned(shape, rng.sample(range(len(shape)), len(shape)), dtype) for _ in range(2)]
        target = rng.choice((H200, OLDER, CONSUMER))
        planned(arrays[0], axis=axis, op=rng.choice(("add", "max")), dtype=dtype, out=arrays[1], target=target)


def test_a_tile_that_transposes_keeps_both_contiguous_axes_when_it_gets_smaller():
    shape = (21266, 3445, 2)
    out = view(shape, "uint8", (1, 21266, 21266 * 3445))
    made = planned(view(shape, "uint8"), axis=1, op="max", mask=view(shape, "bool"), out=out)
    tile, _, (value, result, mask, *_) = beside(made)
    assert tile["outers"] == 2 < tile["columns"]  # 512 columns do not fit
    assert min(array[0] for array in (value, result, mask)) >= 0  # all in shared memory


def test_broadcast_decays_choose_neither_tile_nor_order():
    """The values b have their contiguous axis across the scan, and results have another one."""
    shape = (777, 850, 269)
    b, out = view(shape), view(shape, strides=(1, 777, 777 * 850))
    decays = [view(shape, strides=(269, 0, 1)), of_number()]
    tiles = [beside(planned((decay, b), axis=1, out=out, **RECURRENCE))[0] for decay in decays]
    assert all(tile["columns"] > 1 < tile["outers"] and tile["abreast"] == 12 < tile["panels"] for tile in tiles)
    along = view(shape, strides=(850, 1, 777 * 850))  # contiguous along the scan, where the decay does not change
    assert order_of(request((decays[0], b), axis=1, out=along, **RECURRENCE)) == COLUMNS


def test_flags_in_another_order_choose_the_tile():
    shape = (600, 1743, 1390)
    flags = view(shape, "bool", strides=(1, 600, 600 * 1743))
    tile, _, _ = beside(planned(view(shape, "uint8"), axis=1, mask=flags, dtype="uint8"))
    assert tile["columns"] > 1 < tile["outers"]


def test_tiles_are_higher_if_parts_of_sectors_are_written():
    """Results are contiguous along the steps, and columns begin at sectors or elsewhere."""
    shape, bytes_along = (850, 100_001), []
    for pitch in (856, 851):
        bytes_along.append(4 * height(in_panels(view(shape), axis=0, out=view(shape, strides=(1, pitch)))))
    assert bytes_along == [256, 512]


def test_few_columns_use_all_threads():
    made = in_panels(view((168_643_306, 2), "bfloat16"), axis=0, mask=view((168_643_306, 2), "bool"), dtype="bfloat16")
    tile, _, _ = beside(made)
    threads, slots = constants(made, "Threads", "Slots")
    assert tile["rows"] == 256 and 2 * tile["rows"] * tile["columns"] > (threads - 32) * slots
    assert tile["stack"] == 128  # 32 lanes of four rows
    assert tile["stack"] << tile["chunk_levels"] == tile["rows"] * tile["chunk_tiles"]


def test_a_chunk_that_does_not_fit_in_shared_memory_gets_smaller_before_its_tile_does():
    made = {}
    for kib in (228, 100):
        target = Target(90, 132, shared_bytes=kib * 1024)
        kept = view((2**25, 31), "bool")
        made[kib] = in_panels(view((2**25, 31), "bool"), axis=0, dtype="int64", mask=kept, target=target)
        assert made[kib].config.family == "panels" and made[kib].config.grid
    (large, _, _), (small, _, _) = map(beside, made.values())
    assert large["rows"] == small["rows"] and large["chunk_tiles"] > small["chunk_tiles"]


def test_narrow_fields_share_no_registers_with_segments():
    bytes_of_two = cuscan.Operator("both", "return {earlier.p, later.q};", (0, 0), state={"p": "uint8", "q": "uint8"})
    values, resets = of_shape((2000, 101), "uint8", "uint8"), {"segments": ("reset", view((2000, 101), "bool"))}
    slots = [constants(planned(values, axis=0, op=bytes_of_two, **given), "Slots") for given in ({}, resets)]
    assert slots == [(4,), (1,)]


def test_columns_come_before_steps_where_totals_of_shared_panels_do_not_fit():
    """Totals are kept for whole units, so that half the steps would leave their number as it is."""
    shape = (40900, 5, 100)
    segments = {"segments": ("reset", view(shape, "bool"))}
    made = in_panels(view(shape, "uint8"), axis=0, mask=view(shape, "bool"), dtype="uint8", **segments)
    tile, _, _ = beside(made)
    assert made.config.family == "panels" and made.config.grid
    assert tile["rows"] == 2 and 100 < tile["columns"] < 500


def test_blocks_share_narrow_rows_that_lie_side_by_side():
    """A panel of a block's own would have seven halves of each step."""
    side_by_side = view((118_133, 84, 7), "bfloat16", strides=(84 * 8, 8, 1))
    made = planned(side_by_side, axis=0, dtype="bfloat16", out=side_by_side)
    assert made.config.grid and beside(made)[0]["outers"] > 10
    apart = view((84, 118_133, 7), "bfloat16", strides=(118_133 * 8, 8, 1))
    assert not planned(apart, axis=1, dtype="bfloat16", out=apart).config.grid
    few = view((1000, 3000, 4, 7), "bfloat16", strides=(3000 * 32, 32, 8, 1))  # a panel has all four
    assert not planned(few, axis=1, dtype="bfloat16", out=few).config.grid


def test_narrow_rows_of_a_batch_share_a_tile():
    made = planned(view((29181, 17, 5)), axis=1)
    tile, _, (value, result, *_) = beside(made)
    assert tile["columns"] == 5 and tile["outers"] > 1 and height(made) >= 17
    assert dense(value) == dense(result) == 3  # each is one segment
    assert tile["blocks"] == -(-29181 // tile["outers"])


@pytest.mark.parametrize(("around", "outers"), [((9, 4), 288), ((200, 4), 144)])
def test_batch_rows_of_a_tile_come_from_a_long_axis_if_the_next_one_leaves_threads_idle(around, outers):
    rows, columns = around
    x = view((290_543, 6, *around), "float64", strides=(60 * rows + 100, 10 * rows, columns + 5, 1))
    with mock.patch("cuscan.planning.crossing.WASTEFUL", 99):  # otherwise tiles span both
        tile, _, _ = beside(planned(x, axis=1, dtype="float64"))
    assert (tile["columns"], tile["outers"]) == (columns, outers)


@pytest.mark.parametrize("target", [H200, OLDER])
def test_a_total_of_values_that_are_broadcast_has_axes_for_its_tiles(target):
    """No array has an element for each position, so that none chooses the axes."""
    shape = (7, 1000, 3, 5, 9, 11)
    for still in range(len(shape)):
        strides = [0 if axis == still else math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        x = view(shape, strides=tuple(strides))
        for axis in range(len(shape) - 1):
            made = planned(x, axis=axis, return_carry=True, only_carry=True, target=target)
            assert made.config.family in ("panels", "rows", "thread_rows")


@pytest.mark.parametrize(("dtype", "words"), [("float32", 2), ("int32", 1)])
def test_the_workspace_of_shared_panels_by_hand(dtype, words):
    made = in_panels(view((10_000, 90), dtype), axis=0, mask=view((10_000, 90), "bool"), dtype=dtype)
    assert made.config.family == "panels" and made.config.grid
    tile, _, _ = beside(made)
    assert height(made) < 256
    chunks = -(-10_000 // 256)  # chunks of one unit, as there are few
    # A total per column of a chunk, which takes two words as a float64.
    assert made.workspace_words == chunks * tile["panels"] * tile["columns"] * words
    assert made.grid == min(chunks * tile["panels"], 2 * 132)
    assert made.workspace_bytes == HEADER_BYTES + 8 * made.workspace_words


@pytest.mark.parametrize("shape", [(6_280_757, 40), (242_108, 340), (2**20, 33), (10_000, 90), (2**27, 2)])
def test_chunks_are_small_enough_for_the_cache_and_many_enough_for_all_blocks(shape):
    made = in_panels(view(shape, "bfloat16"), axis=0, mask=view(shape, "bool"), dtype="bfloat16")
    tile, _, _ = beside(made)
    steps = height(made) // tile["rows"] * tile["stack"] << tile["chunk_levels"]
    nbytes, number = steps * tile["columns"] * 2, tile["panels"] * (shape[0] // steps)
    assert made.config.grid and steps % 256 == 0
    assert steps == max(height(made), 256) or (nbytes <= 128 << 10 and number >= 3 * 2 * 132)


def test_totals_of_a_chunk_fit_beside_its_tiles():
    """States of bytes by segments take eight bytes, and a thread sums eight steps of a column."""
    shape = (4_000_000, 40)
    made = planned(view(shape, "uint8"), axis=0, dtype="uint8", segments=("reset", view(shape, "bool")))
    tile, _, _ = beside(made)
    assert made.config.grid and made.config.state_bytes == 8
    assert (tile["stack"] << tile["chunk_levels"]) * tile["columns"] * 8 <= 32 << 10


def test_chunks_leave_few_threads_idle():
    """Tiles of a chunk have equally many rows of threads; these seldom fill a block unless there are several tiles."""
    busy = []
    for columns in range(9, 16):
        made = in_panels(view((1_600_000, columns), "float32"), axis=0, mask=view((1_600_000, columns), "bool"))
        tile, _, _ = beside(made)
        (threads,) = constants(made, "Threads")
        rows = tile["stack"] << tile["chunk_levels"]
        assert (
            made.config.grid and tile["rows"] * (tile["chunk_tiles"] - 1) < rows <= tile["rows"] * tile["chunk_tiles"]
        )
        busy.append(rows * columns / (tile["chunk_tiles"] * (threads - 32)))
    assert min(busy) > 0.7


@pytest.mark.parametrize(
    ("columns", "whole"), [(131, True), (206, True), (257, True), (178, False), (309, False), (700, False)]
)
def test_blocks_share_whole_rows_that_follow_each_other(columns, whole):
    """One bulk copy moves all of a tile, as long as this leaves not too many threads idle."""
    for gap in (0, 1):
        x = view((124_048, columns), "float32", (columns + gap, 1))
        made = in_panels(x, axis=0, mask=view((124_048, columns), "bool"), dtype="float32")
        assert made.config.grid and (beside(made)[0]["columns"] == columns) == (whole and not gap)


def test_blocks_share_parts_of_rows_that_do_not_fit_or_do_not_move_in_bulk():
    for dtype, shape, target in (("complex128", (28_157, 92), H200), ("float32", (124_048, 206), OLDER)):
        x = view(shape, dtype)
        made = in_panels(x, axis=0, mask=view(shape, "bool"), dtype=dtype, target=target)
        assert made.config.grid and beside(made)[0]["columns"] * x.dtype.itemsize <= 512


def test_few_chunks_have_a_unit_each():
    """Larger ones would leave more blocks idle, and take no less time."""
    made = in_panels(view((4887, 6), "int16"), axis=0, mask=view((4887, 6), "bool"))
    assert made.config.grid and made.grid == -(-4887 // 256)


@pytest.mark.parametrize("shape", [(6173, 98, 8), (2416, 83, 59)])
def test_a_block_takes_a_whole_axis_where_lower_tiles_would_save_little(shape):
    made = planned(view(shape, "int16"), axis=1, mask=view(shape, "bool"), dtype="int16")
    assert constants(made, "Kept") == (0,) and height(made) >= shape[1]


@pytest.mark.parametrize(("columns", "gap", "dense"), [(11, 4, 2), (11, 5, 1), (16, 4, 2), (16, 5, 1)])
def test_small_gaps_between_values_move_with_them(columns, gap, dense):
    """One segment of values then has all steps; results never do, as their gaps belong to others."""
    x = view((100, columns), "float64", (columns + gap, 1))
    made = planned(x, axis=0, out=view((100, columns), "float64", (columns + gap, 1)))
    _, _, (value, result, *_) = beside(made)
    assert (value[5] >> DENSE & 7, result[5] >> DENSE & 7) == (dense, 1)
    assert value[1] == 8 * (columns + gap) or dense == 1


@pytest.mark.parametrize("dtype", ["uint8", "float32", "complex128"])
@pytest.mark.parametrize(("step", "staged"), [(2, True), (4, True), (5, False)])
def test_columns_with_small_gaps_move_through_shared_memory(dtype, step, staged):
    """Threads load columns that are farther apart from global memory, and store all results that have gaps there."""
    shape, item = (100, 48), np.dtype(dtype).itemsize
    x = view(shape, dtype, (step * 48, step))
    staged &= item * (step - 1) <= 32
    _, _, (value, result, *_) = beside(planned(x, axis=0))
    assert (value[0] >= 0) == staged and result[0] >= 0
    assert not staged or value[2] == item * step
    _, _, (value, result, *_) = beside(planned(x, axis=0, out=view(shape, dtype, (step * 48, step))))
    assert (value[0] >= 0) == staged and result[0] < 0


def test_segments_go_along_the_axis_with_the_smallest_gaps():
    """Both steps and columns lie less than a sector apart."""
    _, _, (value, *_) = beside(planned(view((592_413, 2), "float32", (4, 2)), axis=0))
    fastest, axes = value[5] & 3, value[5] >> DENSE & 7
    assert (fastest, axes) == (1, 2) and value[1:3] == (16, 8)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(("row", "outer", "segments"), [(1000, 300_000, 2 * 256), (32, 300_000, 2), (32, 32 * 256, 1)])
def test_segments_are_counted_with_their_gaps(step, row, outer, segments):
    """As many threads move them as are needed."""
    extents, strides = (256, 32, 2), (4 * step * row, 4 * step, 4 * step * outer)
    found = _array(4, strides, extents, extents, 0, 1, 8, 0, gaps=True)
    assert found.segments == segments and found.segment * segments == 4 * step * 32 * 256 * 2


def test_segments_of_thread_rows_are_counted():
    found = _array(1, (8, 1, 10**6), (32, 8, 1), (32, 8, 1), 64, 4, 8, 0, gaps=True)
    assert (found.segment, found.segments) == (64, 4)


def test_tiles_span_batch_rows_that_lie_closer_than_steps():
    """Otherwise every column's neighbours in memory are columns of other panels."""
    x = view((323_744, 50, 2), "float32", (384, 6, 1))
    made = planned(x, axis=0, mask=view((323_744, 50, 2), "bool", (384, 6, 1)), dtype="float32")
    assert made.config.grid and beside(made)[0]["outers"] > 8


def test_tiles_do_not_span_batch_rows_that_lie_farther_apart():
    made = in_panels(view((8, 960_000, 2), "float32"), axis=1, mask=view((8, 960_000, 2), "bool"))
    assert made.config.grid and beside(made)[0]["outers"] == 1


def test_lower_tiles_have_the_steps_that_contiguous_results_need():
    """Results are contiguous along the steps, of which a tile then has 64 at least."""
    x, out = view((2699, 462, 353), "float16", (462 * 353, 1, 462)), view((2699, 462, 353), "float16")
    made = planned(x, axis=1, out=out)
    assert not made.config.grid and height(made) >= 64


def test_tiles_are_higher_where_results_are_contiguous_along_the_steps():
    """Then each column is a segment, however many steps it has."""
    x, turned = view((3724, 56167), "float32"), view((3724, 56167), "float32", (1, 3724))
    straight, along = in_panels(x, axis=0, out=x), in_panels(x, axis=0, out=turned)
    assert height(straight) < height(along) and beside(straight)[0]["columns"] > beside(along)[0]["columns"]


def test_a_tile_of_a_whole_axis_has_as_many_rows_of_threads_as_it_needs():
    """Nine rows of 16 steps for 138 steps. Tiles that keep carries have a power of two of rows."""
    for length, rows, kept in ((44, 3, 0), (138, 9, 0), (300, 32, 1)):
        made = planned(view((47040, length, 3), "float64"), axis=1)
        tile = beside(made)[0]
        assert (tile["rows"], *constants(made, "Kept")) == (rows, kept)


def test_chunks_are_right_for_the_tiles_that_fit():
    """Higher tiles of two columns with gaps do not fit: then chunks have few tiles, and all blocks get some."""
    made = planned(view((592_413, 2), "float32", (9, 1)), axis=0)
    tile, _, _ = beside(made)
    rows = tile["stack"] << tile["chunk_levels"]
    assert made.config.grid and -(-592_413 // (rows * height(made) // tile["rows"])) > 3 * 132


def test_lower_tiles_of_more_batch_rows_where_they_leave_fewer_threads_idle():
    """Higher ones of 75 columns have 4 rows of threads, and leave 276 of 576 threads idle."""
    made = planned(view((2852, 400, 75), "int64"), axis=1)
    tile, _, _ = beside(made)
    (threads,) = constants(made, "Threads")
    assert not made.config.grid and tile["rows"] * tile["outers"] * 75 > 0.75 * (threads - 32)


def test_a_large_block_for_short_axes_where_it_leaves_fewer_threads_idle():
    made = planned(view((8660, 5, 1221), "bfloat16"), axis=1, dtype="bfloat16")
    assert constants(made, "Threads", "Kept") == (608, 0) and beside(made)[0]["outers"] == 3
    made = planned(view((8660, 5, 2300), "bfloat16"), axis=1, dtype="bfloat16")
    assert constants(made, "Threads", "Kept") == (320, 0)


def test_blocks_share_panels_that_leave_two_thirds_of_the_threads_idle():
    """There are enough panels for 0.6 of the blocks, with two bytes per step, or three floats."""
    assert in_panels(view((91, 847_747, 2), "uint8"), axis=1, dtype="uint8").config.grid
    assert not in_panels(view((100, 400_001, 3)), axis=1, mask=view((100, 400_001, 3), "bool")).config.grid


def test_blocks_share_no_panels_of_one_chunk():
    """Few panels, along an axis that is shorter than a chunk, whose values and results lie in different orders."""
    x, out = view((200, 80, 21), "uint8", (2960, 37, 1)), view((200, 80, 21), "uint8", (1, 200, 16000))
    made = make_plan(request(x, axis=1, out=out, has_initial=True, dtype="uint8"), CONSUMER)
    assert made.config.family == "panels" and not made.config.grid


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_panels_fill_rows_of_threads(dtype):
    """Panels are equally wide, and leave few threads of a row without columns."""
    shares = []
    for width in range(260, 1200, 9):
        made = in_panels(view((60_000, width), dtype), axis=0, mask=view((60_000, width), "bool"), dtype=dtype)
        tile, _, _ = beside(made)
        threads, slots = constants(made, "Threads", "Slots")
        assert made.config.grid and slots == 1
        shares.append(tile["columns"] * tile["rows"] / (threads - 32))
    assert min(shares) > 0.75 and sum(shares) / len(shares) > 0.95


DTYPES = ("uint8", "bfloat16", "float32", "float64", "complex128")


def draw(rng):
    """Random columns: sizes, gaps between rows, addresses, dtypes and flags."""
    shape = (rng.choice((1, 2, 5, 200)), int(2 ** rng.uniform(1, 16)), int(2 ** rng.uniform(1, 14)))

    def array(dtype, gap, order, length):
        """A view of the shape, with some order of axes in memory."""
        sizes, strides, step = [shape[0], length, shape[2]], [0, 0, 0], 1
        for axis in order:
            strides[axis], step = step, step * sizes[axis] + (gap if step == 1 else 0)
        size = {"bool": 1, "complex128": 16}.get(dtype, 8)
        return view(tuple(sizes), dtype, tuple(strides), size * rng.randrange(9))

    dtype, gap = rng.choice(DTYPES), rng.choice((0, 0, 1, 3, 16))
    order = (2, 1, 0) if rng.random() < 0.5 else tuple(rng.sample(range(3), 3))
    x = array(dtype, gap, order, shape[1])
    flags = {"reverse": rng.random() < 0.5, "include_initial": rng.random() < 0.2, "has_initial": True}
    flags["dtype"] = dtype
    if rng.random() < 0.5:
        other = (2, 1, 0) if rng.random() < 0.5 else tuple(rng.sample(range(3), 3))
        flags["out"] = array(dtype, 0, other, shape[1] + flags["include_initial"])
    if rng.random() < 0.3:
        flags["mask"] = array("bool", gap, order, shape[1])
    return x, flags


@pytest.mark.parametrize(("columns", "several"), [(3, True), (40, True), (700, False)])
def test_a_chunk_has_room_for_carries_of_its_units_and_stacks(columns, several):
    """PanelCarry: before the chunk, a level of the tree each, before each unit and, if these have several, stack."""
    with mock.patch("cuscan.planning.panels.tile_words", wraps=tile_words) as made_words:
        x, mask = view((2**20, columns), strides=(columns + 1, 1)), view((2**20, columns), "bool")
        made = in_panels(x, axis=0, mask=mask)
    tile, (_, kept, levels), _ = beside(made)
    assert made.config.grid and (tile["units"] > 0) == several
    stacks, width = 1 << tile["chunk_levels"], tile["columns"] * tile["outers"]
    carries = 1 + levels + (stacks << tile["units"]) + stacks * several
    given = made_words.call_args_list[-1].args
    assert tile_words(*given).nbytes == kept + width * carries * made.config.carry_bytes


@pytest.mark.parametrize("target", [H200, OLDER, CONSUMER], ids=["h200", "sm_80", "sm_86"])
@pytest.mark.parametrize("seed", range(100))
def test_tiles_cover_all_and_their_arrays_lie_apart(seed, target):
    rng = random.Random(seed)
    x, flags = draw(rng)
    made = make_plan(request(x, axis=1, **flags), target)
    if made.config.family != "panels":
        return
    tile, (exchange, kept, _), arrays = beside(made)
    threads, slots = constants(made, "Threads", "Slots")
    length, width = x.shape[1] + made.config.includes_initial, tile["columns"] * tile["outers"]
    assert width <= (threads - 32) // tile["rows"] * slots and threads == made.config.block
    assert (made.config.grid or constants(made, "Kept")[0]) == (length > min(height(made), 256))
    if constants(made, "Kept")[0]:
        assert 256 % height(made) == 0 or height(made) % 256 == 0
    if made.config.grid:
        rows, chunk = tile["rows"], tile["stack"] << tile["chunk_levels"]
        assert height(made) // rows * chunk % 256 == 0 and chunk & (chunk - 1) == 0
        assert rows * (tile["chunk_tiles"] - 1) < chunk <= rows * tile["chunk_tiles"]
    assert made.config.blocks_per_sm * (made.config.shared_bytes + 1024) <= target.shared_bytes
    end = 256
    for i, (words, array) in enumerate(zip(arrays, (x, flags.get("out", x), flags.get("mask"), None), strict=True)):
        region, *pitches, thread_row, _ = words
        if region < 0:
            continue
        size = array.dtype.itemsize
        steps = length if i == 1 else x.shape[1]
        extents = (min(height(made), steps), tile["columns"], tile["outers"])
        order = axes(words)
        if constants(made, "Gaps")[0]:  # columns of several rows
            every, _, between = gaps_of(made)
            extents = (extents[0], extents[1] // every, extents[2], every)
            pitches = [*pitches[:1], every * pitches[1] + between[i], pitches[2], pitches[1]]
            order.append(words[5] >> 6 & 3)
            order[dense(words) :] = sorted(order[dense(words) :], key=lambda a: abs(pitches[a]))
        assert region % 128 == 0 and region >= end
        steps_of_thread = height(made) // tile["rows"]
        assert (thread_row < 0) == (pitches[0] < 0)
        # Each axis steps over the extent of all faster ones; segments need 15 bytes more, for their place in memory.
        reach = size
        for number, axis in enumerate(order):
            assert extents[axis] == 1 or abs(pitches[axis]) >= reach + 15 * (number >= dense(words))
            if axis == 0 and is_split(words):
                assert abs(thread_row) >= steps_of_thread * abs(pitches[0]) + 15 and thread_row % 16 == 0
                reach += (tile["rows"] - 1) * abs(thread_row) + (steps_of_thread - 1) * abs(pitches[0])
                continue
            assert axis > 0 or thread_row == steps_of_thread * pitches[0]
            reach += (extents[axis] - 1) * abs(pitches[axis])
        end = region + reach + 15
        assert end <= exchange
    assert exchange <= kept <= made.config.shared_bytes


@pytest.mark.parametrize("target", [H200, OLDER, CONSUMER, Target(90, 4)], ids=["h200", "sm_80", "sm_86", "few SMs"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_column_of_a_narrow_tile_has_a_thread(dtype, target):
    for width, outer, length in itertools.product(range(2, 66), (1, 2, 3, 700), (200, 2100, 70_000)):
        made = make_plan(request(view((outer, length, width), dtype), axis=1, has_initial=True, dtype=dtype), target)
        if made.config.family == "panels":
            tile, (threads, slots) = beside(made)[0], constants(made, "Threads", "Slots")
            assert tile["columns"] * tile["outers"] <= (threads - 32) // tile["rows"] * slots, (outer, length, width)


def test_pitches_are_as_far_from_multiples_of_16_as_strides():
    for gap, dtype in itertools.product(range(17), ("uint8", "bfloat16", "float32")):
        made = planned(view((3000, 2**20), dtype, (2**20 + gap, 1)), axis=0, dtype=dtype, target=OLDER)
        size = view((1,), dtype).dtype.itemsize
        value = beside(made)[2][0]
        assert axes(value)[:2] == [1, 0] and (dense(value) > 1 or (value[1] - (2**20 + gap) * size) % 16 == 0)


def test_pitches_of_bulk_copies_are_as_far_from_multiples_of_32_as_strides():
    pitches = set()
    for gap in range(1, 9):
        made = planned(view((1000, 20000), strides=(20000 + gap, 1)), axis=0)
        if gap % 4:  # else strips
            value, result = beside(made)[2][:2]
            assert (
                all(array[5] & (IN_BULK | SPLIT) == IN_BULK for array in (value, result))
                and dense(value) == dense(result) == 1
            )
            assert (value[1] - (20000 + gap) * 4) % 32 == 0 and result[1] % 32 == 0
            pitches.add(value[1] % 32)
    assert pitches == {4, 8, 12, 20, 24, 28}


def test_bulk_copies_move_long_segments_where_the_gpu_has_them():
    def in_bulk(width, target):
        x = view((1000, width), strides=(width + 2, 1))
        _, _, (value, result, *_) = beside(planned(x, axis=0, target=target))
        return [int(array[5] & IN_BULK > 0) for array in (value, result)]

    assert in_bulk(20000, H200) == [1, 1]
    assert in_bulk(20000, OLDER) == [0, 0]
    assert in_bulk(5000, H200) == [0, 0]  # rows of panels have 160 bytes


@pytest.mark.parametrize(
    ("dtype", "rows", "meet"),
    [
        ("float16", (32, 2), True),
        ("float32", (64, 2), True),
        ("uint8", (64, 4), True),
        ("float16", (31, 2), False),  # rows of 124 bytes begin in all banks
        ("float32", (8, 8), False),  # the threads of a row read different banks
        ("float32", (4, 2), False),  # rows are short
    ],
)
def test_batch_rows_lie_apart_where_their_threads_would_meet_in_a_bank(dtype, rows, meet):
    made = planned(view((2**16, *rows), dtype), axis=1, dtype=dtype)
    for array in beside(made)[2][:2]:
        row = rows[0] * rows[1] * ALL_DTYPES[dtype].itemsize
        assert dense(array) == (2 if meet else 3)
        assert array[3] // 16 % 2 == 1 if meet else array[3] == row


def test_shared_panels_move_whole_rows_in_bulk_but_no_parts_of_rows():
    def in_bulk(shape, target=H200):
        made = in_panels(view(shape), axis=0, mask=view(shape, "bool"), target=target)
        assert made.config.family == "panels" and made.config.grid
        _, _, (value, result, mask, *_) = beside(made)
        return [int(array[5] & IN_BULK > 0) for array in (value, result, mask)]

    assert in_bulk((900_000, 11)) == [1, 1, 1]
    assert in_bulk((100_000, 301)) == [0, 0, 0]
    assert in_bulk((900_000, 11), OLDER) == [0, 0, 0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32", "float64"])
def test_few_columns_lie_in_different_banks(dtype, reverse):
    """Lanes that read several rows of threads of few columns, where blocks share panels, rarely meet in a bank."""

    def accesses(lanes):
        words = {byte // 4 for byte in lanes}
        return max(collections.Counter(word % 32 for word in words).values()) / -(-len(words) // 32)

    size, conflicts = view((1,), dtype).dtype.itemsize, []
    for columns in range(2, 25 // size + 1):
        x, mask = view((2**22 + 3, columns), dtype, pointer=size), view((2**22 + 3, columns), "bool")
        made = in_panels(x, axis=0, dtype=dtype, reverse=reverse, mask=mask)
        tile, _, (value, result, *_) = beside(made)
        threads, pack = constants(made, "Threads", "Pack")
        places = [divmod(lane, (threads - 32) // tile["rows"]) for lane in range(32)]
        places = [(row, column * pack * size) for row, column in places if column * pack < columns]
        assert made.config.grid and value[1:] == result[1:]
        rows = len({row for row, _ in places})  # of which eight can be in different banks, as they lie 16 bytes apart
        assert accesses([row * value[4] + column for row, column in places]) <= max(3, rows // 8), columns
        steps = height(made) // tile["rows"] * value[1]  # without a gap
        conflicts.append(accesses([row * steps + column for row, column in places]))
    assert max(conflicts) >= 8


def test_rows_of_threads_lie_as_far_apart_as_steps_are_wide():
    for step, steps in itertools.product(range(1, 65), (8, 16, 32, 64)):
        row, pieces = step * steps, -(-step // 16) * 16
        apart = _split_row(step, steps)
        if apart:
            assert apart % 16 == 0 and row < apart < row + 128 and apart % 128 == pieces % 128
        else:
            assert row % 16 or row % 128 == pieces % 128


def test_gaps_pay_where_a_warp_reads_five_rows_of_threads():
    def splits(columns, dtype="float16", target=H200):
        made = planned(view((2**22 + 3, columns), dtype, (columns + 1, 1), 2), axis=0, dtype=dtype, target=target)
        assert made.config.family == "panels" and made.config.grid
        return is_split(beside(made)[2][0])

    assert splits(12) and not splits(13)
    assert not splits(4, target=OLDER)  # without bulk copies


def test_few_kernels_serve_all_columns_of_a_kind():
    """Sizes, gaps and addresses are arguments."""
    rng = random.Random(1)
    configs = set()
    for _ in range(500):
        shape = (int(2 ** rng.uniform(1, 20)), int(2 ** rng.uniform(1, 10)))
        x = view(shape, "float32", (shape[1] + rng.randrange(4), 1), 4 * rng.randrange(9))
        made = make_plan(request(x, axis=0), OLDER)
        if made.config.family == "panels":
            configs.add(made.config)
    assert 8 <= len(configs) <= 14


def test_wide_states_take_fewer_threads():
    narrow = planned(of_shape((3000, 2**20), "float32", "float32"), axis=0, **RECURRENCE)
    wide = planned(of_shape((3000, 2**20), *["float64"] * 2), state_of("float64", "float64"), axis=0)
    if narrow.config.family == wide.config.family == "panels":
        assert wide.config.blocks_per_sm < narrow.config.blocks_per_sm


def test_many_fields_fit_little_shared_memory():
    """Tiles shrink until they fit: first in steps, then in columns."""
    fields = ["int8"] * 16
    for target in (CONSUMER, Target(75, 68, shared_bytes=64 * 1024)):
        for shape in ((3000, 2**20), (200, 2**20), (3000, 5)):  # with gaps between rows
            x, out = (tuple(view(shape, field, (2 * shape[1], 1)) for field in fields) for _ in range(2))
            made = make_plan(request(x, state_of(*fields), axis=0, out=out), target)
            assert made.config.family == "panels"
            assert made.config.blocks_per_sm * (made.config.shared_bytes + 1024) <= target.shared_bytes
            assert beside(made)[1][1] <= made.config.shared_bytes
            assert (made.config.grid or constants(made, "Kept")[0]) == (shape[0] > height(made))


def wide_columns(length, dtype="float32", count=1):
    """A masked scan along a short axis of wide columns of `count` fields, with gaps between rows."""

    def array(of):
        return view((300, length, 4999), of, (length * 10000, 10000, 1))

    x, op = array(dtype), "add"
    if count > 1:
        x, op = tuple(array(dtype) for _ in range(count)), state_of(*[dtype] * count)
    return make_plan(request(x, op, axis=1, mask=array("bool")), OLDER)


def test_a_short_axis_of_wide_columns_is_one_tile_of_rows_of_a_run_where_one_row_of_threads_would_be_a_quarter_empty():
    for dtype, (length, rows) in itertools.product(("float32", "bfloat16"), ((17, 3), (24, 3), (25, 1), (32, 1))):
        made = planned(view((length, 2**20), dtype), axis=0)
        assert (made.config.family, beside(made)[0]["rows"]) == ("panels", rows)
        assert constants(made, "Kept") == (0,)


def test_a_short_axis_is_one_tile_of_rows_of_a_run_where_its_tiles_would_be_a_fifth_empty():
    for length in range(17, 81):
        made = wide_columns(length)
        rows = beside(made)[0]["rows"]
        is_empty = length > 32 and -(-length // 32) * 32 >= 1.25 * length
        # Tiles of 52 steps are nearly a fifth empty: then a tile of two rows of threads takes less time.
        of_two_rows = length == 52
        assert constants(made, "Kept")[0] == (length > 32 and not is_empty and not of_two_rows)
        if of_two_rows:
            assert (rows, height(made)) == (2, 64)
        if is_empty:
            assert rows == -(-length // COLUMNS.items) and height(made) == rows * COLUMNS.items


@pytest.mark.parametrize(
    ("shape", "axis", "rows", "columns", "outers"),
    [
        ((429, 18, 19495, 3), 2, 32, 3, 12),  # 161 panels of 8, 3, 48 in two rounds of 132 blocks: 644, in five rounds
        ((95, 574, 1168), 1, 2, 304, 1),  # 190 panels of half of a tile's width
        ((109, 33, 6550), 0, 1, 832, 1),  # narrower panels would move in more segments
        ((354, 10, 4, 2485), 0, 1, 768, 1),  # a round of blocks, and most of the memory's speed
    ],
)
def test_tiles_that_keep_carries_have_the_height_with_which_they_take_the_least_time(
    shape, axis, rows, columns, outers
):
    made = in_panels(view(shape, "bfloat16"), axis=axis)
    assert constants(made, "Kept") == (1,)
    assert beside(made)[0]["rows"] == rows
    assert [beside(made)[0][name] for name in ("columns", "outers")] == [columns, outers]


def test_a_tile_that_takes_less_time_fits_in_shared_memory():
    target = dataclasses.replace(OLDER, shared_bytes=100 * 1024)
    fitting = []

    def watch(scan, shape, target, turned, fits):
        fitting.append(fits(chosen := faster_shape(scan, shape, target, turned, fits)))
        return chosen

    with mock.patch("cuscan.planning.panels.faster_shape", watch):
        make_plan(request(view((438, 811, 1, 68), "int16"), "add", axis=0), target)
    assert fitting == [True]


def test_a_short_axis_that_does_not_fit_as_one_tile_keeps_carries():
    for length in range(33, 81):
        made = wide_columns(length, "int64", count=2)
        assert constants(made, "Kept")[0] == (height(made) < length)
        assert height(made) >= length or height(made) == 16  # longer shares in one row of threads


def test_a_thread_has_whole_vectors_of_columns():
    for fields in (["int8"] * 8, ["int8"] * 4, ["int16"] * 4, ["int32", *["int8"] * 4], ["uint8"]):
        for length in (2, 5, 9, 3000):
            x = of_shape((length, 2**20), *fields)
            made = make_plan(request(x, state_of(*fields), axis=0), OLDER)
            assert made.config.family == "panels"
            slots, pack = constants(made, "Slots", "Pack")
            assert slots % pack == 0


@pytest.mark.parametrize(
    ("columns", "dtype", "threads", "blocks"),
    [(10, "complex128", 160, 3), (11, "complex128", 480, 1), (9, "complex64", 320, 2)],
)
def test_more_blocks_share_narrow_rows_of_wide_states(columns, dtype, threads, blocks):
    made = in_panels(view((1_000_000, columns), dtype), axis=0, mask=view((1_000_000, columns), "bool"))
    assert constants(made, "Threads") == (threads,) and made.config.blocks_per_sm == blocks


def test_one_block_takes_tiles_of_two_axes_of_wide_states():
    x, out = (view((500_000, 4, 2), "complex128", strides) for strides in ((1, 1_000_000, 500_000), (8, 1, 4)))
    made = planned(x, axis=0, mask=view(x.shape, "bool"), out=out)
    assert beside(made)[0]["outers"] == 2 and constants(made, "Threads") == (480,)


@pytest.mark.parametrize(("arch", "kib"), [(75, 64), (86, 100), (90, 228)])
@pytest.mark.parametrize("dtype", ["complex128", "float64", "complex64"])
@pytest.mark.parametrize("columns", [2, 3, 10])
def test_narrow_rows_of_wide_states_fit_every_gpu(arch, kib, dtype, columns):
    x, reset = (view((300_000, columns), kind) for kind in (dtype, "bool"))
    made = in_panels(x, axis=0, segments=("reset", reset), target=Target(arch, 40, kib * 1024))
    assert constants(made, "Threads") == (160,) and made.config.shared_bytes <= kib * 1024 // 3
