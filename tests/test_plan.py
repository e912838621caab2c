"""Plans checked by hand: families, configurations, geometry, workspaces."""

from __future__ import annotations

import itertools
import math

import pytest
from operator_examples import MATRIX_PRODUCT
from plans import (
    H200,
    NONE,
    ONE,
    ORDER4,
    RECURRENCE,
    TABLE,
    WIDENED,
    accesses,
    constants,
    dim,
    dimensions,
    of_shape,
    planned,
    request,
    scalars,
    spans,
    staged,
    state_of,
    tiled,
    whole_lines,
)
from views import view

from cuscan import ScanValueError
from cuscan.dtypes import DTYPES
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.order import COLUMNS, PAIRED_SECTION, Order
from cuscan.planning import config, make_plan, tiles
from cuscan.planning.config import Target
from cuscan.planning.hardware import SHARED_RESERVED
from cuscan.planning.walks import SPAN_LOOKS, has_nodes, looks_of_walk, span_of_walk, totals_of_walk
from cuscan.request.layout import order_of

pytestmark = pytest.mark.usefixtures("tables")


def test_a_short_row_is_a_warp():
    made = planned(view((1000,)))
    assert made.config.family == "rows" and not made.config.grid
    assert dict(made.config.constants)["Vectors"] == 8 and dict(made.config.constants)["Lanes"] == 32
    assert made.geometry == (1000, 4, 4, 0, 0, 0, 0, *ONE, *ONE, 1, 1, 0, *(0, 4000), *(0, 4000), 0, 0, 0, 0)
    assert made.offsets == (0,) * 6
    assert made.grid == 1 and made.workspace_words == made.workspace_bytes == 0


@pytest.mark.parametrize(
    "length, lanes, vectors, of_few",
    [(1, 1, 1, 1), (4, 1, 1, 1), (5, 2, 1, 1), (33, 16, 1, 1), (128, 32, 1, 1), (129, 32, 2, 2), (600, 32, 5, 8)],
)
def test_rows_take_as_many_lanes_as_they_fill(length, lanes, vectors, of_few):
    """Rows that are so few that all run at once take 32."""
    for rows in (16 * 132 + 1, 16 * 132):
        made = planned(view((rows, length), strides=(2001, 1))).config
        family = "staged_rows" if length * 4 >= 32 else "rows"
        expected = (lanes, vectors) if rows > 16 * 132 else (32, of_few)
        constants = dict(made.constants)
        assert (made.family, constants["Lanes"], constants["Vectors"]) == (family, *expected)


def test_every_row_of_a_batch_is_covered():
    made = planned(view((1001, 4)))
    constants = dict(made.config.constants)
    per_block = constants["Warps"] * 32 // constants["Lanes"] * constants["RowsPerThread"]
    assert made.config.block == constants["Warps"] * 32
    assert (made.grid - 1) * per_block < 1001 <= made.grid * per_block


@pytest.mark.parametrize("rows", [2, 1001, 10**6])
@pytest.mark.parametrize("length", [1, 3, 33, 255, 1001])
def test_every_row_in_shared_memory_is_covered(length, rows):
    made = planned(view((rows, length)))
    of_block = made.geometry[beside(made)]
    assert of_block * length * 4 <= 32 * 1024
    assert (made.grid - 1) * of_block < rows <= made.grid * of_block


@pytest.mark.parametrize("shared", [64, 100, 228])
def test_rows_in_shared_memory_fit(shared):
    """The longest rows of the smallest elements, with the largest keys. Where few rows fit, warps have none."""
    array = view((100, 4095), "uint8")
    keys, mask = view((100, 4095), "int64"), view((100, 4095), "bool")
    call = request(array, dtype="uint8", mask=mask, segments=("keys", keys))
    made = make_plan(call, Target(90, 132, shared * 1024))
    assert made.config.family == "staged_rows"
    assert made.config.shared_bytes <= (shared - 1) * 1024
    rows, _, _, _, *places = made.geometry[beside(made) :]
    assert rows == (1 if shared < 228 else 4)
    ends = [0, *(place + pitch * rows for place, pitch in zip(places[::4], places[1::4], strict=True) if pitch)]
    assert all(place >= end for place, end in zip(filter(None, places[::4]), ends, strict=False))
    assert ends[-1] + 32 <= made.config.shared_bytes


def beside(made):
    """Where the words of a family's own begin in the geometry of rows."""
    return len(made.geometry) - 4 - 4 * (len(made.config.values) + len(made.config.results) + 2)


OF_A_WARP = {
    "odd rows": (view((100, 7)), {}, "thread_rows"),
    "mirrored": (view((100, 7)), {"reverse": True}, "thread_rows"),
    "halves of words": (view((100, 31), "float16"), {}, "thread_rows"),
    "few rows of many runs": (view((800, 31)), {}, "staged_rows"),
    "more rows of many runs": (view((8000, 31)), {}, "thread_rows"),
    "longer rows": (view((100, 65)), {}, "staged_rows"),
    "misaligned rows": (view((100, 256), pointer=4), {}, "staged_rows"),
    "one row": (view((1001,), pointer=4), {}, "staged_rows"),
    "outer axes": (view((10, 10, 7)), {}, "thread_rows"),
    "a dense mask": (view((100, 7)), {"mask": view((100, 7), "bool")}, "thread_rows"),
    "segments": (view((100, 7)), {"segments": ("reset", view((100, 7), "bool"))}, "thread_rows"),
    "segments of all rows": (view((100, 7)), {"segments": ("keys", view((7,), "int32"))}, "staged_rows"),
    "a recurrence": ((view((100, 7)), view((100, 7))), {"op": LINEAR_RECURRENCE}, "thread_rows"),
    "a decay for each row": (
        (view((100, 7), strides=(1, 0)), view((100, 7))),
        {"op": LINEAR_RECURRENCE},
        "thread_rows",
    ),
    "wide states": (
        (view((100, 17), "float64"), view((100, 17), "float64")),
        {"op": LINEAR_RECURRENCE},
        "staged_rows",
    ),
    "aligned rows": (view((100, 16)), {}, "rows"),
    "few aligned rows": (view((10_000, 20)), {}, "rows"),
    "many aligned rows": (view((100_000, 20)), {}, "thread_rows"),
    "aligned rows of a vector": (view((100_000, 4)), {}, "rows"),
    "gaps": (view((100, 7), strides=(8, 1)), {}, "staged_rows"),
    "wide gaps": (view((100, 70), strides=(2001, 1)), {}, "staged_rows"),
    "wide gaps between short rows": (view((100, 7), strides=(2001, 1)), {}, "rows"),
    "strided": (view((100, 7), strides=(14, 2)), {}, "rows"),
    "opposite": (view((100, 7), strides=(7, -1)), {}, "staged_rows"),
    "rows upside down": (view((100, 65), strides=(-65, 1)), {}, "staged_rows"),
    "a broadcast mask": (view((100, 7)), {"mask": view((7,), "bool")}, "staged_rows"),
    "the same banks": (view((100, 16), pointer=4), {}, "staged_rows"),
    "many aligned rows, two vectors in the same banks": (view((100_000, 24)), {}, "thread_rows"),
    "many aligned rows, four vectors in the same banks": (view((100_000, 16)), {}, "thread_rows"),
    "many aligned rows, all vectors in the same banks": (view((100_000, 32)), {}, "rows"),
    "stretches of few rows": (view((100, 3, 7), strides=(28, 7, 1)), {}, "thread_rows"),
    "stretches far apart": (view((100, 3, 7), strides=(700, 7, 1)), {}, "rows"),
    "small gaps, and others behind stretches": (view((100, 3, 7), strides=(35, 9, 1)), {}, "thread_rows"),
    "results with gaps": (view((100, 7)), {"out": view((100, 7), strides=(9, 1))}, "thread_rows"),
    "results of three items with gaps": (view((100, 3)), {"out": view((100, 3), strides=(5, 1))}, "rows"),
    "aligned results with gaps": (view((100_000, 20)), {"out": view((100_000, 20), strides=(24, 1))}, "rows"),
}


@pytest.mark.parametrize("value, call, family", OF_A_WARP.values(), ids=OF_A_WARP)
def test_rows_that_are_not_aligned_pass_through_shared_memory(value, call, family):
    assert planned(value, **call).config.family == family
    assert make_plan(request(value, **call), Target(80, 108)).config.family == family


