"""Requests and plans: pure functions of shapes, strides and dtypes, checked by hand and by enumeration."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuscan import ScanValueError, plan
from cuscan.dtypes import DTYPES
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayView, Device
from cuscan.operators import OPERATORS
from cuscan.order import Order
from cuscan.plan import Target, make_plan, order_of
from cuscan.request import check_initial, dense_strides, find_dtype, make_request

H200 = Target(90, 132)
ORDER4 = Order(items=4, vectors=8, warps=8)
TABLE = {1: Order(16, 4, 8), 2: Order(8, 4, 8), 4: ORDER4, 8: Order(2, 8, 8), 16: Order(1, 8, 8)}


@pytest.fixture(autouse=True, scope="module")
def tables():
    """Fixed tuning tables: what is checked by hand here does not move when a kernel is tuned."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "CONTIGUOUS", TABLE)
        patch.setattr(plan, "COLUMNS", Order(8, 1, 1))
        patch.setattr(plan, "THREADS_PER_SM", dict.fromkeys(plan.THREADS_PER_SM, 1024))
        yield


def view(shape, dtype="float32", strides=None, pointer=0):
    """An array that is not there; C-contiguous unless strides say otherwise."""
    if strides is None:
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return ArrayView(None, LIBRARY, DTYPES[dtype], tuple(shape), tuple(strides), pointer, Device("cuda", 0), False)


def request(
    x, op="add", axis=-1, *, reverse=False, exclusive=False, dtype=None, has_initial=False, mask=None, out=None
):
    return make_request(
        op=op,
        axis=axis,
        reverse=reverse,
        exclusive=exclusive,
        dtype=dtype,
        has_initial=has_initial,
        value=x,
        mask=mask,
        out=out,
    )


def planned(*arguments, **keywords):
    return make_plan(request(*arguments, **keywords), H200)


def accesses(a_plan):
    config = a_plan.config
    return config.value_access, config.result_access, config.mask_access


def dimensions(a_plan):
    """The axis, the column and the batch axes of a plan's geometry."""
    words = a_plan.geometry[:-3]
    dims = [words[i : i + 4] for i in range(0, len(words), 4)]
    assert len(dims) == 2 + a_plan.config.batch_dims
    return dims[0], dims[1], dims[2:]


ONE = (1, 0, 0, 0)


# ---- requests ------------------------------------------------------------------------------------------


def test_requests_and_plans_are_frozen_and_hashable():
    a, b = (request(view((3, 40)), mask=view((40,), "bool")) for _ in range(2))
    assert a == b and hash(a) == hash(b) and a is not b
    assert a != request(view((3, 40)), exclusive=True)
    one, other = make_plan(a, H200), make_plan(b, H200)
    assert one == other and hash(one) == hash(other) and hash(one.config) == hash(other.config)
    for thing in (a, a.value, one, one.config, H200, ORDER4):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, dataclasses.fields(thing)[0].name, None)


def test_a_request_knows_addresses_by_their_alignment_alone():
    assert request(view((8,), pointer=4096)) == request(view((8,), pointer=8192))
    assert request(view((8,), pointer=4096)) != request(view((8,), pointer=8196))


def test_a_request_is_normalised():
    made = request(view((2, 3, 4)), np.str_("max"), np.int64(-3), reverse=np.bool_(True))
    assert (made.op, made.axis, made.reverse, made.exclusive) == (OPERATORS["max"], 0, True, False)
    assert type(made.axis) is int and type(made.reverse) is bool
    assert request(view((3,), "bool"), dtype="bool").op is OPERATORS["or"]
    assert request(view((3,), "bool"), "mul", dtype="bool").op is OPERATORS["and"]
    assert request(view((3,), "bool")).result.dtype is DTYPES["int64"]
    assert request(view((3,), "uint8")).result.dtype is DTYPES["uint64"]
    assert request(view((3,), "uint8"), "max").result.dtype is DTYPES["uint8"]
    assert request(view((3,), "float16"), out=view((3,), "float64")).result.dtype is DTYPES["float64"]


