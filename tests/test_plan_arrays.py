"""Plans with several values and results, segments, initial values per row, last states; checked by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from plans import (
    ABSENT,
    H200,
    ONE,
    ORDER4,
    PAIR,
    RECURRENCE,
    TABLE,
    WIDENED,
    accesses,
    constants,
    dim,
    dimensions,
    of_shape,
    operands_of,
    planned,
    request,
    scalars,
    staged,
    state_of,
    tiled,
)
from views import view

from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS
from cuscan.order import Order
from cuscan.planning import config, make_plan, tiles
from cuscan.planning.config import Access, Operand, Target
from cuscan.planning.hardware import SHARED_RESERVED
from cuscan.request.layout import order_of

pytestmark = pytest.mark.usefixtures("tables")


@pytest.mark.parametrize(
    "dtypes, op, expected",
    [
        # Bytes of the values of a unit: 8,192 elements of 8 bytes each take 64 KiB, 4,096 take 32 KiB.
        (["float32", "float32"], LINEAR_RECURRENCE, Order(4, 4, 8)),
        (["float16", "float16"], LINEAR_RECURRENCE, Order(8, 4, 8)),  # 8,192 elements of 4 bytes
        (["float16", "float32"], LINEAR_RECURRENCE, Order(4, 4, 8)),  # 8,192 of 6 bytes are too many
        (["float64", "float32"], LINEAR_RECURRENCE, Order(2, 4, 8)),  # 4,096 of 12 bytes
        (["float64", "float64"], LINEAR_RECURRENCE, Order(2, 4, 8)),
        (["complex64", "complex64"], LINEAR_RECURRENCE, Order(2, 4, 8)),
        (["complex128", "complex128"], LINEAR_RECURRENCE, Order(1, 2, 8)),  # four vectors of 32 bytes are too many
        (["float32"] * 3, state_of(*["float32"] * 3), Order(4, 2, 8)),  # 24 KiB
        (["float32"] * 4, state_of(*["float32"] * 4), Order(4, 2, 8)),
        (["int8"] * 2, state_of("int8", "int8"), Order(16, 4, 8)),  # 16,384 of 2 bytes
        (["int8"] * 16, state_of(*["int8"] * 16), Order(16, 1, 4)),  # at least one vector
        (["int8"], INDEXED["max", "first"], Order(2, 8, 8)),  # the indices are results of 8 bytes
        (["float64"], INDEXED["min", "last"], Order(2, 4, 8)),  # eight vectors of 16 bytes are too many
        (["float64"], OPERATORS["logaddexp"], Order(2, 4, 8)),
        (["float32"], OPERATORS["logaddexp"], Order(4, 8, 8)),
        (["int8"] * 2, state_of("int8", "int64"), Order(2, 8, 8)),
        (["int8", "float64"], state_of("int8", "int8"), Order(2, 4, 8)),  # 4,096 of 9 bytes are too many
    ],
)
def test_units_shrink_to_32_KiB_of_values_and_96_bytes_of_totals_per_thread(dtypes, op, expected):
    made = request(of_shape((99,), *dtypes), op)
    assert order_of(made) == expected
    constants = dict(make_plan(request(of_shape((10**6,), *dtypes), op), H200).config.constants)
    assert constants["Vectors"] == expected.vectors and constants["Warps"] == expected.warps


def test_the_order_does_not_depend_on_arrays_beside_the_values():
    b = view((9, 10_000))
    full = order_of(request((b, b), **RECURRENCE))
    for a in (view((10_000,)), view((9, 10_000), strides=(40_000, 3))):
        assert order_of(request((a, b), **RECURRENCE)) == full
    extra = dict(row_initial=view((9,)), return_last=True, segments=("keys", view((10_000,), "float64")))
    assert order_of(request((b, b), mask=view((10_000,), "bool"), **extra, **RECURRENCE)) == full
    assert order_of(request(b, segments=("keys", view((10_000,), "float64")))) is ORDER4
    assert order_of(request((b, b), axis=0, **RECURRENCE)) == Order(8, 1, 1, paired=True)


def test_bytes_to_words_have_many_vectors_unless_states_are_wide():
    x = view((10_000,), "int8")
    assert order_of(request(x, dtype="int64")) == WIDENED
    assert order_of(request(x, OPERATORS["logaddexp"], dtype="float64")) == Order(2, 4, 8)


@pytest.mark.parametrize("dtype, size, vectors", [("float32", 4, 8), ("bfloat16", 2, 8), ("float64", 8, 4)])
def test_values_that_do_not_change_along_the_axis_do_not_count_in_the_order(dtype, size, vectors):
    b = view((9, 10_000), dtype)
    for a in (view((), dtype), view((), "float64"), view((9, 1), dtype), view((9, 10_000), dtype, strides=(size, 0))):
        assert order_of(request((a, b), **RECURRENCE)) == replace(TABLE[size], vectors=vectors)
    one = view((10_000,), dtype, strides=(0,))
    assert order_of(request(one, out=view((10_000,), dtype))) == TABLE[size]  # a value alone counts


@pytest.mark.parametrize(
    "length, family, warps, units",
    [(512, "rows", 4, 1), (513, "rows", 4, 1), (1025, "tiles", 3, 1), (4096, "tiles", 8, 1), (4097, "tiles", 8, 2)],
)
def test_rows_of_two_values_are_half_as_long(length, family, warps, units):
    made = tiled(of_shape((length,), "float32", "float32"), **RECURRENCE)
    assert (made.config.family, made.config.grid, scalars(made)[1]) == (family, family == "tiles", units)
    assert dict(made.config.constants)["Warps"] == warps


def test_every_array_is_a_port():
    float32, flag = Operand("float32", Access.VECTOR), Operand("boolean", Access.VECTOR)
    made = tiled(view((1000,)), mask=view((1000,), "bool"), segments=("reset", view((1000,), "bool")))
    assert operands_of(made) == (float32, float32, flag, flag, ABSENT, ABSENT)
    made = tiled(view((1000,)), mask=view((1000,), "bool"), segments=("reset", view((1000,), "bool", pointer=1)))
    word, byte = (Operand(name, Access.SHIFTED, staged=True) for name in ("float32", "boolean"))
    assert operands_of(made) == (word, word, byte, byte, ABSENT, ABSENT)
    made = tiled(view((2000,), "float16"), INDEXED["max", "first"], segments=("keys", view((2000,), "bfloat16")))
    assert made.config.values == (Operand("float16", Access.VECTOR, staged=True),)  # a warp tile has 512 elements
    assert made.config.results == (Operand("float16", Access.VECTOR), Operand("int64", Access.VECTOR))
    assert operands_of(made)[3:] == (ABSENT, Operand("bfloat16", Access.VECTOR, staged=True), ABSENT, ABSENT)
    pair = (view((1000,), "bool"), view((1000,), "int64", strides=(-1,), pointer=999 * 8))
    made = tiled(pair, PAIR, out=(view((1000,), pointer=4), view((1000,), "int8")))
    assert made.config.values == (
        Operand("boolean", Access.VECTOR, staged=True),
        Operand("int64", Access.REVERSED, staged=True),
    )
    assert str(made.config.values[1]) == "Operand<int64, Access::kReversed, true>"
    assert made.config.results == (Operand("float32", Access.SHIFTED), Operand("int8", Access.VECTOR))
    assert str(float32) == "Operand<float32, Access::kVector>" and str(ABSENT) == "Operand<boolean, Access::kNone>"


def test_rows_of_initial_and_last_states_by_hand():
    arrays = of_shape((3, 500), "float16", "float16")
    made = planned(arrays, row_initial=view((3,), strides=(5,)), return_last=True, **RECURRENCE)
    axis, column, batch = dimensions(made)
    assert axis == dim(500, 2, 2, 2, arrays=7) and column == dim(1, arrays=7)
    assert batch == [dim(3, 1000, 1000, 1000, 0, 0, 20, 4, arrays=7)]
    assert (
        operands_of(made)[5:] == (Operand("float32", Access.BROADCAST), Operand("float32", Access.BROADCAST))
        and made.config.has_initial
    )
    back = planned(arrays, row_initial=view((3,)), return_last=True, reverse=True, **RECURRENCE)
    assert back.offsets == (998, 998, 998, 0, 0, 0, 0) and dimensions(back)[0] == dim(500, -2, -2, -2, arrays=7)

    arrays = of_shape((1000, 64), "complex64", "complex64")
    made = planned(arrays, axis=0, row_initial=view((64,), "complex64"), return_last=True, **RECURRENCE)
    axis, column, batch = dimensions(made)
    assert made.config.family == "panels" and made.config.items == 1
    assert axis == dim(1000, 512, 512, 512, arrays=7) and batch == [dim(1, arrays=7)]
    assert column == (64, 8, 8, 8, 0, 0, 8, 8)
    assert accesses(made) == ("Strided",) * 3 + ("None",) * 2 + ("Strided",) * 2
    # Of 4 chunks of a unit (256 steps), 8 words for each of 64 columns.
    assert constants(made, "Steps", "Runs") == (8, 2) and scalars(made)[2] == 4 * 64 * 8


def test_axes_are_merged_only_where_segments_and_rows_allow_it():
    x = view((4, 5, 6))
    assert dimensions(planned(x, segments=("keys", view((6,), "int16"))))[2] == [dim(20, 24, 24)]
    assert dimensions(planned(x, segments=("keys", view((5, 6), "int16"))))[2] == [
        dim(5, 24, 24, 0, 12),
        dim(4, 120, 120),
    ]
    rows = planned((x, x), row_initial=view((5,)), **RECURRENCE)
    assert dimensions(rows)[2] == [dim(5, 24, 24, 24, 0, 0, 4, arrays=7), dim(4, 120, 120, 120, arrays=7)]
    rows = planned((x, x), row_initial=view((4, 5)), return_last=True, **RECURRENCE)
    assert dimensions(rows)[2] == [dim(20, 24, 24, 24, 0, 0, 4, 4, arrays=7)]
    decays = planned((view((5, 1)), x), **RECURRENCE)
    assert dimensions(decays) == (
        dim(6, 0, 4, 4, arrays=7),
        dim(1, arrays=7),
        [dim(5, 4, 24, 24, arrays=7), dim(4, 0, 120, 120, arrays=7)],
    )


@pytest.mark.parametrize(
    "dtypes, op, marked, state, carry",
    [
        (["float32"], "add", False, 4, 8),
        (["float32"], "add", True, 8, 16),
        (["float32"], "max", True, 8, 8),
        (["int8"], "max", True, 8, 8),
        (["float64"], "add", True, 16, 16),
        (["complex64"], "add", True, 16, 32),  # complex64 is aligned to 8 in C++, complex128 to 16
        (["complex128"], "add", False, 16, 16),
        (["complex128"], "add", True, 32, 32),
        (["float16"], "logaddexp", False, 8, 8),
        (["float16"], "logaddexp", True, 12, 12),
        (["float32"], INDEXED["max", "first"], False, 8, 8),
        (["float64"], INDEXED["max", "first"], False, 16, 16),  # 32 bits of index, and padding
        (["int8"], INDEXED["max", "first"], True, 12, 12),
        (["int64"], INDEXED["max", "first"], True, 24, 24),
        (["float32"] * 2, LINEAR_RECURRENCE, False, 8, 16),
        (["float32"] * 2, LINEAR_RECURRENCE, True, 8, 16),  # a NaN decay is the mark
        (["float64"] * 2, LINEAR_RECURRENCE, True, 16, 16),
        (["complex64"] * 2, LINEAR_RECURRENCE, False, 16, 32),
        (["complex64"] * 2, LINEAR_RECURRENCE, True, 16, 32),
        (["complex128"] * 2, LINEAR_RECURRENCE, False, 32, 32),
        (["complex128"] * 2, LINEAR_RECURRENCE, True, 32, 32),
        (["int8"], state_of("int8"), False, 1, 1),
        (["int8"], state_of("int8"), True, 8, 8),  # the mark has 4 bytes, and is aligned to 4
        (["int16"] * 3, state_of(*["int16"] * 3), True, 12, 12),
        (["int32", "int8"], state_of("int32", "int8"), False, 8, 8),
        (["int32", "int8"], state_of("int32", "int8"), True, 12, 12),
        (["int8", "float64"], state_of("int8", "float64"), True, 24, 24),
        (["float32"] * 4, state_of(*["float32"] * 4), True, 20, 20),
    ],
)
def test_sizes_of_states(dtypes, op, marked, state, carry):
    arrays = of_shape((100,), *dtypes)
    for kind, array in (("reset", view((100,), "bool")), ("offsets", view((9,), "int64"))):
        config = planned(arrays, op, segments=(kind, array) if marked else None).config
        assert (config.state_bytes, config.carry_bytes) == (state, carry)


def test_states_of_recurrences_keep_the_flag_if_the_caller_gets_the_carry():
    arrays, segments = of_shape((100,), "float32", "float32"), ("reset", view((100,), "bool"))
    for returns_carry, sizes in ((False, (8, 16)), (True, (12, 24))):
        made = planned(arrays, LINEAR_RECURRENCE, segments=segments, return_carry=returns_carry).config
        assert (made.state_bytes, made.carry_bytes) == sizes


@pytest.mark.parametrize(
    "dtypes, op, marked, units, words",
    [
        # For 2**20 elements: number of units, and words of an aggregate.
        (["float32"] * 2, LINEAR_RECURRENCE, False, 256, 2),
        (["float32"], "logaddexp", False, 128, 2),
        (["float32"], INDEXED["max", "first"], False, 256, 2),
        (["float64"], INDEXED["max", "first"], False, 512, 4),
        (["float32"], "add", True, 128, 2),
        (["float32"], "max", True, 128, 2),
        (["complex64"], "add", True, 256, 4),
        (["complex128"], "add", True, 1024, 8),
        (["float64"] * 2, LINEAR_RECURRENCE, True, 512, 4),
        (["complex64"] * 2, LINEAR_RECURRENCE, True, 512, 4),
        (["complex128"] * 2, LINEAR_RECURRENCE, True, 2048, 8),
        (["int32", "int8"], state_of("int32", "int8"), True, 256, 3),
        (["int8"], state_of("int8"), False, 32, 1),
    ],
)
def test_the_workspace_of_a_chain_of_structs(dtypes, op, marked, units, words):
    segments = ("reset", view((2**20,), "bool")) if marked else None
    for rows in (1, 2):
        made = tiled(of_shape((rows, 2**20), *dtypes), op, segments=segments)
        assert made.config.grid and scalars(made) == (rows, units, rows * units * words)
        assert made.workspace_bytes == config.HEADER_BYTES + 8 * rows * units * words


def test_indices_have_32_bits_where_that_is_enough():
    small, large = (planned(view((n,)), INDEXED["min", "last"]) for n in (2**32 - 1, 2**32))
    assert small.config.op == small.config.carry_op == "Extremum<float32, uint32, -1, true, false>"
    assert large.config.op == large.config.carry_op == "Extremum<float32, int64, -1, true, false>"
    assert (small.config.state_bytes, large.config.state_bytes) == (8, 16)
    assert scalars(small)[1:3] == (2**20, 2**20 * 2) and scalars(large)[1:3] == (2**20, 2**20 * 4)
    assert planned(view((2**32 - 1,)), INDEXED["min", "last"], include_initial=True).config.index == "int64"
    assert planned(view((100,)), INDEXED["min", "last"], return_carry=True).config.index == "int64"


def held(made):
    """Bytes that a plan of tiles with 8 warps takes per stage of values."""
    groups, stages, flag_stages = constants(made, "Groups", "Stages", "FlagStages")
    state, carry = made.config.state_bytes, made.config.carry_bytes
    on_its_way = 48 + (carry + 1 + 15) // 16 * 16 + state  # barriers and slot; carry; aggregate
    rest = tiles.SHARED_REST + groups * 2 * 8 * state + (groups + stages) * on_its_way
    flags = 16 if flag_stages == 1 else made.config.items * 8 * 32 * 8
    assert groups == 3
    return (made.config.shared_bytes - rest - flag_stages * flags) / stages


def test_only_the_operators_of_users_need_clean_elements_beyond_a_row():
    """And only where elements are staged: a stage may contain anything beyond the row."""
    state = state_of("float32")
    for x, op in (
        (view((9, 2**20 + 1)), "add"),
        (view((9, 2**20 + 1)), state),
        (view((9, 2**20 + 1), strides=(2**22, 2)), state),
    ):
        made = tiled(x, op)
        assert constants(made, "ClearsBeyond") == (int(op is state and bool(staged(made))),)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shifted_tiles_have_a_margin_of_a_sector(dtype):
    made = tiled(view((9, 2**20 + 1), dtype), dtype=dtype)
    assert accesses(made)[0] == "Shifted" and held(made) == 8 * 4096 + 32


@pytest.mark.parametrize(
    "dtypes, op, segments, groups",
    [
        (["float32"], "add", None, 3),
        (["float32"], "add", "reset", 3),
        (["float32"] * 2, LINEAR_RECURRENCE, None, 3),
        (["float32"] * 2, LINEAR_RECURRENCE, "reset", 3),
        (["float64"] * 2, LINEAR_RECURRENCE, None, 3),
        (["complex64"] * 2, LINEAR_RECURRENCE, None, 2),
        (["float64"], "add", None, 3),
        (["float64"], "add", "reset", 2),
        (["float64"], OPERATORS["logaddexp"], None, 2),
        (["float32"], INDEXED["max", "first"], None, 3),
        (["float64"], INDEXED["max", "first"], None, 2),
        (["complex128"], "add", None, 2),
    ],
)
def test_wide_states_leave_room_in_registers(dtypes, op, segments, groups):
    made = tiled(of_shape((2**20,), *dtypes), op, segments=segments and (segments, view((2**20,), "bool")))
    assert constants(made, "Groups") == (groups,) and made.config.block == (8 * groups + 2) * 32


def test_broadcast_values_are_not_staged():
    b = view((9, 2**20))
    tile = 8 * 4 * 32 * 4 * 4  # bytes: warps, vectors, lanes, items, item size; twice the vectors for one value
    plans = {
        name: planned((a, b), **RECURRENCE)
        for name, a in {
            "full": b,
            "strided": view((9, 2**20), strides=(2**21, 2)),
            "scalar": view((), pointer=4),
            "row": view((9, 1), strides=(3, 1), pointer=4),
            "along": view((2**20,)),
        }.items()
    }
    assert {name: (accesses(made)[0], staged(made)) for name, made in plans.items()} == {
        "full": ("Vector", (0, 1)),
        "strided": ("Strided", ()),
        "scalar": ("Broadcast", (1,)),
        "row": ("Broadcast", (1,)),
        "along": ("Vector", (0, 1)),
    }
    assert {name: held(made) for name, made in plans.items()} == {
        "full": 2 * tile, "strided": 16, "scalar": 2 * tile, "row": 2 * tile, "along": 2 * tile,
    }  # fmt: skip
    assert dimensions(plans["row"])[2] == [dim(9, 12, 2**22, 2**22, arrays=7)]
    still = planned((view(()), view((2**20,), strides=(0,))), **RECURRENCE)
    assert not staged(still) and held(still) == 16


def test_uniform_is_a_matter_of_the_axis_that_vectors_run_along():
    x = view((1000, 64))
    columns = [planned((a, x), axis=0, **RECURRENCE) for a in (view(()), view((1000, 1)), view((64,)))]
    assert [dimensions(made)[0][1] for made in columns] == [0, 4, 0]
    reverse = planned(view((5, 100)), mask=view((5, 1), "bool", pointer=3), reverse=True)
    assert accesses(reverse)[:3] == ("Reversed", "Reversed", "Broadcast") and reverse.offsets[2] == 0
    segments = [planned(x, segments=("keys", keys)) for keys in (view((1, 1)), view((1000, 1)), view((1, 64)))]
    assert [accesses(made)[3] for made in segments] == ["Broadcast", "Broadcast", "Vector"]


@pytest.mark.parametrize(
    "keys, access",
    [
        (view((3, 1000), "float64"), "Vector"),  # 4 items are 32 bytes: two accesses of 16
        (view((3, 1000), "float64", pointer=16), "Vector"),
        (view((3, 1000), "float64", pointer=8), "Shifted"),
        (view((3, 1000), "float64", strides=(1002, 1)), "Vector"),
        (view((3, 1000), "float64", strides=(1001, 1)), "Shifted"),
        (view((3, 1000), "int16", strides=(1004, 1)), "Vector"),
        (view((3, 1000), "int16", strides=(1002, 1)), "Shifted"),
        (view((3, 1000), "int16", strides=(1000, -1), pointer=999 * 2), "Reversed"),
        (view((3, 1000), "int16", strides=(-1000, 1)), "Vector"),
        (view((3, 1000), "int16", strides=(2000, 2)), "Strided"),
        (view((1000,), "int8", pointer=4), "Vector"),
        (view((1000,), "int8", pointer=2), "Shifted"),
    ],
)
def test_wider_vectors_are_aligned_to_one_access(keys, access):
    made = planned(view((3, 1000)), segments=("keys", keys))
    beside = "Shifted" if access == "Shifted" else "Vector"  # one array that is not aligned: all pass shared memory
    assert accesses(made) == (beside, beside, "None", access, "None", "None")


def test_the_longer_result_by_hand():
    made = planned(view((3, 1000)), include_initial=True)
    assert dimensions(made) == (dim(1001, 4, 4), ONE, [dim(3, 4000, 4004)]) and made.offsets == (0,) * 6
    assert accesses(made)[:2] == ("Shifted", "Shifted") and staged(made) == (0, 1)
    mask, reset = view((1000,), "bool"), ("reset", view((3, 1000), "bool"))
    back = planned(view((3, 1000)), include_initial=True, reverse=True, mask=mask, segments=reset)
    assert dimensions(back) == (dim(1001, -4, -4, -1, -1), ONE, [dim(3, 4000, 4004, 0, 1000)])
    assert back.offsets == (3996, 4000, 999, 999, 0, 0)
    columns = planned(view((1000, 64)), axis=0, include_initial=True, reverse=True)
    assert dimensions(columns)[:2] == (dim(1001, -256, -256), dim(64, 4, 4))
    assert columns.offsets == (999 * 256, 1000 * 256, 0, 0, 0, 0)
    both = planned(view((1000,)), INDEXED["max", "first"], include_initial=True, reverse=True)
    assert both.offsets == (3996, 4000, 8000, 0, 0, 0, 0)
    out = view((1001,), strides=(-2,), pointer=8192)
    strange = planned(view((1000,)), include_initial=True, reverse=True, out=out)
    assert dimensions(strange)[0] == dim(1001, -4, 8) and strange.offsets == (3996, -8000, 0, 0, 0, 0)


def test_the_longer_result_counts():
    lengths = [(2047, "rows", 1), (2048, "tiles", 1), (8191, "tiles", 1), (8192, "tiles", 2)]
    for length, family, units in lengths:
        made = tiled(view((length,)), include_initial=True)
        assert (made.config.family, scalars(made)[1], dimensions(made)[0][0]) == (family, units, length + 1)
    for reverse in (False, True):  # only the initial value
        made = tiled(view((3, 0)), include_initial=True, reverse=reverse)
        assert dimensions(made)[0][0] == 1 and scalars(made)[:2] == (3, 1) and made.offsets[1] == 0
    for shape, axis in (((1, 50), 0), ((50, 1), 1)):
        made = tiled(view(shape), axis=axis, include_initial=True)
        assert dimensions(made)[0][0] == 2 and made.config.family == ("panels", "staged_rows")[axis]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("include_initial", [False, True])
def test_flags_of_the_kernel(exclusive, include_initial):
    flags = {"exclusive": exclusive, "include_initial": include_initial, "skipna": include_initial}
    made = planned(view((100,)), **flags).config
    assert made.exclusive == (exclusive or include_initial) and not made.shows_segment_starts
    assert made.includes_initial == include_initial == made.skips_nan
    segments = ("reset", view((100,), "bool"))
    assert planned(view((100,)), segments=segments, **flags).config.shows_segment_starts == exclusive


def test_offsets_are_bits_to_the_kernel():
    offsets = ("offsets", view((6,), "int64", strides=(-2,), pointer=80))
    for reverse in (False, True):
        made = planned(view((3, 1000)), segments=offsets, reverse=reverse)
        step = -4 if reverse else 4
        assert dimensions(made) == (dim(1000, step, step), ONE, [dim(3, 4000, 4000)])  # all rows share the bits
        assert made.offsets == ((3996, 3996, 0, 0, 0, 0) if reverse else (0,) * 6)
        assert made.config.segment_operand == Operand("uint32", Access.STRIDED)
    for segments in (None, offsets, ("keys", view((1000,)))):
        assert planned(view((1000,)), segments=segments).config.shared_bytes == 0
    plain, marked = (planned(view((2**20,)), segments=segments) for segments in (None, offsets))
    assert constants(plain, "Groups", "Stages") == constants(marked, "Groups", "Stages") == (3, 7)
    assert held(plain) == held(marked) == 8192 * 4
    # 10 tiles in flight, and 3 * 2 * 8 states, each with a mark.
    assert marked.config.shared_bytes - plain.config.shared_bytes == 3 * 2 * 8 * 4 + 10 * (88 - 68)


def test_what_a_kernel_knows_of_segments():
    x, flags = view((1000,)), view((1000,), "bool")
    kinds = {
        "Reset": ("reset", flags),
        "Keys": ("keys", flags),
        "Bits": ("offsets", view((2,), "int32")),
        "None": None,
    }
    for name, segments in kinds.items():
        config = planned(x, segments=segments, has_initial=True, reverse=True).config
        assert config.segments == name and config.segments_have_initial == (segments is not None)
        assert not config.reverse
        assert not planned(x, segments=segments).config.segments_have_initial
        assert not planned((x, x), segments=segments, has_initial=True, **RECURRENCE).config.segments_have_initial
        assert planned(x, INDEXED["max", "first"], segments=segments, reverse=True).config.reverse


def test_several_arrays_fit_in_the_shared_memory_of_an_sm():
    segments = [None, ("offsets", view((9,), "int64"))]
    calls = [(["complex128"] * 2, LINEAR_RECURRENCE), (["float32", "complex64"], LINEAR_RECURRENCE)]
    calls += [([dtype] * n, state_of(*[dtype] * n)) for dtype, n in (("int8", 16), ("float32", 4), ("float64", 2))]
    for (dtypes, op), where in itertools.product(calls, segments):
        made = planned(of_shape((2**20,), *dtypes), op, segments=where)
        taken = made.config.blocks_per_sm * (made.config.shared_bytes + SHARED_RESERVED)
        assert staged(made) == tuple(range(len(dtypes))) and taken <= H200.shared_bytes, (dtypes, where)


@pytest.mark.parametrize("fields", [2, 4, 8, 16])
def test_several_arrays_fit_in_the_shared_memory_of_a_small_gpu(fields):
    small = Target(120, 170, shared_bytes=100 * 1024)
    arrays, op = of_shape((2**20,), *["int8"] * fields), state_of(*["int8"] * fields)
    for segments in (None, ("offsets", view((9,), "int64"))):
        made = make_plan(request(arrays, op, segments=segments), small)
        assert made.config.shared_bytes + SHARED_RESERVED <= small.shared_bytes
        assert constants(made, "Stages")[0] > 0 and staged(made) == tuple(range(fields))


def test_a_kernel_is_compiled_once_for_many_segments_and_rows():
    offsets = [view((n,), "int32", strides=(step,)) for n, step in itertools.product((1, 2, 1000), (1, 3))]
    configs = {
        planned(view((rows, 2**20)), segments=("offsets", o)).config
        for rows, o in zip((1, 2, 3) * 2, offsets, strict=True)
    }
    configs.add(planned(view((2**20,)), segments=("offsets", view((2,), "int64"))).config)
    assert len(configs) == 1
    rows = {
        planned(of_shape((n, 2**20), *["float32"] * 2), row_initial=view((n,), strides=(n,)), **RECURRENCE).config
        for n in (1, 2, 3)
    }
    assert len(rows) == 1