def test_a_block_has_several_stretches():
    """A block has whole ones, with the gaps behind them. Of long ones, it has a part of one."""
    made = planned(view((10_000, 3, 7), strides=(28, 7, 1)))
    rows, run, blocks, stretch, *places = made.geometry[beside(made) :]
    assert (run, stretch) == (30_000, 3) and rows > 100 and rows % 3 == 0
    assert (blocks, made.grid) == (-(-run // rows), blocks)
    assert places[1:4] == [28, 1, 28] and places[5:8] == [28, 1, 0]
    made = planned(view((100, 300, 7), strides=(2107, 7, 1)))
    assert made.geometry[beside(made) : beside(made) + 4] == (256, 300, 2, 1) and made.grid == 200


def test_rows_that_all_blocks_share_pass_once():
    """A mask of one row for all has no distance from row to row; one that some rows share stays in the caches."""
    made = planned(view((100, 65)), mask=view((65,), "bool"))
    assert made.geometry[beside(made) + 4 :][4 * 2 + 1] == 0
    array = view((10, 10, 65))
    assert planned(array, mask=view((10, 10, 65), "bool")).config.mask.staged
    assert not planned(array, mask=view((10, 1, 65), "bool")).config.mask.staged


def test_threads_read_and_write_what_is_aligned_in_all_rows():
    def units(of, **call):
        constants = dict(planned(of, **call).config.constants)
        return tuple(constants[name] for name in ("ValueUnit", "ResultUnit", "MaskUnit"))

    assert units(view((100, 7))) == units(view((100, 6), pointer=4)) == (1, 1, 4)  # there is no mask
    assert units(view((100, 6)), mask=view((100, 6), "bool")) == (2, 2, 2)
    assert units(view((100, 6)), out=view((100, 6), pointer=4)) == (1, 1, 4)  # few kernels: the same for both
    assert units(view((100, 20), "uint8"), dtype="uint8") == (4, 4, 16)
    gaps = view((100, 5), "bool", strides=(8, 1))
    assert units(view((100, 5)), mask=gaps) == (1, 1, 4)
    assert units(view((100, 5)), mask=gaps, reverse=True) == (1, 1, 1)  # units end behind an odd element
    assert units(view((100, 5), "uint8", strides=(8, 1)), dtype="int64", reverse=True) == (1, 1, 2)
    assert units(view((100, 6)), segments=("offsets", view((3,), "int64"))) == (2, 2, 2)
    assert units(view((100, 6)), segments=("reset", view((100, 6), "bool", pointer=1))) == (1, 1, 1)


@pytest.mark.parametrize(
    "length, family, warps, groups, units",
    [
        (2048, "rows", None, None, 1),
        (2049, "tiles", 3, 8, 1),
        (4097, "tiles", 5, 4, 1),
        (8192, "tiles", 8, 3, 1),
        (8193, "tiles", 8, 3, 2),
        (2**20, "tiles", 8, 3, 128),
    ],
)
def test_longer_rows_are_tiles(length, family, warps, groups, units):
    made = tiled(view((length,)))
    assert (made.config.family, made.config.grid, scalars(made)[1]) == (family, family == "tiles", units)
    if family == "tiles":
        assert constants(made, "Warps", "Groups") == (warps, groups)
        # Up to 24 warps scan, one loads, and where there is a chain, one looks back.
        assert made.config.block == (warps * groups + 1 + (units > 1)) * 32 and made.config.blocks_per_sm == 1


def test_a_block_has_as_many_groups_as_there_are_barriers_and_room_for():
    assert tiles.GROUPS == 15  # one of the 16 barriers is that of the block
    for dtype, length in itertools.product(DTYPES, (600, 1500, 3000, 6000, 20_000, 2**20)):
        made = planned(view((7, length), dtype), op="mul")
        if made.config.family != "tiles":
            continue
        warps, groups, stages = constants(made, "Warps", "Groups", "Stages")
        assert warps * groups <= tiles.TILES_WARPS and groups <= tiles.GROUPS
        assert stages >= groups  # no group waits for another's tile


@pytest.mark.parametrize(
    "dtype, result, order",
    [
        ("int8", "int8", 1),
        ("int8", "float16", 2),
        ("float16", "float16", 2),
        ("uint8", "float32", 4),
        ("float16", "float32", 4),
        ("float32", "float32", 4),
        ("float16", "int64", 8),
        ("float64", "float32", 8),
        ("int64", "int8", 8),
        ("float64", "bool", 8),
        ("float32", "float64", 8),
        ("bool", "complex128", 16),
        ("float64", "float64", 8),
        ("complex64", "complex128", 16),
        ("complex128", "complex128", 16),
    ],
)
def test_the_wider_of_value_and_result_fixes_the_order(dtype, result, order):
    made = request(view((99,), dtype), dtype=result)
    assert order_of(made) is TABLE[order]
    assert make_plan(made, H200).config.items == TABLE[order].items


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8"])
def test_bytes_that_widen_to_words_have_larger_tiles(dtype):
    made = request(view((99,), dtype), dtype="int64")
    assert order_of(made) == order_of(request(view((99,), dtype), dtype="float64")) == WIDENED
    assert constants(tiled(view((10**6,), dtype), dtype="int64"), "Vectors", "Warps") == (12, 8)


def test_of_several_values_and_results_the_widest_count():
    one, other = view((99,)), view((99,), "float64")
    assert order_of(request((view((99,), "int8"), one), op=state_of("int8", "float32"))).items == ORDER4.items
    assert order_of(request((one, other), op=state_of("float32", "float64"))).items == TABLE[8].items
    assert order_of(request((one, one), op=state_of("float64", "float32"))).items == TABLE[8].items


@pytest.mark.parametrize(
    "call, units, words",
    [
        # Words of the units' aggregates, of 32 bits each. Other blocks need nothing else. Rows of one unit need none.
        (dict(x=view((2**20,))), 128, 128),
        (dict(x=view((2**20,)), op="max"), 128, 128),
        (dict(x=view((3, 2**18))), 32, 3 * 32),
        (dict(x=view((3, 2**18 + 1))), 33, 3 * 33),
        (dict(x=view((2**20,), "float64")), 256, 2 * 256),
        (dict(x=view((2**20,), "complex64")), 256, 2 * 256),
        (dict(x=view((2**20,), "complex128")), 1024, 4 * 1024),
        (dict(x=view((2**20,), "float16")), 64, 64),  # sums are float32
        (dict(x=view((2**20,)), segments=("reset", view((2**20,), "bool"))), 128, 2 * 128),
        (dict(x=(view((2**20,)),) * 2, **RECURRENCE), 256, 2 * 256),
        (dict(x=view((2**24,))), 2048, 2048),
        (dict(x=view((5, 8192))), 1, 0),
        (dict(x=view((5, 8193))), 2, 5 * 2),
    ],
)
def test_the_workspace_of_tiles(call, units, words):
    made = tiled(**call)
    shape = call["x"].shape if hasattr(call["x"], "shape") else call["x"][0].shape
    assert made.config.grid and scalars(made) == (math.prod(shape[:-1]), units, words)
    assert made.workspace_words == words
    assert made.workspace_bytes == config.HEADER_BYTES + 8 * words


@pytest.mark.parametrize(
    "length, cluster, units, warps",
    [
        (1025, 1, 1, 2),
        (2049, 1, 1, 4),
        (4096, 1, 1, 4),
        (8192, 1, 1, 8),
        (8193, 2, 1, 8),
        (3 * 8192, 4, 1, 8),
        (2**17, 16, 1, 8),
        (2**17 + 1, 16, 2, 8),
        (26 * 8192, 16, 2, 8),
    ],
)
def test_a_row_of_at_most_26_units_is_a_clusters(length, cluster, units, warps):
    made = planned(view((length,)))
    assert (made.config.family, made.config.cluster, made.grid) == ("cluster", cluster, cluster)
    assert constants(made, "Vectors", "Warps", "Units") == (8, warps, units)
    assert made.config.block == units * warps * 32 and made.config.blocks_per_sm * made.config.block == 1024
    assert not made.config.grid and made.workspace_bytes == 0 and not staged(made)
    assert scalars(made) == (1, -(-length // 8192), 0)
    assert made.config.values[0].access == made.config.results[0].access == "Vector"


def test_a_cluster_takes_rows_that_it_can_take_all_at_once():
    def family(shape, target=H200, **call):
        made = make_plan(request(view(shape), **call), target)
        assert made.grid % made.config.cluster == 0 and made.config.block <= 1024
        if made.config.family == "cluster":
            assert made.grid == math.prod(shape[:-1]) * made.config.cluster
            assert made.grid <= target.sm_count * made.config.blocks_per_sm
        return made.config.family

    for length, most in [(1025, 16 * 132), (4096, 8 * 132), (8192, 4 * 132), (2**16, 66), (2**17, 33), (26 * 8192, 16)]:
        other = "tiles" if length > 2048 else "staged_rows"
        assert [family((rows, length)) for rows in (1, most, most + 1)] == ["cluster", "cluster", other]
    assert family((26 * 8192 + 1,)) == "tiles" and family((1024,)) == "rows"
    assert family((2, 1024), include_initial=True) == "cluster"
    assert family((26 * 8192,), include_initial=True) == "tiles"
    assert family((2, 4097)) == family((2, 4096), reverse=True) == "cluster"
    assert family((2**14,), Target(80, 108)) == family((2**14,), Target(89, 128)) == "tiles"


def test_a_cluster_is_no_larger_than_the_gpu_can_run_together():
    def shape(units, *gpu, **limits):
        made = make_plan(request(view((units * 8192,))), Target(*gpu, **limits))
        return (made.config.cluster, *constants(made, "Units")) if made.config.family == "cluster" else None

    assert shape(16, 100, 148) == (16, 1) and shape(26, 103, 148) == (16, 2)
    assert [shape(n, 120, 170) for n in (8, 9, 16, 17)] == [(8, 1), (8, 2), (8, 2), None]
    assert [shape(n, 90, 132, cluster=4) for n in (4, 5, 8, 9)] == [(4, 1), (4, 2), (4, 2), None]
    assert shape(1, 90, 132, cluster=0) is None
    # At least 2 of 12 SMs are in one part of the GPU; they have room for 8 blocks of 8 warps or 4 of 16.
    assert [shape(n, 90, 12) for n in (8, 9, 16)] == [(8, 1), None, None]


@pytest.mark.parametrize(
    "dtype, most",
    [
        ("uint8", 4),
        ("int32", 4),
        ("int64", 4),
        ("float32", 4),
        ("float16", 1),
        ("float64", 1),
        ("complex64", 1),
        ("complex128", 1),
    ],
)
def test_clusters_take_aligned_rows_of_a_few_units_in_turn(dtype, most):
    rows, order = 10_000, TABLE[DTYPES[dtype].itemsize]
    for units in (1, 2, 3, 4, 5):
        made = planned(view((rows, units * order.unit), dtype), dtype=dtype)
        if not 2 <= units <= most:
            assert made.config.family == "tiles"
            continue
        assert (made.config.family, made.config.cluster, made.grid) == ("cluster", units, rows * units)
        assert constants(made, "Vectors", "Warps", "Units") == (order.vectors, 8, 1)
        assert (made.config.block, made.config.blocks_per_sm) == (256, 4)
        assert scalars(made) == (rows, units, 0) and made.workspace_bytes == 0 and not staged(made)
        assert accesses(made)[:2] == ("Vector", "Vector")


ROWS = view((10_000, 16_384))  # two units
IN_TURN = {
    "plain": ({}, True),
    "no whole unit": ({"x": view((10_000, 8196))}, True),
    "one unit": ({"x": view((10_000, 8192))}, False),
    "five units": ({"x": view((10_000, 4 * 8192 + 4))}, False),
    "mirrored": ({"reverse": True}, True),
    "exclusive": ({"exclusive": True}, True),
    "a number before": ({"has_initial": True}, True),
    "max": ({"op": "max"}, True),
    "outer axes": ({"x": view((100, 100, 16_384))}, True),
    "odd rows": ({"x": view((10_000, 16_383))}, False),
    "misaligned": ({"x": view((10_000, 16_384), pointer=4)}, False),
    "a misaligned result": ({"out": view((10_000, 16_384), pointer=4)}, False),
    "every other": ({"x": view((10_000, 16_384), strides=(32_768, 2))}, False),
    "masked": ({"mask": view((10_000, 16_384), "bool")}, True),
    "a mask of one row": ({"mask": view((16_384,), "bool")}, True),
    "a misaligned mask": ({"mask": view((10_000, 16_384), "bool", pointer=1)}, False),
    "a mask of bytes": (
        {"x": view((10_000, 65_536), "uint8"), "dtype": "uint8", "mask": view((65_536,), "bool")},
        False,
    ),
    "a mask of words": ({"x": view((10_000, 8192), "int64"), "mask": view((8192,), "bool")}, False),
    "segments": ({"segments": ("reset", view((16_384,), "bool"))}, False),
    "offsets": ({"segments": ("offsets", view((7,), "int64"))}, False),
    "the initial value": ({"include_initial": True}, False),
    "a conversion": ({"dtype": "int32"}, False),
    "rounding exp and log": ({"op": "logaddexp"}, False),
    "several values": ({"x": (ROWS, ROWS), **RECURRENCE}, False),
    "a user's state": ({"x": (ROWS, ROWS), "op": state_of("float32", "float32")}, False),
    "before clusters": ({"target": Target(89, 128)}, False),
    "no clusters": ({"target": Target(90, 132, cluster=0)}, False),
    "too small clusters": ({"x": view((10_000, 3 * 8192)), "target": Target(90, 132, cluster=2)}, False),
    "small clusters": ({"target": Target(90, 132, cluster=2)}, True),
    "another GPU": ({"target": Target(120, 170, shared_bytes=100 * 1024)}, True),
}


@pytest.mark.parametrize("call, in_turn", IN_TURN.values(), ids=IN_TURN)
def test_clusters_take_plain_scans_alone_in_turn(call, in_turn):
    made = planned(**{"x": ROWS, **call})
    assert made.config.family == ("cluster" if in_turn else "tiles")
    assert not in_turn or (made.config.cluster, made.grid) == (2, 20_000)


def test_as_many_rows_as_fit_at_once_are_taken_side_by_side():
    """Then three units take four blocks, the last of which has nothing to do."""
    few, many = (planned(view((rows, 3 * 8192))) for rows in (132, 133))
    assert (few.config.cluster, few.grid) == (4, 528) and (many.config.cluster, many.grid) == (3, 399)


def test_blocks_stay_where_there_are_more_tiles_than_fit():
    made = tiled(view((2**28,)))
    assert made.config.block == 832 and made.config.blocks_per_sm == 1 and made.grid == 132
    assert tiled(view((5 * 8192,))).grid == 5
    assert make_plan(request(view((2**28,))), Target(90, 10)).grid == 10


@pytest.mark.parametrize("rows", [1, 2, 131, 132, 133, 10_000])
@pytest.mark.parametrize("length, units", [(5000, 1), (8192, 1), (32768, 4), (40_000, 5)])
def test_blocks_take_tiles_by_ticket_however_many_rows_there_are(length, units, rows):
    made = tiled(view((rows, length)))
    assert made.config.family == "tiles" and made.config.grid
    assert made.grid == min(rows * units, 132)
    assert made.workspace_bytes == config.HEADER_BYTES + 8 * made.workspace_words
    assert made.workspace_words == (rows * units if units > 1 else 0)


def test_the_carry_climbs_no_more_levels_than_the_row_has():
    units = [1, 2, 32, 33, 1024, 1025]
    assert [tiled(view((n * 8192,))).config.levels for n in units] == [0, 1, 1, 2, 2, 3]


def test_strips_of_any_length_share_a_kernel():
    """Only the look-back of tiles has levels: other kernels do not depend on the number of units of a line."""
    plans = [planned(view((n * 256, 4)), axis=0) for n in (20, 30, 40, 60)]
    assert {made.config.family for made in plans} == {"strips"} and len({made.config for made in plans}) == 1
    assert [made.units for made in plans] == [20, 30, 40, 60]


def test_tiles_are_loaded_in_bulk_where_they_are_aligned_or_dense():
    plans = {
        name: tiled(view(shape, **where))
        for name, (shape, where) in {
            "row": ((2**20,), {}),
            "rows": ((9, 10000), {}),
            "odd rows": ((9, 10001), {}),
            "misaligned": ((2**20,), {"pointer": 4}),
            "no whole tile": ((5000,), {}),
            "strided": ((2**20,), {"strides": (2,)}),
            "broadcast": ((9, 10000), {"strides": (1, 0)}),
        }.items()
    }
    assert all(made.config.family == "tiles" for made in plans.values())
    assert [name for name, made in plans.items() if staged(made)] == [
        "row",
        "rows",
        "odd rows",
        "misaligned",
        "no whole tile",
    ]
    assert all(str(made.config.values[0]).endswith(", true>") == bool(staged(made)) for made in plans.values())
    assert not staged(make_plan(request(view((9, 10001))), Target(80, 108)))
    old = make_plan(request(view((2**20,))), Target(80, 108))
    assert not staged(old) and constants(old, "Groups", "Stages", "FlagStages") == (3, 3, 1)
    # Each of three groups: two floats per warp. Each tile in flight: barriers, slot, carry and aggregate.
    assert old.config.shared_bytes == tiles.SHARED_REST + 3 * 2 * 8 * 4 + 6 * (48 + 16 + 4) + 3 * 16 + 16


def test_a_block_holds_the_tiles_of_its_groups_and_as_many_on_their_way_as_fit():
    tile, on_its_way, group = 8192 * 4, 48 + 16 + 4, 2 * 8 * 4
    made = tiled(view((2**20,)))
    assert constants(made, "Groups", "Stages", "FlagStages") == (3, 7, 1)  # 4 tiles of 32 KiB ahead
    assert made.config.shared_bytes == tiles.SHARED_REST + 3 * group + 10 * on_its_way + 7 * tile + 16  # no flags: 16
    masked = tiled(view((2**20,)), mask=view((2**20,), "bool"))
    assert constants(masked, "Groups", "Stages", "FlagStages") == (3, 6, 2)
    assert masked.config.shared_bytes == tiles.SHARED_REST + 3 * group + 9 * on_its_way + 6 * tile + 2 * 8192
    shifted = tiled(view((2**20,), pointer=4))
    assert constants(shifted, "Groups", "Stages") == (3, 7)
    assert shifted.config.shared_bytes == made.config.shared_bytes + 7 * 32  # a sector per stage
    half = tiled(view((5, 4096)))
    assert constants(half, "Warps", "Groups", "Stages") == (4, 6, 14)  # 8 tiles of 16 KiB ahead


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "float64"])
@pytest.mark.parametrize("key", ["int8", "int32", "int64"])
def test_flags_are_staged_where_they_leave_a_tile_for_each_group(dtype, key):
    """A stage of flags has the size of a stage of values times the ratio of the item sizes; there are two."""
    length = 2**20
    call = dict(segments=("keys", view((length,), key)), mask=view((length,), "bool"))
    made = tiled(view((length,), dtype), dtype=dtype, **call)
    room = 227 - 3 * 32 - 1  # KiB, beside the tiles of three groups and everything else
    flags = 2 * 32 * (DTYPES[key].itemsize + 1) / DTYPES[dtype].itemsize
    assert staged(made) == ((0, 2, 3) if flags < room else (0,))
    assert constants(made, "FlagStages") == (2 if flags < room else 1,)
    assert constants(made, "Stages") >= constants(made, "Groups")
    assert made.config.shared_bytes + SHARED_RESERVED <= H200.shared_bytes


@pytest.mark.parametrize(
    "call, expected, numbers",
    [
        # The mask is array 2; if its rows are aligned to 16 bytes, it is staged, too.
        (dict(x=view((9, 10001))), ("Shifted", "Shifted"), (0,)),
        (dict(x=view((9, 10001)), reverse=True), ("ShiftedReversed", "ShiftedReversed"), (0,)),
        (dict(x=view((9, 4097))), ("Shifted", "Shifted"), (0,)),  # less than a tile
        (dict(x=view((9, 5000))), ("Vector", "Vector"), (0,)),  # masks of 5000 bytes begin at multiples of 8
        (dict(x=view((9, 5008))), ("Vector", "Vector"), (0, 2)),
        (dict(x=view((9, 10000)), reverse=True), ("Reversed", "Reversed"), (0, 2)),
        (dict(x=view((9, 10000), strides=(10001, 1))), ("Shifted", "Vector"), (0, 2)),
        (dict(x=view((9, 10000), strides=(10004, -1), pointer=9999 * 4)), ("Reversed", "Vector"), (0, 2)),
        (dict(x=view((9, 10000), strides=(10000, -1), pointer=10000 * 4)), ("ShiftedReversed", "Vector"), (0, 2)),
        (dict(x=view((9, 10001), strides=(10004, 1))), ("Vector", "Shifted"), (0,)),
        (dict(x=view((9, 10000)), out=view((9, 10000), pointer=4)), ("Vector", "Shifted"), (0, 2)),
        (dict(x=view((9, 10000)), out=view((9, 10000), strides=(20000, 2))), ("Vector", "Strided"), (0, 2)),
        (dict(x=view((9, 10000), strides=(20000, 2))), ("Strided", "Vector"), (2,)),
        # Results are stored from registers, whatever the access of the values.
        (dict(x=view((9, 10001), strides=(20002, 2))), ("Strided", "Shifted"), ()),
        (dict(x=view((9, 10001), strides=(1, 0))), ("Broadcast", "Shifted"), ()),
        (dict(x=view((9, 10001)), dtype="float64"), ("Shifted", "Shifted"), (0,)),
        (
            dict(x=view((9, 10001)), out=view((9, 10001), strides=(10001, -1), pointer=10000 * 4)),
            ("Shifted", "ShiftedReversed"),
            (0,),
        ),
        (dict(x=view((2**20,), "float32", pointer=8), dtype="float64"), ("Shifted", "Vector"), (0, 2)),  # 8 of 16 bytes
        (dict(x=view((9, 10001), "complex128")), ("Vector", "Vector"), (0,)),
    ],
)
def test_rows_that_are_dense_may_begin_anywhere(call, expected, numbers):
    mask = view(call["x"].shape, "bool")
    made = tiled(**call, mask=mask)
    assert accesses(made)[:2] == expected and staged(made) == numbers
    if 2 in numbers:
        assert accesses(made)[2] in ("Vector", "Reversed")
    old = make_plan(request(**call), Target(80, 108))
    assert not staged(old) and "Shifted" not in accesses(old)[0] and accesses(old)[1] == expected[1]


def test_values_are_shifted_all_or_none():
    a, b, odd = view((9, 10000)), view((9, 10000), pointer=4), view((9, 10000), strides=(20000, 2))
    first = view((9, 1), strides=(3, 1), pointer=4)
    plans = [tiled(pair, **RECURRENCE) for pair in ((a, a), (a, b), (b, a), (b, odd), (first, b))]
    assert [accesses(made)[:2] for made in plans] == [
        ("Vector", "Vector"),
        ("Shifted", "Shifted"),
        ("Shifted", "Shifted"),
        ("Strided", "Strided"),
        ("Broadcast", "Shifted"),
    ]
    assert [staged(made) for made in plans] == [(0, 1), (0, 1), (0, 1), (), (1,)]
    assert [constants(made, "Stages") for made in plans[:3]] == [(7,), (7,), (7,)]


def test_a_plan_knows_where_its_arrays_end():
    nothing = (0, 0)

    def ends(made, *expected):
        assert spans(made) == [*expected, *[nothing] * (len(spans(made)) - len(expected))]

    ends(planned(view((9, 10001))), *[(0, 9 * 10001 * 4)] * 2)
    ends(planned(view((9, 10001)), reverse=True), *[(-40000, 8 * 40004 + 4)] * 2)
    ends(planned(view((9, 1000), strides=(-2000, -2))), (-8 * 8000 - 999 * 8, 4), (0, 9 * 4000))
    ends(planned(view((9, 10000)), include_initial=True), (0, 9 * 40000), (0, 9 * 40004))
    pair = planned((view((9, 1), strides=(3, 1)), view((9, 10000))), **RECURRENCE)
    ends(pair, (0, 100), (0, 9 * 40000), (0, 9 * 40000))
    masked = planned(view((9, 10000)), mask=view((10000,), "bool"), segments=("keys", view((9, 10000), "int64")))
    ends(masked, (0, 9 * 40000), (0, 9 * 40000), (0, 10000), (0, 9 * 80000))
    offsets = planned(view((9, 10000)), segments=("offsets", view((7,), "int64")))
    ends(offsets, (0, 9 * 40000), (0, 9 * 40000))


def test_no_block_asks_for_more_shared_memory_than_an_sm_has():
    for dtype, masked in itertools.product(DTYPES, (False, True)):
        mask = view((2**20,), "bool") if masked else None
        config = tiled(view((2**20,), dtype), op="max" if "complex" not in dtype else "add", mask=mask).config
        taken = config.blocks_per_sm * (config.shared_bytes + SHARED_RESERVED)
        assert taken <= H200.shared_bytes, (dtype, masked)
    small = Target(120, 170, shared_bytes=100 * 1024, cluster=0)
    for dtype, segments in itertools.product(DTYPES, (None, "keys", "offsets")):
        for length in (1500, 9000, 2**20):
            array = view((3, length), "int64") if segments == "keys" else view((9,), "int64")
            call = dict(segments=segments and (segments, array), mask=view((3, length), "bool"))
            made = make_plan(request(view((3, length), dtype), op="mul", **call), small)
            assert constants(made, "Stages")[0] > 0 if made.config.family == "tiles" else length == 1500
            taken = made.config.blocks_per_sm * (made.config.shared_bytes + SHARED_RESERVED)
            assert taken <= small.shared_bytes, (dtype, segments, length)


def test_a_gpu_array_begins_at_a_multiple_of_its_item_size():
    for name in ("x", "out"):
        arrays = {"x": view((100,)), "out": view((100,), pointer=4096), name: view((100,), pointer=4097)}
        with pytest.raises(ScanValueError, match=rf"^{name} begins at address 0x1001, .* item size \(4\)"):
            planned(**arrays)
    planned(view((100,)), mask=view((100,), "bool", pointer=4097), segments=("reset", view((100,), "bool", pointer=1)))
    x, odd = view((100,)), view((100,), pointer=4098)
    for name, call in {
        "a": dict(x=(odd, x), op=LINEAR_RECURRENCE),
        "b": dict(x=(x, odd), op=LINEAR_RECURRENCE),
        r"x\.f1": dict(x=(x, odd), op=state_of("float32", "float32")),
        r"out\[1\]": dict(x=(x, x), op=state_of("float32", "float32"), out=(x, odd)),
        "keys": dict(x=x, segments=("keys", odd)),
        "offsets": dict(x=x, segments=("offsets", view((2,), "int32", pointer=4098))),
        "initial": dict(x=(x, x), op=LINEAR_RECURRENCE, row_initial=view((), pointer=4098)),
    }.items():
        with pytest.raises(ScanValueError, match=rf"^{name} begins at address 0x1002, .* item size \(4\)"):
            planned(**call)


def test_tickets_are_taken_ahead_where_tiles_wait_for_loads():
    x, flags = view((2**26,)), view((2**26,), "bool")
    calls = {
        "plain": {},
        "masked": {"mask": flags},
        "a mask that is not staged": {"mask": view((2**26,), "bool", pointer=4)},
        "reset": {"segments": ("reset", flags)},
        "offsets": {"segments": ("offsets", view((7,), "int64"))},
        "keys": {"segments": ("keys", view((2**26,), "int64"))},
    }
    found = {name: dict(planned(x, **call).config.constants)["TakesAhead"] for name, call in calls.items()}
    assert [name for name, takes in found.items() if takes] == ["plain", "masked", "reset"]
    wide = planned(view((2**26,), "complex128"))
    assert not dict(wide.config.constants)["TakesAhead"]


def test_two_warps_look_back_far_where_that_takes_longer_than_loads():
    """Wide states, and exclusive scans, through more than a section of 1,024 tiles, of 16 or 32 KiB."""

    def look_back_warps(shape, dtype="float32", **call):
        made = planned(view(shape, dtype), **call)
        warps, groups, found = constants(made, "Warps", "Groups", "LookBackWarps")
        assert made.config.family == "tiles" and made.config.block == (warps * groups + found + 1) * 32
        return found

    far, near = (1100 * 8192,), (1000 * 8192,)
    assert look_back_warps(far) == 1
    assert [look_back_warps(shape, exclusive=True) for shape in (far, near)] == [2, 1]
    assert [look_back_warps(shape, include_initial=True) for shape in (far, near)] == [2, 1]
    assert [look_back_warps(shape, "complex128") for shape in (far, (2**18,))] == [2, 1]
    assert look_back_warps((2000, 5000)) == 0


def test_more_tiles_than_tickets_are_refused():
    with pytest.raises(ScanValueError, match="x is too large"):
        planned(view((2**46,)))
    with pytest.raises(ScanValueError, match="x is too large"):
        planned(view((2**31, 8193)))
    with pytest.raises(ScanValueError, match=r"takes 4294967296 tiles, and at most 4293918720 are possible"):
        planned(view((2**32, 8192)))
    assert planned(view((2**31 - 2**19, 8193))).grid == 132  # exactly as many tiles as possible
    assert planned(view((2**25, 32768, 64)), axis=1).config.grid is False  # a block's own strips take no tickets


def test_axes_that_one_stride_walks_are_merged():
    axis, column, batch = dimensions(planned(view((4, 5, 6))))
    assert axis == dim(6, 4, 4) and column == ONE and batch == [dim(20, 24, 24)]
    axis, column, batch = dimensions(planned(view((4, 5, 6)), axis=1))
    assert axis == dim(5, 24, 24) and column == dim(6, 4, 4) and batch == [dim(4, 120, 120)]
    axis, column, batch = dimensions(planned(view((4, 5, 6)), axis=0))
    assert axis == dim(4, 120, 120) and column == dim(30, 4, 4) and batch == [ONE]


def test_axes_are_merged_only_where_every_array_allows_it():
    gap = view((4, 5, 6), strides=(60, 6, 1))  # every other slab
    assert dimensions(planned(gap))[2] == [dim(5, 24, 24), dim(4, 240, 120)]
    masked = planned(view((4, 5, 6)), mask=view((5, 6), "bool"))
    assert dimensions(masked)[2] == [dim(5, 24, 24, 6), dim(4, 120, 120)]
    whole = planned(view((4, 5, 6)), mask=view((4, 5, 6), "bool"))
    assert dimensions(whole)[2] == [dim(20, 24, 24, 6)]
    broadcast = planned(view((4, 5, 6)), mask=view((6,), "bool"))
    assert dimensions(broadcast) == (dim(6, 4, 4, 1), ONE, [dim(20, 24, 24)])


def test_axes_of_size_one_have_no_say():
    plain = planned(view((7, 900)))
    odd = planned(view((1, 7, 1, 900, 1), strides=(12345, 900, 1, 1, 777)), axis=3)
    assert plain == odd
    along = planned(view((1, 50)), axis=0)
    assert along.config.family == "rows" and dimensions(along)[0] == dim(1, 200, 200)


def test_transposed_arrays_scan_their_contiguous_axis_in_rows():
    fortran = view((4, 5, 6), strides=(1, 4, 20))
    made = planned(fortran, axis=0)
    assert made.config.family == "rows" and dimensions(made) == (dim(4, 4, 4), ONE, [dim(30, 16, 16)])
    made = planned(fortran, axis=2)
    assert made.config.family == "panels" and dimensions(made)[1] == dim(20, 4, 4)
    assert order_of(request(fortran, axis=2)) == Order(8, 1, 1, paired=True)


def test_an_axis_is_contiguous_in_results_and_values_or_it_is_one_of_panels():
    out = view((40, 50), strides=(1, 40))
    assert planned(view((40, 50)), axis=1, out=out).config.family == "panels"
    assert planned(view((40, 50)), axis=0, out=out).config.family == "panels"
    assert order_of(request(view((40, 50)), axis=0, out=out)) is COLUMNS
    gaps = view((40, 50), strides=(200, 2))
    assert planned(gaps, axis=1, out=view((40, 50))).config.family == "rows"
    assert order_of(request(gaps, axis=1, out=view((40, 50)))) is ORDER4


def test_a_reversed_scan_runs_along_negative_strides():
    mask = view((1024,), "bool")
    made = planned(view((1024,)), reverse=True, mask=mask)
    assert dimensions(made)[0] == dim(1024, -4, -4, -1)
    assert made.offsets == (4092, 4092, 1023, 0, 0, 0)
    assert accesses(made) == ("Reversed", "Reversed", "Reversed", *NONE)
    twice = planned(view((1024,), strides=(-1,), pointer=1023 * 4), reverse=True)
    assert dimensions(twice)[0] == dim(1024, 4, -4) and twice.offsets == (-4092, 4092, 0, 0, 0, 0)
    assert accesses(twice)[:2] == ("Vector", "Reversed")


@pytest.mark.parametrize(
    "call, expected",
    [
        (dict(x=view((1000,))), ("Vector", "Vector", "None")),
        (dict(x=view((1000,), pointer=4)), ("Shifted", "Shifted", "None")),  # all pass through shared memory
        (dict(x=view((1000,)), out=view((1000,), pointer=8)), ("Shifted", "Shifted", "None")),
        (dict(x=view((1000,)), out=view((1000,), strides=(2,))), ("Vector", "Strided", "None")),
        (dict(x=view((3, 1000))), ("Vector", "Vector", "None")),
        (dict(x=view((3, 1001))), ("Shifted", "Shifted", "None")),
        (dict(x=view((3, 1001), "bfloat16")), ("Shifted", "Shifted", "None")),
        (dict(x=view((3, 1001), strides=(1004, 1))), ("Shifted", "Shifted", "None")),
        (dict(x=view((1000,), strides=(2,))), ("Strided", "Vector", "None")),
        (dict(x=view((1000,), strides=(0,))), ("Broadcast", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=999 * 4)), ("Reversed", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=1000 * 4)), ("ShiftedReversed", "Shifted", "None")),
        (dict(x=view((1000,)), reverse=True), ("Reversed", "Reversed", "None")),
        (dict(x=view((1001,)), reverse=True), ("ShiftedReversed", "ShiftedReversed", "None")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=4)), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=2)), ("Shifted", "Shifted", "Shifted")),
        (dict(x=view((1000,), strides=(2,)), mask=view((1000,), "bool", pointer=2)), ("Strided", "Vector", "Strided")),
        (dict(x=view((9, 1001), strides=(2002, 2))), ("Strided", "Strided", "None")),
        (dict(x=view((1000,)), mask=view((1,), "bool")), ("Vector", "Vector", "Broadcast")),
        (dict(x=view((8, 1000)), mask=view((1000,), "bool")), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,), "int8"), dtype="int32"), ("Vector", "Vector", "None")),
        (dict(x=view((9, 1000), "int8"), dtype="int8"), ("Shifted", "Shifted", "None")),
        (dict(x=view((9, 400), "int64"), dtype="int8"), ("Vector", "Vector", "None")),
        (dict(x=view((9, 401), "int64", strides=(802, 2)), dtype="int8"), ("Strided", "Strided", "None")),  # 2 bytes
    ],
)
def test_vectors_are_used_where_all_of_them_are_aligned(call, expected):
    assert accesses(make_plan(request(**call), Target(80, 108))) == (*expected, *NONE)  # no bulk copies