@pytest.mark.parametrize(
    "dtype, op, carry",
    [
        ("float16", "add", "float64"),
        ("bfloat16", "mul", "float64"),
        ("float32", "add", "float64"),
        ("float32", "max", "float32"),
        ("float64", "add", "float64"),
        ("complex64", "mul", "complex128"),
        ("int8", "min", "int32"),
        ("uint64", "xor", "uint64"),
    ],
)
def test_the_carry_is_wide_where_errors_add_up(dtype, op, carry):
    assert request(view((3,), dtype), op).carry == carry


@pytest.mark.parametrize(
    "shape, strides",
    [((4, 5), (5, 1)), ((5,), (0, 1)), ((1, 5), (0, 1)), ((4, 1), (1, 0)), ((1,), (0, 0)), ((), (0, 0))],
)
def test_masks_are_broadcast_by_strides(shape, strides):
    mask = request(view((4, 5)), mask=view(shape, "bool")).mask
    assert mask.shape == (4, 5) and mask.strides == strides


@pytest.mark.parametrize(
    "given, name",
    [
        ("float32", "float32"),
        (np.float32, "float32"),
        (np.dtype("f4"), "float32"),
        ("f4", "float32"),
        (float, "float64"),
        (bool, "bool"),
        (complex, "complex128"),
        ("bfloat16", "bfloat16"),
        (DTYPES["int8"], "int8"),
    ],
    ids=repr,
)
def test_dtypes_by_any_name(given, name):
    assert find_dtype(given) is DTYPES[name]


@pytest.mark.parametrize(
    "initial, dtype, number",
    [(3, "int8", 3), (3.0, "int8", 3), (True, "uint64", 1), (3, "float16", 3.0), (2**64 - 1, "uint64", 2**64 - 1)],
)
def test_initial_becomes_a_python_number(initial, dtype, number):
    got = check_initial(initial, DTYPES[dtype])
    assert got == number and type(got) is type(number)
    assert check_initial(1, DTYPES["complex64"]) == 1 + 0j and math.isnan(check_initial(math.nan, DTYPES["float32"]))


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_results_keep_the_axis_order_as_empty_like_does(data):
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(sizes))))
    steps = [data.draw(st.sampled_from([1, 1, 2, -1])) for _ in sizes]
    base = np.empty([n * abs(s) for n, s in zip(sizes, steps, strict=True)], np.int8)
    x = base[tuple(slice(None, None, s) for s in steps)].transpose(order)
    like = np.empty_like(x, order="K")
    got = dense_strides(x.shape, x.strides)
    assert [s for s, n in zip(got, x.shape, strict=True) if n > 1] == [
        s for s, n in zip(like.strides, x.shape, strict=True) if n > 1
    ]


def test_results_of_broadcast_and_empty_arrays_are_contiguous():
    assert dense_strides((3, 4), (0, 1)) == dense_strides((3, 4), (1, 0)) == (4, 1)
    assert dense_strides((3, 4), (0, 0)) == (4, 1)
    assert dense_strides((2, 0, 3), (0, 3, 1)) == (3, 3, 1)


# ---- plans by hand -------------------------------------------------------------------------------------


def test_a_short_row_is_a_warp():
    made = planned(view((1000,)))
    assert made.config.family == "rows" and not made.config.grid
    assert dict(made.config.constants)["Vectors"] == 8 and dict(made.config.constants)["Lanes"] == 32
    assert made.geometry == (1000, 1, 1, 0, *ONE, *ONE, 1, 1, 0)
    assert (made.value_offset, made.result_offset, made.mask_offset) == (0, 0, 0)
    assert made.grid == 1 and made.workspace_words == made.workspace_bytes == 0