@pytest.mark.parametrize(
    ("length", "dtype", "rows", "expected"),
    [
        (4097, "bfloat16", 20_000, (2, 2)),
        (4097, "bfloat16", 5000, (2, 1)),
        (4097, "float32", 20_000, (1, 2)),
        (2049, "float32", 20_000, (2, 2)),
        (8193, "float32", 20_000, (1, 1)),
    ],
)
def test_short_rows_that_begin_anywhere_keep_two_loaders_busy(length, dtype, rows, expected):
    """The number of producers, and of rows per ticket."""
    constants = dict(make_plan(request(view((rows, length), dtype), axis=1), Target(90, 132)).config.constants)
    assert (constants["Producers"], constants["Batch"]) == expected
    assert constants["Stages"] % constants["Producers"] == constants["Groups"] % constants["Producers"] == 0


def test_which_columns_are_strips():
    rows = 2**16
    families = {
        name: planned(x, axis=0).config.family
        for name, x in {
            "pairs": view((rows, 2)),
            "merged": view((rows, 2, 3)),
            "15": view((rows, 15)),
            "16": view((rows, 16)),
            "17": view((rows, 17)),
            "33": view((rows, 33)),
            "36": view((rows, 36)),
            "padded": view((rows, 2), strides=(3, 1)),
            "padded by 16 bytes": view((rows, 64), strides=(68, 1)),
            "swapped": view((rows, 2), strides=(2, -1)),
            "misaligned": view((rows, 64), pointer=4),
            "misaligned pairs": view((rows, 2), pointer=4),
            "wide": view((rows, 321)),
            "padded by 4 bytes": view((rows, 64), strides=(65, 1)),
            "short": view((4095, 2)),
            "whole": view((4096, 2)),
            "short strips": view((255, 64)),
        }.items()
    }
    strips = ["pairs", "merged", "15", "16", "padded by 16 bytes", "misaligned", "misaligned pairs", "wide"]
    strips += ["padded by 4 bytes", "whole"]
    assert [name for name, family in families.items() if family == "strips"] == strips
    assert [name for name, family in families.items() if family == "whole_rows"] == ["17", "33", "36"]
    assert make_plan(request(view((rows, 2)), axis=0), Target(80, 132)).config.family == "panels"
    assert planned(view((rows, 2)), axis=0, mask=view((2,), "bool")).config.family == "panels"
    assert planned(view((rows, 2)), axis=0, include_initial=True).config.family == "strips"


def test_blocks_share_strips_of_rows_that_begin_anywhere():
    """Panels are faster where each block has strips of its own, or strips are many and short. So they are for bytes, if
    not even 4 bytes of rows are aligned."""

    def strips(shape, dtype="float32", result=None, **call):
        made = planned(view(shape, dtype), axis=0, dtype=result or dtype, **call)
        names = "Aligned", "Columns", "Halo", "Rows"
        return constants(made, *names) if made.config.family == "strips" else made.config.family

    assert strips((2**16, 512)) == (16, 32, 0, 256)
    assert strips((2**16, 516)) == (16, 32, 4, 256) and strips((2**16, 513)) == (4, 32, 7, 256)
    assert strips((2**16, 514), "int16") == (4, 64, 14, 256) and strips((2**16, 515), "int16") == (1, 64, 15, 256)
    assert strips((2**16, 515), "float64") == (4, 32, 0, 128) and strips((2**16, 515), "complex64") == (4, 32, 0, 128)
    assert strips((2**16, 515), "bool", "int64") == (1, 32, 3, 128)

    assert strips((4 * 256, 132 * 32 + 1)) == (4, 32, 7, 256) and strips((4 * 256 - 1, 132 * 32 + 1)) == "panels"
    assert strips((2**16, 132 * 64 * 6 - 3)) == "panels"
    assert strips((2**16, 132 * 32 - 3)) == (4, 32, 7, 256)  # panels are twice as wide: blocks would share them
    assert strips((2**16, 515), "uint8") == "panels"
    flags = view((2**16, 515), "bool")
    assert strips((2**16, 515), "bfloat16", mask=flags) == (1, 64, 0, 256)
    assert strips((2**16, 515), "float16", segments=("reset", flags)) == (1, 64, 0, 256)
    assert strips((2**16, 515), "bfloat16", op="logaddexp") == (1, 64, 15, 256)