@pytest.mark.parametrize(
    "length, lanes, vectors", [(1, 1, 1), (4, 1, 1), (5, 2, 1), (33, 16, 1), (128, 32, 1), (129, 32, 2), (600, 32, 8)]
)
def test_rows_take_as_many_lanes_as_they_fill(length, lanes, vectors):
    constants = dict(planned(view((100, length))).config.constants)
    assert (constants["Lanes"], constants["Vectors"]) == (lanes, vectors)


def test_every_row_of_a_batch_is_covered():
    made = planned(view((1001, 3)))
    constants = dict(made.config.constants)
    per_block = constants["Warps"] * 32 // constants["Lanes"] * constants["RowsPerThread"]
    assert made.config.block == constants["Warps"] * 32
    assert (made.grid - 1) * per_block < 1001 <= made.grid * per_block


@pytest.mark.parametrize(
    "length, family, warps, units",
    [
        (1024, "rows", None, 1),
        (1025, "tiles", 2, 1),
        (2049, "tiles", 4, 1),
        (8192, "tiles", 8, 1),
        (8193, "tiles", 8, 2),
    ],
)
def test_longer_rows_are_tiles(length, family, warps, units):
    made = planned(view((length,)))
    assert (made.config.family, made.config.grid, made.geometry[-2]) == (family, units > 1, units)
    if warps:
        assert dict(made.config.constants)["Warps"] == warps and made.config.block == 32 * (warps + 1)


@pytest.mark.parametrize(
    "dtype, result, order",
    [
        ("int8", "int8", 1),
        ("int8", "float16", 2),
        ("float16", "float16", 2),
        ("float32", "float32", 4),
        ("float64", "float32", 8),
    ],
)
def test_the_wider_of_value_and_result_fixes_the_order(dtype, result, order):
    made = request(view((99,), dtype), dtype=result)
    assert order_of(made) is TABLE[order]
    assert make_plan(made, H200).config.items == TABLE[order].items


@pytest.mark.parametrize(
    "call, units, words",
    [
        # Words of the units' aggregates, then of the groups', the sections' and the sections' carries; every table is
        # filled up to an even number. A word holds 32 bits; sums and products are carried in twice the width.
        (dict(x=view((2**20,))), 128, 128 + 4 * 2 + 2 + 2),
        (dict(x=view((2**20,)), op="max"), 128, 128 + 4 + 2 + 2),
        (dict(x=view((3, 2**18))), 32, 3 * (32 + 2 + 2 + 2)),
        (dict(x=view((3, 2**18)), op="max"), 32, 3 * 32 + 3 * 4),
        (dict(x=view((2**20,), "float64")), 256, 2 * 256 + 2 * 8 + 2 + 2),
        (dict(x=view((2**20,), "complex64")), 256, 2 * 256 + 4 * 8 + 4 + 4),
        (dict(x=view((2**24,))), 2048, 2048 + 2 * 64 + 2 * 2 + 2 * 2),
    ],
)
def test_the_workspace_of_a_chain(call, units, words):
    made = planned(**call)
    assert made.config.grid and made.geometry[-2] == units
    assert made.workspace_words == made.geometry[-1] == words
    assert made.workspace_bytes == plan.HEADER_BYTES + 8 * words


def test_blocks_stay_where_there_are_more_tiles_than_fit():
    made = planned(view((2**28,)))
    assert made.config.block == 288 and made.config.blocks_per_sm == 2 and made.grid == 132 * 2
    assert planned(view((5 * 8192,))).grid == 5
    assert make_plan(request(view((2**28,))), Target(90, 10)).grid == 20


def test_blocks_share_rows_only_where_rows_are_few_or_uneven():
    slots = 132 * 2
    for rows, shared in [(1, True), (slots - 60, True), (slots, False), (slots + 9, True), (100 * slots + 9, False)]:
        made = planned(view((rows, 32768)))
        assert (made.config.grid, made.workspace_words > 0) == (shared, shared), rows
        assert made.grid == slots if rows >= slots else rows * 4


def test_the_carry_climbs_no_more_levels_than_the_row_has():
    units = [1, 2, 32, 33, 1024, 1025]
    assert [planned(view((n * 8192,))).config.levels for n in units] == [0, 1, 1, 2, 2, 3]


def test_tiles_are_sent_for_in_bulk_where_they_are_whole_and_aligned():
    staged = {
        name: planned(view(shape, **where)).config.staged
        for name, (shape, where) in {
            "row": ((2**20,), {}),
            "rows": ((9, 10000), {}),
            "odd rows": ((9, 10001), {}),
            "misaligned": ((2**20,), {"pointer": 4}),
            "no whole tile": ((5000,), {}),
            "strided": ((2**20,), {"strides": (2,)}),
        }.items()
    }
    assert [name for name, bulk in staged.items() if bulk] == ["row", "rows"]
    old = make_plan(request(view((2**20,))), Target(80, 108)).config
    assert not old.staged and old.shared_bytes == plan.SHARED_REST


def test_no_block_asks_for_more_shared_memory_than_an_sm_has():
    for dtype, masked in itertools.product(DTYPES, (False, True)):
        mask = view((2**20,), "bool") if masked else None
        config = planned(view((2**20,), dtype), op="max" if "complex" not in dtype else "add", mask=mask).config
        taken = config.blocks_per_sm * (config.shared_bytes + plan.SHARED_RESERVED)
        assert taken <= H200.shared_bytes, (dtype, masked)
    small = make_plan(request(view((2**20,))), Target(120, 170, shared_bytes=100 * 1024)).config
    assert small.blocks_per_sm == 1 and small.shared_bytes + plan.SHARED_RESERVED <= 100 * 1024


def test_a_gpu_array_begins_at_a_multiple_of_its_item_size():
    for name in ("x", "out"):
        arrays = {"x": view((100,)), "out": view((100,), pointer=4096), name: view((100,), pointer=4097)}
        with pytest.raises(ScanValueError, match=rf"^{name} begins at address 0x1001, .* item size \(4\)"):
            planned(**arrays)
    planned(view((100,)), mask=view((100,), "bool", pointer=4097))


def test_more_tiles_than_tickets_are_refused():
    with pytest.raises(ScanValueError, match="x is too large"):
        planned(view((2**46,)))
    assert planned(view((2**32, 8193))).config.grid is False


def test_axes_that_one_stride_walks_are_merged():
    axis, column, batch = dimensions(planned(view((4, 5, 6))))
    assert axis == (6, 1, 1, 0) and column == ONE and batch == [(20, 6, 6, 0)]
    axis, column, batch = dimensions(planned(view((4, 5, 6)), axis=1))
    assert axis == (5, 6, 6, 0) and column == (6, 1, 1, 0) and batch == [(4, 30, 30, 0)]
    axis, column, batch = dimensions(planned(view((4, 5, 6)), axis=0))
    assert axis == (4, 30, 30, 0) and column == (30, 1, 1, 0) and batch == [ONE]


def test_axes_are_merged_only_where_every_array_allows_it():
    gap = view((4, 5, 6), strides=(60, 6, 1))  # every other slab
    assert dimensions(planned(gap))[2] == [(5, 6, 6, 0), (4, 60, 30, 0)]
    masked = planned(view((4, 5, 6)), mask=view((5, 6), "bool"))
    assert dimensions(masked)[2] == [(5, 6, 6, 6), (4, 30, 30, 0)]
    whole = planned(view((4, 5, 6)), mask=view((4, 5, 6), "bool"))
    assert dimensions(whole)[2] == [(20, 6, 6, 6)]
    broadcast = planned(view((4, 5, 6)), mask=view((6,), "bool"))
    assert dimensions(broadcast) == ((6, 1, 1, 1), ONE, [(20, 6, 6, 0)])


def test_axes_of_size_one_have_no_say():
    plain = planned(view((7, 900)))
    odd = planned(view((1, 7, 1, 900, 1), strides=(12345, 900, 1, 1, 777)), axis=3)
    assert plain == odd
    along = planned(view((1, 50)), axis=0)
    assert along.config.family == "rows" and dimensions(along)[0] == (1, 50, 50, 0)