def test_tiles_without_gaps_move_in_bulk_from_anywhere():
    """They move by words where threads read several rows of a word, in short strips, where arrays lie along the axis,
    and where results cannot take the place of values."""

    def aligned(shape, of="float32", **call):
        made = planned(view(shape, of), axis=1, **call)
        assert made.config.family == "strips"
        return constants(made, "Flat", "Aligned", "InPlace")

    assert aligned((33, 100001, 3)) == (1, 1, 1) and aligned((33, 100000, 3)) == (1, 16, 1)
    assert aligned((33, 8 * 1024, 5)) == (1, 16, 1) and aligned((33, 8 * 1024 + 1, 5)) == (1, 1, 1)
    assert aligned((33, 8 * 1024 - 1, 5)) == (1, 4, 1)
    assert aligned((33, 100001, 2)) == (1, 1, 1) and aligned((33, 100001, 2), "bfloat16") == (1, 4, 1)
    assert aligned((33, 100001, 4), "bfloat16") == (1, 1, 1) and aligned((33, 100002, 6), "bfloat16") == (1, 1, 1)
    assert aligned((33, 100001, 3), out=view((33, 100001, 3), pointer=4)) == (1, 4, 1)
    assert aligned((33, 100002, 3), "bfloat16", dtype="float32") == (1, 4, 0)


def test_threads_take_whole_rows_that_fit_in_registers():
    def pieces(columns, of="float32", **call):
        made = planned(view((2**20, columns), of), axis=0, dtype=of, **call)
        return constants(made, "Columns", "Across", "Groups")

    assert pieces(3) == (3, 3, 1) and pieces(5) == (5, 1, 2) and pieces(4) == (4, 4, 1)
    assert pieces(5, "bfloat16") == (5, 5, 2) and pieces(7, "float16") == (7, 7, 2)
    assert pieces(9, "float16") == (9, 1, 2)  # there would be pieces for half of the lanes
    assert pieces(12, "uint8") == (3, 3, 1) and pieces(6, "int16", mask=view((2**20, 6), "bool")) == (6, 6, 2)
    assert pieces(3, "float64") == (3, 1, 2)
    assert constants(planned(view((2**20, 3)), axis=0, dtype="float64"), "Across", "InPlace") == (1, 0)


def test_wide_states_overlap_where_that_costs_little_or_panels_are_the_choice():
    """To scan 7 of 32 columns twice costs more than to write parts of sectors; to scan 4 of 64 twice costs less."""

    def halo(columns, **call):
        made = planned(view((2**16, columns)), axis=0, op="logaddexp", **call)
        return constants(made, "Aligned", "Halo")

    assert halo(516) == (16, 4) and halo(513) == (4, 0)