def test_transposed_arrays_scan_their_contiguous_axis_in_rows():
    fortran = view((4, 5, 6), strides=(1, 4, 20))
    made = planned(fortran, axis=0)
    assert made.config.family == "rows" and dimensions(made) == ((4, 1, 1, 0), ONE, [(30, 4, 4, 0)])
    made = planned(fortran, axis=2)
    assert made.config.family == "columns" and dimensions(made)[1] == (20, 1, 1, 0)
    assert order_of(request(fortran, axis=2)) == Order(8, 1, 1)


def test_the_layout_of_the_result_decides():
    out = view((40, 50), strides=(1, 40))
    assert planned(view((40, 50)), axis=1, out=out).config.family == "columns"
    assert planned(view((40, 50)), axis=0, out=out).config.family == "rows"
    assert order_of(request(view((40, 50)), axis=0, out=out)) is ORDER4


def test_a_reversed_scan_runs_along_negative_strides():
    mask = view((1024,), "bool")
    made = planned(view((1024,)), reverse=True, mask=mask)
    assert dimensions(made)[0] == (1024, -1, -1, -1)
    assert (made.value_offset, made.result_offset, made.mask_offset) == (1023, 1023, 1023)
    assert accesses(made) == ("Mirrored",) * 3
    twice = planned(view((1024,), strides=(-1,), pointer=1023 * 4), reverse=True)
    assert dimensions(twice)[0][:2] == (1024, 1) and twice.value_offset == -1023
    assert twice.config.value_access == "Vector"


@pytest.mark.parametrize(
    "call, expected",
    [
        (dict(x=view((1000,))), ("Vector", "Vector", "None")),
        (dict(x=view((1000,), pointer=4)), ("Element", "Vector", "None")),
        (dict(x=view((1000,)), out=view((1000,), pointer=8)), ("Vector", "Element", "None")),
        (dict(x=view((3, 1000))), ("Vector", "Vector", "None")),
        (dict(x=view((3, 1001))), ("Element", "Element", "None")),
        (dict(x=view((3, 1001), strides=(1004, 1))), ("Vector", "Element", "None")),
        (dict(x=view((1000,), strides=(2,))), ("Element", "Vector", "None")),
        (dict(x=view((1000,), strides=(0,))), ("Element", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=999 * 4)), ("Mirrored", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=1000 * 4)), ("Element", "Vector", "None")),
        (dict(x=view((1000,)), reverse=True), ("Mirrored", "Mirrored", "None")),
        (dict(x=view((1001,)), reverse=True), ("Element", "Element", "None")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=4)), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=2)), ("Vector", "Vector", "Element")),
        (dict(x=view((1000,)), mask=view((1,), "bool")), ("Vector", "Vector", "Element")),
        (dict(x=view((8, 1000)), mask=view((1000,), "bool")), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,), "int8"), dtype="int32"), ("Vector", "Vector", "None")),
        (dict(x=view((9, 1000), "int8"), dtype="int8"), ("Element", "Element", "None")),
    ],
)
def test_vectors_are_used_where_all_of_them_are_aligned(call, expected):
    assert accesses(planned(**call)) == expected


def test_columns_by_hand():
    made = planned(view((1000, 64)), axis=0)
    constants = dict(made.config.constants)
    assert made.config.family == "columns" and made.config.items == 4 and made.config.grid
    assert (constants["Chunks"], constants["Steps"]) == (32, 8)
    assert accesses(made) == ("Vector", "Vector", "None")
    assert made.geometry[-3:-1] == (1, 4)
    assert made.workspace_words == 64 * (4 + 2 + 2 + 2)
    short = planned(view((10, 64)), axis=0)
    assert dict(short.config.constants)["Chunks"] == 2 and not short.config.grid and short.workspace_words == 0
    uneven = planned(view((10, 63)), axis=0)
    assert uneven.config.items == 1 and accesses(uneven)[:2] == ("Vector", "Vector")  # of one item


@pytest.mark.parametrize("length", [3, 200, 256, 257, 10_000])
@pytest.mark.parametrize("width", [2, 3, 8, 33, 100, 1000])
def test_blocks_of_columns_cover_every_column_and_unit(length, width):
    made = make_plan(request(view((7, length, width)), axis=1), Target(80, 132))
    constants = dict(made.config.constants)
    threads, chunks, places = constants["ColumnThreads"], constants["Chunks"], constants["Places"]
    assert made.config.block == threads * chunks * places and made.config.block in (32, 64, 128, 256, 512)
    assert chunks * constants["Steps"] >= min(length, 256)
    blocks = -(-width // (threads * made.config.items))
    units = -(-length // 256)
    tiles = blocks * (7 * -(-units // places) if made.config.grid else -(-7 // places))
    assert made.grid == min(tiles, 132 * made.config.blocks_per_sm)
    assert made.workspace_words >= (7 * width * units if made.config.grid else 0)


def test_narrow_arrays_are_dense_and_fill_a_tile():
    rows = 2**16
    families = {
        name: planned(x, axis=0).config.family
        for name, x in {
            "pairs": view((rows, 2)),
            "merged": view((rows, 2, 3)),
            "32": view((rows, 32)),
            "33": view((rows, 33)),
            "padded": view((rows, 2), strides=(3, 1)),
            "swapped": view((rows, 2), strides=(2, -1)),
            "short": view((4095, 2)),
            "whole": view((4096, 2)),
        }.items()
    }
    assert [name for name, family in families.items() if family == "narrow"] == ["pairs", "merged", "32", "whole"]
    assert make_plan(request(view((rows, 2)), axis=0), Target(80, 132)).config.family == "columns"


def test_a_tile_of_a_narrow_array_is_units_that_divide_a_group():
    for columns, dtype in itertools.product(range(1, 33), ("uint8", "float32", "complex128")):
        made = planned(view((2, 2**15, columns), dtype), axis=1, dtype=dtype)
        constants = dict(made.config.constants)
        if made.config.family != "narrow":  # one column is contiguous; of 18 large ones a unit is too much
            assert columns == 1 or (dtype == "complex128" and columns > 17)
            continue
        assert 32 % constants["Units"] == 0
        assert constants["Units"] * 256 * columns <= 1024 * constants["Warps"]
        assert made.grid == min(2 * 128 // constants["Units"], 132 * made.config.blocks_per_sm)
        assert made.config.blocks_per_sm * (made.config.shared_bytes + plan.SHARED_RESERVED) <= H200.shared_bytes
        assert made.workspace_words >= 2 * 128 * columns


def test_narrow_tiles_are_sent_for_where_they_are_aligned():
    def made(x, **call):
        config = planned(x, axis=0, **call).config
        return (
            config.staged,
            dict(config.constants)["ValueBack"],
            dict(config.constants)["InPlace"],
            config.result_access,
        )

    x = view((2**16, 3))
    assert made(x) == (True, 0, 1, "Vector")
    assert made(x, reverse=True) == (True, 1, 1, "Mirrored")
    assert made(view((2**16, 3), pointer=4096 + 4)) == (False, 0, 1, "Vector")
    assert made(x, out=view((2**16, 3), pointer=4096 + 4)) == (True, 0, 1, "Element")
    assert made(x, dtype="int32") == (True, 0, 0, "Vector")
    backwards = view((2**16, 3), strides=(-3, 1), pointer=4 * 3 * (2**16 - 1))
    assert made(backwards, out=x) == (True, 1, 0, "Vector")


def test_a_kernel_is_compiled_once_for_many_sizes():
    configs = {planned(view((rows, length))).config for rows in (1, 7, 100) for length in (2**19, 2**20 + 4, 2**22)}
    assert len(configs) == 1
    assert planned(view((2**20,)), exclusive=True).config not in configs
    assert planned(view((2**20,)), has_initial=True).config not in configs
    assert planned(view((2**20,)), "max").config not in configs


# ---- plans by enumeration ------------------------------------------------------------------------------


def lay_out(draw, shape, itemsize, *, broadcast):
    """Random strides that do not overlap (or are 0, with `broadcast`), in random axis order."""
    strides, step = [0] * len(shape), draw(st.sampled_from([1, 1, 1, 2]))
    for axis in draw(st.permutations(range(len(shape)))):
        if not (broadcast and draw(st.integers(0, 5)) == 0):
            strides[axis] = step * draw(st.sampled_from([1, 1, -1]))
        step *= shape[axis] + draw(st.sampled_from([0, 0, 0, 1, 3]))
    low = sum(min(s * (n - 1), 0) for s, n in zip(strides, shape, strict=True))
    return tuple(strides), (draw(st.sampled_from([0, 0, 1, 2])) - low) * itemsize


def walk(dim_sizes):
    return itertools.product(*(range(n) for n in dim_sizes))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_plan_visits_every_element_once_in_scan_order(data):
    draw = data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4)))
    dtype = draw(st.sampled_from(["int8", "float16", "float32", "float64", "complex128"]))
    size = DTYPES[dtype].itemsize
    x, out, mask = (lay_out(draw, shape, s, broadcast=b) for s, b in ((size, True), (size, False), (1, True)))
    axis, reverse = draw(st.integers(0, len(shape) - 1)), draw(st.booleans())
    made = make_plan(
        request(
            view(shape, dtype, *x),
            axis=axis,
            reverse=reverse,
            mask=view(shape, "bool", *mask),
            out=view(shape, dtype, *out),
        ),
        H200,
    )
    dims = dimensions(made)
    strides = (x[0], out[0], mask[0])
    offsets = (made.value_offset, made.result_offset, made.mask_offset)

    def triples(outer, dims_of):
        """For each outer index: the three element offsets along the scan."""
        return {tuple(dims_of(index)) for index in outer}

    others = [a for a in range(len(shape)) if a != axis]
    positions = range(shape[axis])[:: -1 if reverse else 1]
    expected = triples(
        walk([shape[a] for a in others]),
        lambda index: (
            tuple(sum(i * s[a] for i, a in zip(index, others, strict=True)) + p * s[axis] for s in strides)
            for p in positions
        ),
    )
    outer = [dims[1], *dims[2]]
    got = triples(
        walk([d[0] for d in outer]),
        lambda index: (
            tuple(
                offsets[k] + p * dims[0][1 + k] + sum(i * d[1 + k] for i, d in zip(index, outer, strict=True))
                for k in range(3)
            )
            for p in range(dims[0][0])
        ),
    )
    assert got == expected
    assert made.geometry[-3] == math.prod(d[0] for d in dims[2])
    check_vectors(made, dims, (x[1], out[1], mask[1]), (size, size, 1))


def check_vectors(made, dims, pointers, sizes):
    """Whole vectors begin (mirrored ones: end) at multiples of their size, wherever the kernel looks."""
    items = made.config.items
    along, others = (dims[1], [dims[0], *dims[2]]) if made.config.family == "columns" else (dims[0], dims[2])
    offsets = (made.value_offset, made.result_offset, made.mask_offset)
    for k, access in enumerate(accesses(made)):
        if access == "Element":
            continue
        assert along[1 + k] == {"Vector": 1, "Mirrored": -1}[access]
        for index in walk([d[0] for d in others]):
            for first in range(0, along[0] - items + 1, items):
                item = offsets[k] + first * along[1 + k]
                item += sum(i * d[1 + k] for i, d in zip(index, others, strict=True))
                start = item if access == "Vector" else item - (items - 1)
                assert (pointers[k] + start * sizes[k]) % (items * sizes[k]) == 0