def test_strips_that_overlap_store_whole_sectors():
    """The halo holds what a sector that begins in another column has beyond it. There are few strips more."""
    seen = set()
    for columns, (dtype, result) in itertools.product(
        range(100, 800, 3), [("float32", "float32"), ("bfloat16", "bfloat16"), ("bool", "int64"), ("int16", "int32")]
    ):
        made = planned(view((2**16, columns), dtype), axis=0, dtype=result)
        if made.config.family != "strips":
            continue
        aligned, width, halo = constants(made, "Aligned", "Columns", "Halo")
        seen.add((dtype, aligned, halo))
        if halo == 0:
            continue
        size, own = DTYPES[result].itemsize, width - halo
        assert halo * size >= 32 - max(aligned, size) and own * DTYPES[dtype].itemsize % aligned == 0
        assert -(-columns // own) <= 1.45 * -(-columns // width)
    assert {("float32", 16, 4), ("float32", 4, 7), ("bfloat16", 4, 14), ("bfloat16", 1, 15)} <= seen
    assert {("float32", 4, 0), ("bool", 1, 3), ("int16", 1, 7)} <= seen


@pytest.mark.parametrize("kibibytes", [48, 64, 99, 228])
def test_strips_of_single_bytes_and_wide_results_do_not_overlap_entirely(kibibytes):
    """Narrow tiles may have fewer columns than a piece of bytes."""
    target = Target(90, 132, kibibytes * 1024)
    for rows, columns in itertools.product([100, 200, 1000], [20, 32, 48, 112]):
        for gap, (op, dtype) in itertools.product([0, 2, 4], [(INDEXED["max", "first"], "int8"), ("add", "int64")]):
            x = view((rows, columns), "int8", (columns + gap, 1))
            made = planned(x, op=op, axis=0, dtype=dtype, target=target)
            if made.config.family == "strips":
                width, halo = constants(made, "Columns", "Halo")
                assert 2 * halo <= width


def test_strips_of_8_byte_items_are_parts_of_units():
    """A block takes one unit at a time, or two if there are many, and stages for two times as many."""
    found = []
    for rows, dtype in [(2**13, "int64"), (2**16, "int64"), (2**16, "float32"), (2**18, "complex64")]:
        made = planned(view((rows, 256), dtype), axis=0, dtype=dtype)
        found.append((made.config.family, *constants(made, "Columns", "Rows", "Batch")))
    assert found == [
        ("strips", 32, 128, 2),
        ("strips", 32, 128, 2),  # of 6 stages
        ("strips", 32, 256, 2),
        ("strips", 32, 128, 2),
    ]


def test_blocks_share_strips_of_wide_states_but_for_several_results():
    x = view((2**14, 1920), "float64")
    made = planned(x, op="logaddexp", axis=0, dtype="float64")
    assert made.config.family == "strips" and made.config.grid
    assert planned(x, op=INDEXED["max", "first"], axis=0, dtype="float64").config.family == "panels"
    assert planned(view((2**14, 1920)), op=INDEXED["max", "first"], axis=0).config.family == "strips"


def test_a_store_warp_has_whole_rows_of_a_strip():
    """Also of low tiles, with little shared memory. Rows of narrow results are whole vectors."""
    little, seen = Target(120, 170, shared_bytes=100 * 1024), set()
    for columns, (dtype, result) in itertools.product(
        range(16, 700, 16), [("float64", "int8"), ("int64", "int8"), ("float64", "float16"), ("float32", "uint8")]
    ):
        made = planned(view((2**13, columns), dtype), axis=0, dtype=result, target=little)
        if made.config.family != "strips" or constants(made, "Flat") != (0,):
            continue
        taken, rows, warps, depth, aligned = constants(made, "Columns", "Rows", "Warps", "Depth", "Aligned")
        seen.add(rows)
        assert constants(made, "WarpsAbreast") == (1,) and warps * COLUMNS.items * depth <= rows
        assert taken * DTYPES[result].itemsize % aligned == 0
    assert min(seen) < COLUMNS.unit


@pytest.mark.parametrize(
    "value, call, depth",
    [
        (view((2**18, 1024)), {}, 4),
        (view((2**18, 1025), "float16"), {}, 2),
        (view((2**18, 1026), "float16"), {}, 4),
        (view((2**18, 1026)), {"out": view((2**18, 1026), strides=(1, 2**18))}, 1),
        (view((2**18, 1026), strides=(1, 2**18)), {"out": view((2**18, 1026))}, 4),
        (view((2**18, 1026)), {"segments": ("reset", view((2**18, 1026), "bool"))}, 2),
        (tuple(view((2**18, 1026)) for _ in range(4)), {"op": MATRIX_PRODUCT.operator()}, 1),
    ],
)
def test_runs_of_strips_are_as_long_as_registers_and_banks_allow(value, call, depth):
    made = planned(value, axis=0, **call)
    assert made.config.family == "strips" and constants(made, "Depth") == (depth,)


def test_a_tile_of_a_few_columns_is_units_that_divide_a_section():
    for columns, dtype in itertools.product(range(2, 33), ("int16", "float32", "float64")):
        made = planned(view((2, 2**13, columns), dtype), axis=1, dtype=dtype)
        constants = dict(made.config.constants)
        assert made.config.family == "strips" and made.config.grid and constants["Flat"]
        assert constants["Columns"] == columns and 16 * 256 % constants["Rows"] == 0
        batches = 2**13 // constants["Rows"] // constants["Batch"]  # batches of a strip
        assert made.grid == min(2 * batches, 132)
        assert made.config.shared_bytes + SHARED_RESERVED <= H200.shared_bytes
        carry = {"int16": 1, "float32": 2, "float64": 2}[dtype]
        span = constants["LookBackWarps"] * constants["Looks"] << (32 // columns).bit_length() - 1  # batches
        section = 4096 * 256 // constants["Rows"] // constants["Batch"]
        assert (span**2 <= section) == (columns > 4)
        spans = batches // span if columns > 4 else 0
        totals = [whole_lines(2 * number * columns * carry) for number in (batches, spans)]
        assert batches < section  # and nodes of level 2 have as many batches, or more
        assert made.workspace_words == 16 + sum(totals)  # counters of strips precede them


def test_totals_with_positions_have_as_many_words_as_positions_need():
    made = planned(view((2**20, 2)), axis=0, op=INDEXED["max", "first"])
    constants = dict(made.config.constants)
    batches = 2**20 // constants["Rows"] // constants["Batch"]
    assert made.config.family == "strips" and made.config.index == "uint32" and made.config.carry_bytes == 8
    assert made.workspace_words == 16 + whole_lines(batches * 2 * 2)


@pytest.mark.parametrize(("dtype", "rows"), [("int8", 2048), ("int64", 1024)])
def test_a_tile_of_strips_holds_the_widest_elements(dtype, rows):
    assert constants(planned(view((2**24, 3), "int8"), axis=0, dtype=dtype), "Rows") == (rows,)


@pytest.mark.parametrize(
    ("dtype", "columns", "given", "family"),
    [
        ("float32", 6016, "mask", "strips"),
        ("float32", 9664, "mask", "panels"),  # two strips per block and more
        ("float32", 9664, "reset", "strips"),
        ("float32", 12544, "reset", "strips"),  # blocks could have strips of their own
        ("int16", 25088, "reset", "strips"),
        ("int16", 25088, "mask", "panels"),
        ("int64", 12544, "reset", "panels"),  # wide ones are panels then
    ],
)
def test_blocks_share_many_strips_with_segments_but_not_with_a_mask(dtype, columns, given, family):
    flags = view((2**14, columns), "bool")
    beside = {"mask": flags} if given == "mask" else {"segments": (given, flags)}
    assert planned(view(flags.shape, dtype), axis=0, dtype=dtype, **beside).config.family == family


def test_strips_of_large_arrays_are_a_blocks_own_on_lines_or_if_they_have_whole_rows():
    """Blocks drift apart, and a line between two of their strips would move twice."""

    def family(steps, columns, gap):
        made = planned(view((264, steps, columns), strides=(steps * (columns + gap), columns + gap, 1)), axis=1)
        assert not made.config.grid
        return made.config.family

    assert family(2**12, 128, gap=32) == family(2**8, 128, gap=8) == family(2**12, 64, gap=8) == "strips"
    assert family(2**12, 128, gap=8) == "panels"
    # The next strip begins on the line on which one ends.
    assert planned(view((2**12, 264, 60), strides=(264 * 68, 68, 1)), axis=0).config.family == "panels"


def test_blocks_share_strips_that_share_lines_unless_panels_leave_few_threads_idle():
    def planned_of(steps, columns):
        return planned(view((steps, columns), "bfloat16"), axis=0, dtype="bfloat16").config

    on_lines, others = planned_of(2**15, 8192), planned_of(2**15, 8200)
    assert (on_lines.family, on_lines.grid) == ("strips", False)
    assert (others.family, others.grid) == ("strips", True)
    assert planned_of(2**12, 15368).family == "strips"  # panels of 117 columns, of 144 that threads hold
    assert planned_of(2**12, 32776).family == "panels"  # of 249 columns, of 288
    assert planned_of(500, 252888).family == "panels"  # few tiles for each strip


def test_strips_are_a_blocks_own_where_they_are_enough():
    own, shared = planned(view((2**15, 2**15)), axis=0), planned(view((2**16, 256)), axis=0)
    assert (own.config.grid, own.grid, own.workspace_words) == (False, 132, 0)
    assert (shared.config.grid, shared.grid) == (True, 132)
    assert dict(own.config.constants)["Columns"] == 64 and dict(shared.config.constants)["Columns"] == 32
    batches, spans = 128, 8  # of two units, and of 16 batches: there are too few for nodes of 256 of them
    assert shared.workspace_words == 16 + 256 * 2 * (batches + spans)  # counters of strips precede them


@pytest.mark.parametrize(("dtype", "columns"), [("float32", 2), ("float32", 4), ("float16", 8), ("int8", 16)])
def test_panels_take_strips_whose_last_tiles_are_mostly_empty_if_there_are_enough_for_all_blocks(dtype, columns):
    def family(batch, steps):
        return planned(view((batch, steps, columns), dtype), axis=1, op="max", dtype=dtype).config.family

    (rows,) = constants(planned(view((2**18, columns), dtype), axis=0, op="max", dtype=dtype), "Rows")
    assert {family(batch, 2 * rows + 16) for batch in (132, 264)} == {"panels"}
    assert "panels" not in {family(batch, 2 * rows + 16) for batch in (100, 140)}
    assert "panels" not in {family(batch, steps) for batch in (100, 132, 264) for steps in (2 * rows, 4 * rows + 16)}


@pytest.mark.parametrize(
    ("dtype", "family"),
    [("float64", "strips"), ("complex64", "panels"), ("complex128", "panels"), ("float32", "strips")],
)
def test_panels_take_shared_strips_whose_carries_fill_the_registers(dtype, family):
    shared = planned(of_shape((2**20, 4), dtype, dtype), axis=0, **RECURRENCE)
    assert (shared.config.family, shared.config.grid) == (family, True)
    own = planned(of_shape((1000, 2**15), dtype, dtype), axis=0, **RECURRENCE)
    assert own.config.family == "strips" and not own.config.grid


@pytest.mark.parametrize(
    ("dtype", "columns", "family"), [("int64", 9, "strips"), ("int64", 160, "panels"), ("int16", 160, "strips")]
)
def test_panels_take_positions_of_wide_values_in_more_than_a_few_columns(dtype, columns, family):
    made = planned(view((2**20, columns), dtype), axis=0, op=INDEXED["max", "first"], dtype=dtype)
    assert made.config.family == family and made.config.grid


def test_narrow_rows_are_whole_wherever_strips_are_slower_or_cannot_be():
    families = {
        name: planned(x, axis=axis, dtype=x.kind.dtype.name).config.family
        for name, (x, axis) in {
            "narrow": (view((2**16, 100)), 0),
            "narrow halves": (view((2**16, 184), "float16"), 0),
            "narrower": (view((2**16, 17)), 0),
            "a few": (view((2**16, 16)), 0),
            "few tiles, narrower": (view((2**15, 16)), 0),
            "few tiles": (view((2**13, 64)), 0),
            "few tiles, odd": (view((2**12, 65)), 0),
            "wide": (view((2**16, 160)), 0),
            "wide halves": (view((2**16, 192), "float16"), 0),
            "wide, odd": (view((2**16, 161)), 0),
            "wider, odd": (view((2**16, 321)), 0),
            "bytes": (view((2**18, 128), "uint8"), 0),
            "bytes, odd": (view((2**18, 129), "uint8"), 0),
            "slabs": (view((29, 4099, 257)), 1),
            "short slabs": (view((29, 511, 257)), 1),
            "padded rows": (view((2**16, 65), strides=(66, 1)), 0),
            "wider, odd bytes": (view((2**16, 321), "uint8"), 0),
        }.items()
    }
    whole = ["narrow", "narrow halves", "narrower", "few tiles, odd", "wide, odd", "bytes", "bytes, odd", "slabs"]
    assert [name for name, family in families.items() if family == "whole_rows"] == whole
    strips = ("a few", "few tiles, narrower", "few tiles", "wide", "wide halves", "wider, odd", "padded rows")
    assert {families[name] for name in strips} == {"strips"}
    assert make_plan(request(view((2**16, 100)), axis=0), Target(80, 132)).config.family == "panels"
    beside = {"include_initial": True}, {"dtype": "float64"}, {"mask": view((101,), "bool")}
    assert all(planned(view((2**16, 101)), axis=0, **call).config.family == "strips" for call in beside)
    assert planned(view((2**16, 101), "float64"), op="logaddexp", axis=0, dtype="float64").config.family == "strips"


def test_slabs_that_begin_alike_are_whole_rows_wherever_they_begin():
    x, out = view((29, 4099, 257), pointer=12), view((29, 4099, 257), pointer=12)
    assert planned(x, axis=1, out=out).config.family == "whole_rows"
    assert planned(x, axis=1, out=view((29, 4099, 257), pointer=8)).config.family == "strips"


def test_strips_begin_where_vectors_of_every_array_begin():
    converted = [("bool", "int64"), ("int8", "int64"), ("int16", "int64"), ("int8", "complex128"), ("int32", "float64")]
    for (dtype, result), rows in itertools.product(converted, (2**12, 2**17)):
        numbers = (*range(8, 300, 8), *range(1024, 2200, 16))  # the latter give each block strips of its own
        plans = [planned(view((rows, columns), dtype), axis=0, dtype=result) for columns in numbers]
        strips = [each for each in plans if each.config.family == "strips" and constants(each, "Flat") == (0,)]
        widths = [constants(each, "Columns")[0] for each in strips]
        assert widths and all(width * DTYPES[dtype].itemsize % 16 == 0 for width in widths)


@pytest.mark.parametrize("columns, width", [(16, 32), (28, 32), (32, 32), (36, 64), (64, 64)])
def test_a_strip_is_half_empty_only_if_none_is_narrower(columns, width):
    x = view((264, 512, columns), strides=(512 * (columns + 8), columns + 8, 1))
    made = planned(x, axis=1)
    assert (made.config.family, dict(made.config.constants)["Columns"]) == ("strips", width)


@pytest.mark.parametrize(("dtype", "columns", "width"), [("float32", 168, 32), ("float64", 88, 32)])
def test_strips_of_equal_width_have_whole_sectors_where_rows_do(dtype, columns, width):
    made = planned(view((2**16, columns), dtype), axis=0, op="logaddexp", include_initial=True)
    assert (made.config.family, dict(made.config.constants)["Columns"]) == ("strips", width)


def test_sectors_are_those_of_the_results():
    made = planned(view((2**14, 64), "int8"), axis=0, dtype="complex128")
    assert (made.config.family, dict(made.config.constants)["Columns"]) == ("strips", 16)


def test_values_that_do_not_vary_leave_tiles_of_64_steps():
    made = planned(view((4096, 96, 128), strides=(128, 0, 1)), axis=1)
    assert (made.config.family, dict(made.config.constants)["Rows"]) == ("strips", 64)


@pytest.mark.parametrize("rows, parts", [(9216, 8), (9216 + 256, 16)])
def test_groups_of_whole_rows_are_small_while_one_window_has_them_all(rows, parts):
    """Lanes look at eight groups, and none at the last one: nine groups of eight parts of 128 rows."""
    made = planned(view((rows, 37)), axis=0)
    assert (made.config.family, dict(made.config.constants)["GroupParts"]) == ("whole_rows", parts)


def test_whole_rows_load_fewer_tiles_ahead_than_there_are_stages():
    """Otherwise a block would wait for a stage that it fills itself."""
    found = 0
    for kib, columns, dtype in itertools.product((48, 64, 100, 228), range(3, 321), ("uint8", "float32", "complex64")):
        target = Target(90, 132, shared_bytes=kib * 1024)
        made = planned(view((19, 5001, columns), dtype), axis=1, dtype=dtype, target=target)
        if made.config.family == "whole_rows":
            ahead, stages = constants(made, "Ahead", "Stages")
            assert 2 <= ahead < stages
            found += 1
    assert found > 1500


def test_whole_rows_fit_their_block():
    seen = set()
    for columns, rows, dtype in itertools.product(
        (7, 9, 13, 15, 16, 17, 21, 31, 33, 64, 65, 100, 129, 161, 255, 257, 319, 320),
        (600, 5000, 2**20),
        ("uint8", "float16", "float32", "float64"),
    ):
        made = planned(view((2, rows, columns), dtype), axis=1, dtype=dtype)
        if made.config.family != "whole_rows":
            continue
        found = dict(made.config.constants)
        units = found["Rows"] * found["Batch"] / 256  # units of a part
        seen.add((dtype, found["Batch"], found["Long"], units > 1))
        assert made.config.block <= 1024 and made.config.shared_bytes + SHARED_RESERVED <= H200.shared_bytes
        assert units in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1) or (units, found["Rows"]) == (2, 256)
        assert found["Stages"] >= max(3, found["Batch"])
        assert found["Shares"] == max(found["Rows"] // 64, 1)
        parts = -(-rows // (found["Rows"] * found["Batch"]))
        assert made.grid == min(2 * parts, 132)
        groups = -(-parts // found["GroupParts"])
        # A strip that is not long has one window of groups, and a last group that no lane reads.
        assert found["Long"] or groups <= found["Each"] + 1
        assert found["Abreast"] == (1 if found["Long"] else 32)
        state, carry = {"float16": (1, 1), "float32": (1, 2)}.get(dtype, (2, 2))
        if dtype != "uint8":
            part = state if units <= 1 else carry
            assert made.workspace_words == 2 * whole_lines(columns) * (parts * part + groups * carry)
    assert {dtype for dtype, *_ in seen} == {"uint8", "float16", "float32", "float64"}
    assert {tuple(ways) for _, *ways in seen} >= {(1, 0, False), (2, 0, False), (2, 1, False), (2, 1, True)}


@pytest.mark.parametrize(
    ("shape", "dtype", "family"),
    [
        ((19, 5001, 13), "float32", "whole_rows"),  # rows of the batch begin anywhere
        ((20, 5000, 13), "float32", "strips"),
        ((19, 5001, 7), "float32", "whole_rows"),
        ((19, 5001, 6), "float32", "strips"),
        ((19, 5001, 6), "int16", "strips"),
        ((19, 5001, 5), "int16", "panels"),
        ((1, 2**16, 9), "complex64", "whole_rows"),  # strips spill
        ((1, 2**16, 5), "complex64", "strips"),
    ],
)
def test_whole_rows_of_few_columns_where_strips_cannot_be_or_spill(shape, dtype, family):
    assert planned(view(shape, dtype), axis=1, dtype=dtype).config.family == family


def test_blocks_take_two_tiles_of_a_strip_at_a_time_where_there_are_enough():
    found = {}
    for shape in [(2**20, 2), (2**20, 3), (2**20, 8), (2**26, 2), (2**20, 160), (65536, 256), (8192, 64)]:
        made = dict(planned(view(shape), axis=0).config.constants)
        found[shape] = tuple(made[name] for name in ("Batch", "LookBackWarps", "Ahead", "BulkStores"))
    assert found == {
        (2**20, 2): (1, 8, 2, 0),  # 256 tiles
        (2**20, 3): (2, 8, 2, 0),
        (2**20, 8): (2, 8, 2, 1),
        (2**26, 2): (2, 8, 2, 1),
        (2**20, 160): (2, 4, 2, 0),  # five strips
        (65536, 256): (2, 4, 2, 0),  # eight strips
        (8192, 64): (1, 4, 1, 0),
    }


def test_blocks_load_as_many_bytes_ahead_however_narrow_the_values_of_a_strip_are():
    found = {}
    for dtype, result in [("float32", "float32"), ("int32", "int64"), ("uint8", "uint64"), ("bool", "int32")]:
        made = planned(view((2**18, 640), dtype), axis=0, dtype=result)
        assert made.config.family == "strips"
        found[dtype, result] = constants(made, "Rows", "Columns", "Ahead", "Stages")
    assert found == {
        ("float32", "float32"): (256, 32, 2, 6),
        ("int32", "int64"): (128, 32, 3, 8),  # 48 KiB
        ("uint8", "uint64"): (128, 32, 12, 16),
        ("bool", "int32"): (256, 32, 6, 16),
    }


def test_walks_take_turns_where_tiles_are_small():
    found = {}
    for shape, dtype in [
        ((2**24, 8), "float32"),
        ((2**24, 8), "bfloat16"),
        ((2**24, 5), "uint8"),
        ((2**19, 5), "uint8"),
    ]:
        made = planned(view(shape, dtype), axis=0, dtype=dtype)
        assert made.config.family == "strips" and made.config.grid
        found[shape, dtype] = constants(made, "Batch", "Stages", "Walks", "LookBackWarps")
    assert found == {
        ((2**24, 8), "float32"): (2, 6, 1, 8),
        ((2**24, 8), "bfloat16"): (2, 11, 2, 4),
        ((2**24, 5), "uint8"): (2, 16, 4, 2),
        ((2**19, 5), "uint8"): (2, 8, 1, 8),  # a batch or two for each block
    }


@pytest.mark.parametrize("number", range(1, 33))
def test_blocks_of_strips_load_fewer_tiles_ahead_than_they_have_stages(number):
    """Otherwise a block would wait for a stage that it fills itself."""
    results = ("uint8", "uint8"), ("uint8", "uint64"), ("float32", "float32"), ("complex64", "complex64")
    for kib, (dtype, result) in itertools.product((48, 64, 100, 228), results):
        target = Target(90, 132, shared_bytes=kib * 1024)
        for columns in (number, 64 + number):
            made = planned(view((19, 50001, columns), dtype), axis=1, dtype=result, target=target)
            if made.config.family == "strips":
                ahead, stages, batch, walks = constants(made, "Ahead", "Stages", "Batch", "Walks")
                assert 1 <= ahead < stages
                assert batch * walks <= stages  # each walk has the stages of a batch


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", "complex128"])
def test_a_block_of_strips_has_no_more_threads_than_there_are(dtype):
    blocks = {}
    for columns, rows, shared in itertools.product((32, 48, 96, 128, 256, 512), (8, 10000), (True, False)):
        shape = (2, 256 * 36, columns) if shared else (rows, 300, columns)
        config = planned(
            view(shape, dtype), "add" if dtype == "complex128" else "max", axis=1, return_carry=True
        ).config
        blocks[columns, rows, shared] = config.block if config.family == "strips" else 0
    assert max(blocks.values()) <= 28 * 32 and any(blocks.values())
    wide = planned(view((2, 256 * 36, 512), "bool"), "max", axis=1, return_carry=True)
    assert dict(wide.config.constants)["LookBackWarps"] == 1  # per scan warp, of four: 2 would be 960 threads


@pytest.mark.parametrize(
    ("columns", "family"), [(2, "strips"), (12, "strips"), (33, "whole_rows"), (160, "strips"), (512, "strips")]
)
def test_flags_lie_beside_the_values_of_strips_and_whole_rows(columns, family):
    """Those of elements, of all columns, and of rows; but not keys, of which a tile needs the one before it."""
    shape = (2**16, columns)
    flags = (
        {"mask": view(shape, "bool")},
        {"mask": view((2**16, 1), "bool")},
        {"segments": ("reset", view(shape, "bool"))},
    )
    for call in (*flags, {"segments": ("offsets", view((101,), "int64"))}):
        assert planned(view(shape), axis=0, **call).config.family == family
    assert planned(view(shape), axis=0, segments=("keys", view(shape, "int32"))).config.family == "panels"


def test_panels_take_flags_where_there_are_enough_strips_for_all_blocks():
    def families(columns, dtype):
        x, mask = view((2**14, columns), dtype), view((2**14, columns), "bool")
        return [planned(x, axis=0, dtype=dtype, **call).config.family for call in ({}, {"mask": mask})]

    for dtype in ("float32", "float64"):
        assert families(65 * 32, dtype) == ["strips", "strips"]
        assert families(2**14, dtype) == ["strips", "panels"]
    assert families(132 * 32, "float32") == ["strips", "strips"]  # blocks share those of narrow items
    assert families(132 * 32, "float64") == ["strips", "panels"]


def test_strips_take_sixteen_columns_with_flags():
    """Whole rows take wide carries from six columns on, but carries that are wide for their flags from 17 on."""
    families = [
        planned(view((2**16, columns)), axis=0, segments=("reset", view((2**16, columns), "bool"))).config.family
        for columns in (16, 17)
    ]
    assert families == ["strips", "whole_rows"]


def test_results_take_the_place_of_the_first_value_in_a_stage():
    """Of those that vary along the axis, if it has their type; so stages have more rows."""
    shape, b = (4, 2**14, 768), view((4, 2**14, 768), "bfloat16")

    def made(decay_strides=None, result="bfloat16"):
        decay = view(shape, "bfloat16", decay_strides)
        plan = planned((decay, b), LINEAR_RECURRENCE, axis=1, dtype=result)
        assert plan.config.family == "strips"
        return constants(plan, "InPlace", "Rows", "Stages")

    assert made() == (1, 256, 3) and made((768, 0, 1))[0] == made((0, 0, 0))[0] == 1
    assert made(result="float32")[0] == 0


def test_reduce_warps_fill_the_schedulers():
    """Where carries are wide, a block has two of them, or four if no scheduler then has more warps."""
    for dtype, warps, reduce_warps in (("bfloat16", 24, 4), ("float32", 20, 2)):
        b = view((4, 2**14, 768), dtype)
        plan = planned((b, b), LINEAR_RECURRENCE, axis=1, dtype=dtype)
        assert (plan.config.block, *constants(plan, "ReduceWarps")) == (32 * warps, reduce_warps)


def test_panels_take_flags_where_the_last_tiles_of_strips_would_be_nearly_empty():
    def family(steps):
        x, reset = view((64, steps, 1024)), view((64, steps, 1024), "bool")
        return planned(x, axis=1, segments=("reset", reset)).config.family

    assert [family(steps) for steps in (257, 409, 410, 512)] == ["panels", "panels", "strips", "strips"]


def test_segments_of_wide_states_are_strips():
    for columns in (8, 9, 160):
        reset = view((2**16, columns), "bool")
        made = planned(view((2**16, columns), "float64"), axis=0, dtype="float64", segments=("reset", reset))
        assert (made.config.family, made.config.grid) == ("strips", True)


def test_whole_rows_have_parts_that_waste_less_than_half_of_the_axis():
    """Parts of 512 rows; strips have tiles of 256. With fewer rows of the batch, parts are smaller."""
    families = [planned(view((132, rows, 17)), axis=1).config.family for rows in (513, 682, 683, 1024)]
    assert families == ["panels", "strips", "whole_rows", "whole_rows"]
    assert planned(view((80, 513, 17)), axis=1).config.family == "whole_rows"


def test_panels_take_decays_of_wide_states_that_stand_still_where_strips_are_a_blocks_own():
    def family(dtype, *decay):
        made = planned((view(decay, dtype), view((2**15, 2**14), dtype)), axis=0, **RECURRENCE)
        return made.config.family, made.config.grid

    assert family("float64", 1, 1) == family("float64", 1, 2**14) == ("panels", False)
    assert family("float64", 2**15, 2**14) == family("float32", 1, 1) == ("strips", False)


def test_store_warps_have_whole_rows_of_flat_tiles():
    found = set()
    for columns, dtype, masked in itertools.product(range(2, 129), ("bfloat16", "float32", "float64"), (False, True)):
        shape = (200, 2048, columns)
        mask = {"mask": view(shape, "bool")} if masked else {}
        made = planned(view(shape, dtype), axis=1, dtype=dtype, include_initial=True, **mask)
        if made.config.family == "strips" and constants(made, "Flat") == (1,):
            assert constants(made, "WarpsAbreast") == (1,)
            found.add(constants(made, "Rows", "Depth"))
    assert {(128, 2), (256, 4)} <= found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("strides", [(0, 1), (0, 0)])
def test_a_value_that_stands_still_is_not_in_whole_rows(strides, reverse):
    """Tiles of whole rows would extend beyond it; strips read it from memory, and results cannot take its place."""
    for columns in (2, 17, 33, 64, 100, 161):
        still = view((4096, columns), strides=strides)
        made = planned(still, axis=0, reverse=reverse)
        assert made.config.family in ("strips", "panels")
        assert made.config.family == "panels" or constants(made, "InPlace") == (0,)
    assert planned(view((4096, 33)), axis=0, reverse=reverse).config.family == "whole_rows"


def test_a_section_has_room_for_a_span_of_spans_where_nodes_have_totals():
    """A walk then looks at as many totals together as there is room for."""
    seen = set()
    for columns, warps, looks, units in itertools.product(
        range(2, 33), (1, 2, 4, 8), (2, 4, 8), [1 << level for level in range(6)]
    ):
        found = looks_of_walk(columns, warps, looks, carry=8, warps=20, units=units)
        span, more = span_of_walk(columns, warps, found), span_of_walk(columns, warps, 2 * found)
        seen.add((found, has_nodes(span, units)))
        if has_nodes(span, units):
            assert span**2 * units <= PAIRED_SECTION
            assert found >= max(looks, SPAN_LOOKS) or more**2 * units > PAIRED_SECTION
        else:
            assert found == looks and span_of_walk(columns, warps, 1) ** 2 * units > PAIRED_SECTION
    assert seen == {(1, True), (2, True), (4, True), (8, True), (2, False), (4, False), (8, False)}


@pytest.mark.parametrize(
    ("batches", "span", "units", "numbers"),
    [
        (5000, 16, 2, (5000, 312, 19, 2)),  # the 2,048 batches of a section are eight nodes of 256
        (2048, 8, 2, (2048, 256, 32, 4, 1)),
        (2047, 8, 2, (2047, 255, 31, 3, 0)),
        (5000, 64, 2, (5000,)),  # of 32 spans a section has no totals, nor have they
    ],
)
def test_whole_nodes_and_sections_have_totals(batches, span, units, numbers):
    assert totals_of_walk(batches, span, units) == numbers


def test_looks_that_travel_together_are_as_many_as_there_are_registers():
    """A section has room for spans of spans, or there are none, as with two columns."""
    calls = {
        "a few columns": ((2**20, 2), "float32", 90),
        "many warps": ((2**16, 256), "float32", 90),
        "large spans": ((2**20, 14), "float32", 90),
        "two scan_warps": ((2**16, 512), "bfloat16", 90),
        "another compiler": ((2**16, 256), "float32", 100),
        "wide totals": ((2**20, 5), "complex64", 90),
    }
    found = {}
    for name, (shape, dtype, arch) in calls.items():
        made = make_plan(request(view(shape, dtype), axis=0), Target(arch, 132))
        found[name] = tuple(dict(made.config.constants)[of] for of in ("LookBackWarps", "Looks"))
    assert found == {
        "a few columns": (8, 4),
        "many warps": (4, 4),
        "large spans": (4, 4),
        "two scan_warps": (2, 4),
        "another compiler": (4, 4),
        "wide totals": (2, 4),  # two walks
    }


def test_a_kernel_is_compiled_once_for_many_sizes():
    configs = {planned(view((rows, length))).config for rows in (1, 7, 100) for length in (2**19, 2**20 + 4, 2**22)}
    assert len(configs) == 1
    assert planned(view((2**20,)), exclusive=True).config not in configs
    assert planned(view((2**20,)), has_initial=True).config not in configs
    assert planned(view((2**20,)), "max").config not in configs
