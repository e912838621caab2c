"""Requests and plans: pure functions of shapes, strides and dtypes, checked by hand and by enumeration."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from views import of_another_kind, operands, view

from cuscan import Operator, ScanTypeError, ScanValueError, plan
from cuscan.call import find_dtype, make_flags
from cuscan.checks import check_offsets
from cuscan.dtypes import DTYPES
from cuscan.initial import check_initial, check_start, initial_argument
from cuscan.interop.view import Device
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS
from cuscan.order import Order
from cuscan.plan import Port, Target, make_plan, order_of
from cuscan.request import make_request
from cuscan.specs import ArraySpec, dense_strides

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


def request(x, op="add", axis=-1, *, has_initial=False, mask=None, segments=None, row_initial=None, out=None, **flags):
    """A request for one array or a tuple of them, `x` and `out` alike. `segments` is a kind and an array."""
    return make_request(
        make_flags(op, axis, **{"reverse": False, **flags}),
        operands(x, mask, segments, row_initial, out),
        has_initial=has_initial,
    )


def planned(*arguments, **keywords):
    return make_plan(request(*arguments, **keywords), H200)


def ports(a_plan):
    """Those of all arrays, in the order of the kernel's arguments."""
    config = a_plan.config
    return (*config.values, *config.results, config.mask, config.segment_port, config.row_initial, config.last)


def accesses(a_plan):
    return tuple(port.access for port in ports(a_plan))


def dimensions(a_plan):
    """The axis, the column and the batch axes of a plan's geometry: sizes, each with its strides in bytes."""
    words, step = a_plan.geometry[: -5 - 2 * len(a_plan.config.values)], 1 + len(ports(a_plan))
    dims = [words[i : i + step] for i in range(0, len(words), step)]
    assert len(dims) == 2 + a_plan.config.batch_dims
    return dims[0], dims[1], dims[2:]


def scalars(a_plan):
    """Of a plan's geometry: rows, units, words of the workspace; number of segment offsets, their step."""
    spans = 2 * len(a_plan.config.values)
    return a_plan.geometry[-5 - spans : -spans]


def spans(a_plan):
    """What a plan's geometry ends with: from scan position 0 to the ends of each value."""
    words = a_plan.geometry[-2 * len(a_plan.config.values) :]
    return list(zip(words[::2], words[1::2], strict=True))


def dim(size, *strides, arrays=6):
    """An axis on which the arrays that are not named stand still: by default one value, one result and the rest."""
    return (size, *strides, *(0,) * (arrays - len(strides)))


ONE = dim(1)
ABSENT = Port("boolean", "None")
NONE = ("None",) * 3  # no segments, no initial value for each row, no last states


def state_of(*dtypes):
    """An operator with a state of these fields."""
    fields = {f"f{i}": dtype for i, dtype in enumerate(dtypes)}
    return Operator("user", "return earlier;", (0,) * len(fields), state=fields)


# ---- requests ------------------------------------------------------------------------------------------


def test_requests_and_plans_are_frozen_and_hashable():
    a, b = (request(view((3, 40)), mask=view((40,), "bool")) for _ in range(2))
    assert a == b and hash(a) == hash(b) and a is not b
    assert a != request(view((3, 40)), exclusive=True)
    one, other = make_plan(a, H200), make_plan(b, H200)
    assert one == other and hash(one) == hash(other) and hash(one.config) == hash(other.config)
    for thing in (a, a.values[0], a.mask, one, one.config, one.config.values[0], H200, ORDER4):
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


def test_the_longer_result_has_its_initial_value_along_the_axis():
    x = view((3, 40, 5), strides=(1, 15, 3))
    made = request(x, axis=1, include_initial=True)
    assert made.shape == (3, 40, 5) and made.include_initial is True
    assert [(r.shape, r.strides) for r in made.results] == [((3, 41, 5), (1, 15, 3))]
    indexed = request(x, INDEXED["max", "last"], axis=0, include_initial=True)
    assert [(r.dtype.name, r.shape) for r in indexed.results] == [("float32", (4, 40, 5)), ("int64", (4, 40, 5))]
    assert request(view((3, 0)), include_initial=True).result.shape == (3, 1)


def test_values_are_broadcast_against_each_other():
    b = view((6, 5, 4), "float16")
    a, values = view((5, 1)), view((6, 5, 4), "float16").strides
    made = request((a, b), LINEAR_RECURRENCE)
    assert made.shape == (6, 5, 4) and [v.strides for v in made.values] == [(0, 1, 0), values]
    assert [v.dtype.name for v in made.values] == ["float32", "float16"]
    assert [(r.dtype.name, r.strides) for r in made.results] == [("float16", (20, 4, 1))]
    pair = state_of("float32", "int8")
    made = request((view((6, 4)), view((4,), "int64")), pair, axis=0)  # of these, any may be the larger
    assert [v.strides for v in made.values] == [(4, 1), (0, 1)]
    assert [r.dtype.name for r in made.results] == ["float32", "int8"] and made.carry == "float32"
    assert request((view((4,)), view((6, 4), "int64")), pair).shape == (6, 4)
    made = request((view((6, 1)), view((1, 4), "int64")), pair, axis=0)  # or none
    assert made.shape == (6, 4) and [v.strides for v in made.values] == [(1, 0), (0, 1)]
    assert [(r.shape, r.strides) for r in made.results] == [((6, 4), (4, 1))] * 2
    turned = request((view((6, 4), strides=(1, 6)), view((1, 4), "int64")), pair)  # in the order of the larger one
    assert [r.strides for r in turned.results] == [(1, 6)] * 2


def test_rows_stand_still_along_the_axis():
    x = view((6, 5, 4), "float16")
    made = request((x, x), LINEAR_RECURRENCE, axis=1, row_initial=view((6, 1)), return_last=True)
    assert made.row_initial == ArraySpec(DTYPES["float32"], (6, 1, 4), (1, 0, 0), 0) and made.has_initial
    assert made.last == ArraySpec(DTYPES["float32"], (6, 1, 4), (4, 0, 1), 0)  # float16 is computed in float32
    made = request((view((9,)), view((9,))), LINEAR_RECURRENCE, row_initial=view((), pointer=8), return_last=True)
    assert made.row_initial == ArraySpec(DTYPES["float32"], (1,), (0,), 8) and made.last.shape == (1,)
    plain = request((x, x), LINEAR_RECURRENCE)
    assert plain.row_initial is plain.last is None and not plain.has_initial


@pytest.mark.parametrize(
    "kind, array, axis, strides",
    [
        ("reset", view((5, 7), "bool"), 0, (7, 1)),
        ("reset", view((7,), "bool"), 0, (0, 1)),
        ("reset", view((5, 1), "bool"), 0, (1, 0)),
        ("reset", view((), "bool"), 1, (0, 0)),
        ("keys", view((5, 7), "int16"), 1, (7, 1)),
        ("keys", view((5,), "int16", strides=(-3,)), 0, (-3, 0)),
        ("keys", view((7,), "int16"), 1, (0, 1)),
        ("keys", view((1,), "int16"), 1, (0, 0)),
        ("keys", view((1, 7), "int16"), 0, (0, 1)),
    ],
)
def test_segments_are_broadcast_and_keys_lie_along_the_axis(kind, array, axis, strides):
    made = request(view((5, 7)), axis=axis, segments=(kind, array)).segments
    assert made.kind == kind and made.array == ArraySpec(array.dtype, (5, 7), strides, 0)


def test_offsets_have_an_axis_of_their_own():
    made = request(view((5, 7)), segments=("offsets", view((4,), "int32", strides=(-2,), pointer=40))).segments
    assert made.kind == "offsets" and made.array == ArraySpec(DTYPES["int32"], (4,), (-2,), 8)


def test_there_is_no_nan_to_skip_in_integers():
    assert request(view((3,)), skipna=True).skip_nan is True
    assert request(view((3,), "complex64"), skipna=np.bool_(True)).skip_nan is True
    assert request(view((3,)), skipna=True, dtype="int32").skip_nan is True  # the elements are still floats
    assert request(view((3,), "int32"), skipna=True, dtype="float32").skip_nan is False
    assert request((view((3,)), view((3,), "int8")), state_of("int8", "int8"), skipna=True).skip_nan is True


def test_initial_values_of_states():
    pair = state_of("float32", "uint8")
    assert check_start(None, pair, DTYPES["float32"]) is None and check_start((1, 255), pair, DTYPES["float32"]) == (
        1,
        255,
    )
    assert check_start(3, OPERATORS["add"], DTYPES["int8"]) == (3,)
    with pytest.raises(ScanValueError, match=r"initial=256 does not fit dtype uint8 \(0 to 255\)"):
        check_start((1, 256), pair, DTYPES["float32"])
    for wrong in (1, (1,), (1, 2, 3), [1, 2]):
        with pytest.raises(ScanTypeError, match=r"^initial must be a tuple of 2 numbers for op='user'"):
            check_start(wrong, pair, DTYPES["float32"])
    for initial, number in ((None, 0), (7, 7)):
        got = initial_argument(request(view((3,))), initial)
        assert got == number and got.dtype == "float64"  # enters the carry
    made = request((view((3,)), view((3,), "uint8")), pair)
    for initial, parts in ((None, (0, 0)), ((2.5, 9), (2.5, 9))):
        got = initial_argument(made, initial)
        assert got.shape == (1,) and got.dtype.itemsize == 8 and got[0].item() == parts


def test_offsets_are_boundaries_of_the_axis():
    for good in ([0, 7], [0, 0, 3, 3, 7, 7], [0, 2, 7]):
        check_offsets(np.array(good), 7)
    check_offsets(np.array([0]), 0)
    for bad in ([0, 6], [1, 7], [0, 8], [0, 5, 4, 7], [-1, 7], [7, 0], [0]):
        with pytest.raises(ScanValueError, match=rf"^offsets must .* \(7\) .* got {bad[0]} to {bad[-1]}$"):
            check_offsets(np.array(bad), 7)


X = view((3, 4))
PAIR = state_of("float32", "int8")
ELSEWHERE = {name: of_another_kind(view((3, 4), dtype), device=Device("cuda", 1)) for name, dtype in
             {"x": "float32", "flags": "bool", "keys": "int8"}.items()}  # fmt: skip


@pytest.mark.parametrize(
    "kind, text, call",
    [
        (ScanTypeError, r"^x must be one array for op='add'; got 2", dict(x=(X, X))),
        (ScanTypeError, r"^x must be a tuple of 2 arrays .* for op='user'; got 1", dict(x=X, op=PAIR)),
        (ScanTypeError, r"^x must be a tuple of 2 arrays .* for op='user'; got 3", dict(x=(X, X, X), op=PAIR)),
        (
            ScanValueError,
            r"^a of shape \(3,\) and b of shape \(3, 4\) do not broadcast",
            dict(x=(view((3,)), X), op=LINEAR_RECURRENCE),
        ),
        (
            ScanValueError,  # they do, but to more than b
            r"^a of shape \(3, 4\) and b of shape \(4,\) do not broadcast",
            dict(x=(X, view((4,))), op=LINEAR_RECURRENCE),
        ),
        (
            ScanValueError,
            r"^x\.f0 of shape \(3,\) and x\.f1 of shape \(3, 4\) do not broadcast$",
            dict(x=(view((3,)), X), op=PAIR),
        ),
        (ScanTypeError, r"^a has dtype complex64", dict(x=(view((4,), "complex64"), X), op=LINEAR_RECURRENCE)),
        (ScanTypeError, r"^x\.f1 has dtype complex64", dict(x=(X, view((4,), "complex64")), op=PAIR)),
        (
            ScanTypeError,
            r"^op='linear_recurrence' is defined on .*; .* int32",
            dict(x=(X, X), op=LINEAR_RECURRENCE, dtype="int32"),
        ),
        (ScanTypeError, r"^op='user' has the dtypes of its state", dict(x=(X, X), op=PAIR, dtype="float32")),
        (ScanTypeError, r"^out must be 2 arrays, a tuple; got 1", dict(x=X, op=INDEXED["max", "first"], out=X)),
        (ScanTypeError, r"^out must be 1 arrays, a tuple; got 2", dict(x=X, out=(X, X))),
        (ScanTypeError, r"^out\[1\] has dtype float32; .* int8", dict(x=(X, X), op=PAIR, out=(X, X))),
        (
            ScanTypeError,
            r"^out\[0\] has dtype int8; .* float32",
            dict(x=(X, X), op=PAIR, out=(view((3, 4), "int8"),) * 2),
        ),
        (
            ScanValueError,
            r"^out\[1\] has shape \(4, 3\); .*\(3, 4\)",
            dict(x=(X, X), op=PAIR, out=(X, view((4, 3), "int8"))),
        ),
        (ScanValueError, r"^out has shape \(3, 4\); .*\(3, 5\)", dict(x=X, include_initial=True, out=X)),
        (
            ScanValueError,
            r"^out\[1\] overlaps itself",
            dict(x=(X, X), op=PAIR, out=(X, view((3, 4), "int8", strides=(0, 1)))),
        ),
        (
            ScanValueError,
            r"^out\[1\] is read-only",
            dict(x=(X, X), op=PAIR, out=(X, of_another_kind(view((3, 4), "int8"), readonly=True))),
        ),
        (ScanTypeError, r"^include_initial must be True or False; got 1", dict(x=X, include_initial=1)),
        (
            ScanTypeError,
            r"^return_last must be True or False; got 1",
            dict(x=(X, X), op=LINEAR_RECURRENCE, return_last=1),
        ),
        (ScanTypeError, r"^validate must be True or False; got 0", dict(x=X, validate=0)),
        (ScanTypeError, r"^skipna must be True or False; got None", dict(x=X, skipna=None)),
        (ScanTypeError, r"^reset must have dtype bool; got int8", dict(x=X, segments=("reset", view((4,), "int8")))),
        (
            ScanValueError,
            r"^reset of shape \(3,\) does not broadcast",
            dict(x=X, segments=("reset", view((3,), "bool"))),
        ),
        (ScanTypeError, r"^keys must be real; got complex64", dict(x=X, segments=("keys", view((4,), "complex64")))),
        (ScanValueError, r"^keys of shape \(3,\) does not broadcast", dict(x=X, segments=("keys", view((3,))))),
        (ScanValueError, r"^keys of shape \(2, 4\) does not broadcast", dict(x=X, segments=("keys", view((2, 4))))),
        (
            ScanTypeError,
            r"^offsets must have dtype int32 or int64; got uint64",
            dict(x=X, segments=("offsets", view((2,), "uint64"))),
        ),
        (
            ScanValueError,
            r"^offsets must have one axis.*\(1, 2\)",
            dict(x=X, segments=("offsets", view((1, 2), "int64"))),
        ),
        (ScanValueError, r"^offsets must have one axis.*\(\)", dict(x=X, segments=("offsets", view((), "int64")))),
        (ScanValueError, r"^offsets must have one axis.*\(0,\)", dict(x=X, segments=("offsets", view((0,), "int64")))),
        (
            ScanTypeError,
            r"^initial has dtype complex64",
            dict(x=(X, X), op=LINEAR_RECURRENCE, row_initial=view((3,), "complex64")),
        ),
        (
            ScanValueError,
            r"^initial of shape \(4,\) does not broadcast to .*\(3,\)",
            dict(x=(X, X), op=LINEAR_RECURRENCE, row_initial=view((4,))),
        ),
        (
            ScanValueError,
            r"^initial of shape \(3, 1\) does not broadcast to .*\(3,\)",
            dict(x=(X, X), op=LINEAR_RECURRENCE, row_initial=view((3, 1))),
        ),
        (ScanValueError, r"^a is on cuda:1 and x on cuda:0", dict(x=(ELSEWHERE["x"], X), op=LINEAR_RECURRENCE)),
        (ScanValueError, r"^x\.f0 is on cuda:1", dict(x=(ELSEWHERE["x"], X), op=PAIR)),
        (ScanValueError, r"^reset is on cuda:1", dict(x=X, segments=("reset", ELSEWHERE["flags"]))),
        (ScanValueError, r"^keys is on cuda:1", dict(x=X, segments=("keys", ELSEWHERE["keys"]))),
        (
            ScanValueError,
            r"^offsets is on cpu",
            dict(x=X, segments=("offsets", of_another_kind(view((2,), "int64"), device=Device("cpu", 0)))),
        ),
        (
            ScanValueError,
            r"^initial is on cuda:1",
            dict(x=(X, X), op=LINEAR_RECURRENCE, row_initial=of_another_kind(view((3,)), device=Device("cuda", 1))),
        ),
        (
            ScanValueError,
            r"^out\[0\] is on cuda:1",
            dict(x=(X, X), op=PAIR, out=(ELSEWHERE["x"], view((3, 4), "int8"))),
        ),
    ],
)
def test_what_does_not_fit_is_named(kind, text, call):
    with pytest.raises(kind, match=text):
        request(**call)


# ---- plans by hand -------------------------------------------------------------------------------------


def test_a_short_row_is_a_warp():
    made = planned(view((1000,)))
    assert made.config.family == "rows" and not made.config.grid
    assert dict(made.config.constants)["Vectors"] == 8 and dict(made.config.constants)["Lanes"] == 32
    assert made.geometry == (1000, 4, 4, 0, 0, 0, 0, *ONE, *ONE, 1, 1, 0, 0, 0, 0, 4000)
    assert made.offsets == (0,) * 6
    assert made.grid == 1 and made.workspace_words == made.workspace_bytes == 0


@pytest.mark.parametrize(
    "length, lanes, vectors", [(1, 1, 1), (4, 1, 1), (5, 2, 1), (33, 16, 1), (128, 32, 1), (129, 32, 2), (600, 32, 8)]
)
def test_rows_take_as_many_lanes_as_they_fill(length, lanes, vectors):
    constants = dict(planned(view((100, length), strides=(1001, 1))).config.constants)
    assert (constants["Lanes"], constants["Vectors"]) == (lanes, vectors)


def test_every_row_of_a_batch_is_covered():
    made = planned(view((1001, 4)))
    constants = dict(made.config.constants)
    per_block = constants["Warps"] * 32 // constants["Lanes"] * constants["RowsPerThread"]
    assert made.config.block == constants["Warps"] * 32
    assert (made.grid - 1) * per_block < 1001 <= made.grid * per_block


@pytest.mark.parametrize("rows", [2, 1001, 10**6])
@pytest.mark.parametrize("length", [1, 3, 33, 255, 1001])
def test_every_dense_row_is_covered(length, rows):
    made = planned(view((rows, length)))
    constants = dict(made.config.constants)
    assert constants["Rows"] * constants["Longest"] * 4 <= 32 * 1024
    assert (made.grid - 1) * constants["Rows"] < rows <= made.grid * constants["Rows"]


DENSE = {
    "odd rows": (view((100, 7)), {}, "thread_rows"),
    "mirrored": (view((100, 7)), {"reverse": True}, "thread_rows"),
    "halves of words": (view((100, 31), "float16"), {}, "thread_rows"),
    "longer rows": (view((100, 65)), {}, "warp_rows"),
    "misaligned rows": (view((100, 256), pointer=4), {}, "warp_rows"),
    "one row": (view((1001,), pointer=4), {}, "warp_rows"),
    "outer axes": (view((10, 10, 7)), {}, "thread_rows"),
    "a dense mask": (view((100, 7)), {"mask": view((100, 7), "bool")}, "thread_rows"),
    "aligned rows": (view((100, 16)), {}, "rows"),
    "gaps": (view((100, 7), strides=(8, 1)), {}, "rows"),
    "strided": (view((100, 7), strides=(14, 2)), {}, "rows"),
    "opposite": (view((100, 7), strides=(7, -1)), {}, "rows"),
    "rows upside down": (view((100, 7), strides=(-7, 1)), {}, "rows"),
    "a broadcast mask": (view((100, 7)), {"mask": view((7,), "bool")}, "rows"),
    "the same banks": (view((100, 16), pointer=4), {}, "rows"),
}


@pytest.mark.parametrize("value, call, family", DENSE.values(), ids=DENSE)
def test_dense_rows_that_are_not_aligned_pass_through_shared_memory(value, call, family):
    assert planned(value, **call).config.family == family
    assert make_plan(request(value, **call), Target(80, 108)).config.family == "rows"


def test_a_result_takes_the_place_of_its_value_where_they_lie_alike():
    def constants(of, **call):
        return dict(planned(of, **call).config.constants)

    assert constants(view((100, 7)))["InPlace"]
    assert not constants(view((100, 7), pointer=4))["InPlace"]
    assert not constants(view((100, 7), "float16"), dtype="float32")["InPlace"]


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
    assert (made.config.family, made.config.grid, scalars(made)[1]) == (family, units > 1, units)
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
    assert made.config.grid and scalars(made) == (math.prod(call["x"].shape[:-1]), units, words, 0, 0)
    assert made.workspace_words == words
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


def test_tiles_are_sent_for_in_bulk_where_they_are_whole_and_aligned_or_dense():
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
    assert [name for name, bulk in staged.items() if bulk] == ["row", "rows", "odd rows", "misaligned"]
    assert not make_plan(request(view((9, 10001))), Target(80, 108)).config.staged
    old = make_plan(request(view((2**20,))), Target(80, 108)).config
    assert not old.staged and old.shared_bytes == plan.SHARED_REST + 2 * (8 * 4 + 8) + plan.STAGES * 16


@pytest.mark.parametrize(
    "call, expected, staged",
    [
        (dict(x=view((9, 10001))), ("Shifted", "Shifted"), True),
        (dict(x=view((9, 10001)), reverse=True), ("ShiftedMirrored", "ShiftedMirrored"), True),
        (dict(x=view((9, 4097))), ("Shifted", "Shifted"), True),  # less than a tile
        (dict(x=view((9, 5000))), ("Vector", "Vector"), False),
        (dict(x=view((9, 10000), strides=(10001, 1))), ("Shifted", "Vector"), True),
        (dict(x=view((9, 10000), strides=(10004, -1), pointer=9999 * 4)), ("Mirrored", "Vector"), True),
        (dict(x=view((9, 10000), strides=(10000, -1), pointer=10000 * 4)), ("ShiftedMirrored", "Vector"), True),
        (dict(x=view((9, 10001), strides=(10004, 1))), ("Vector", "Shifted"), True),
        (dict(x=view((9, 10000)), out=view((9, 10000), pointer=4)), ("Vector", "Shifted"), True),
        (dict(x=view((9, 10000)), out=view((9, 10000), strides=(20000, 2))), ("Vector", "Element"), True),
        (dict(x=view((9, 10001), strides=(20002, 2))), ("Element", "Shifted"), False),
        (dict(x=view((9, 10001), strides=(1, 0))), ("Uniform", "Shifted"), False),
        (dict(x=view((2**20,), "float32", pointer=8), dtype="float64"), ("Shifted", "Vector"), True),  # 8 of 16 bytes
        (dict(x=view((9, 10001), "complex128")), ("Vector", "Vector"), True),
    ],
)
def test_rows_that_are_dense_may_begin_anywhere(call, expected, staged):
    mask = view(call["x"].shape, "bool")
    made = planned(**call, mask=mask)
    assert accesses(made)[:2] == expected and made.config.staged == staged
    assert accesses(made)[2] in ("Vector", "Mirrored", "Element")
    old = make_plan(request(**call), Target(80, 108))
    assert not any("Shifted" in access for access in accesses(old))


def test_values_are_shifted_all_or_none():
    a, b, odd = view((9, 10000)), view((9, 10000), pointer=4), view((9, 10000), strides=(20000, 2))
    first = view((9, 1), strides=(3, 1), pointer=4)
    plans = [planned(pair, **RECURRENCE) for pair in ((a, a), (a, b), (b, a), (b, odd), (first, b))]
    assert [accesses(made)[:2] for made in plans] == [
        ("Vector", "Vector"),
        ("Shifted", "Shifted"),
        ("Shifted", "Shifted"),
        ("Element", "Element"),
        ("Uniform", "Shifted"),
    ]
    assert [made.config.staged for made in plans] == [True, True, True, False, True]
    rooms = [made.config.shared_bytes - plans[0].config.shared_bytes for made in plans[:3]]
    assert rooms == [0, *[plan.STAGES * 2 * plan.BULK_BYTES] * 2]


def test_a_plan_knows_where_its_values_end():
    assert spans(planned(view((9, 10001)))) == [(0, 9 * 10001 * 4)]
    assert spans(planned(view((9, 10001)), reverse=True)) == [(-40000, 8 * 40004 + 4)]
    assert spans(planned(view((9, 1000), strides=(-2000, -2)))) == [(-8 * 8000 - 999 * 8, 4)]
    assert spans(planned(view((9, 10000)), include_initial=True)) == [(0, 9 * 40000)]
    assert spans(planned((view((9, 1), strides=(3, 1)), view((9, 10000))), **RECURRENCE)) == [(0, 100), (0, 9 * 40000)]


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


def test_more_tiles_than_tickets_are_refused():
    with pytest.raises(ScanValueError, match="x is too large"):
        planned(view((2**46,)))
    assert planned(view((2**32, 8193))).config.grid is False


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
    assert made.config.family == "columns" and dimensions(made)[1] == dim(20, 4, 4)
    assert order_of(request(fortran, axis=2)) == Order(8, 1, 1)


def test_the_layout_of_the_result_decides():
    out = view((40, 50), strides=(1, 40))
    assert planned(view((40, 50)), axis=1, out=out).config.family == "columns"
    assert planned(view((40, 50)), axis=0, out=out).config.family == "rows"
    assert order_of(request(view((40, 50)), axis=0, out=out)) is ORDER4


def test_a_reversed_scan_runs_along_negative_strides():
    mask = view((1024,), "bool")
    made = planned(view((1024,)), reverse=True, mask=mask)
    assert dimensions(made)[0] == dim(1024, -4, -4, -1)
    assert made.offsets == (4092, 4092, 1023, 0, 0, 0)
    assert accesses(made) == ("Mirrored", "Mirrored", "Mirrored", *NONE)
    twice = planned(view((1024,), strides=(-1,), pointer=1023 * 4), reverse=True)
    assert dimensions(twice)[0] == dim(1024, 4, -4) and twice.offsets == (-4092, 4092, 0, 0, 0, 0)
    assert accesses(twice)[:2] == ("Vector", "Mirrored")


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
        (dict(x=view((1000,), strides=(0,))), ("Uniform", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=999 * 4)), ("Mirrored", "Vector", "None")),
        (dict(x=view((1000,), strides=(-1,), pointer=1000 * 4)), ("Element", "Vector", "None")),
        (dict(x=view((1000,)), reverse=True), ("Mirrored", "Mirrored", "None")),
        (dict(x=view((1001,)), reverse=True), ("Element", "Element", "None")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=4)), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,)), mask=view((1000,), "bool", pointer=2)), ("Vector", "Vector", "Element")),
        (dict(x=view((1000,)), mask=view((1,), "bool")), ("Vector", "Vector", "Uniform")),
        (dict(x=view((8, 1000)), mask=view((1000,), "bool")), ("Vector", "Vector", "Vector")),
        (dict(x=view((1000,), "int8"), dtype="int32"), ("Vector", "Vector", "None")),
        (dict(x=view((9, 1000), "int8"), dtype="int8"), ("Element", "Element", "None")),
    ],
)
def test_vectors_are_used_where_all_of_them_are_aligned(call, expected):
    assert accesses(make_plan(request(**call), Target(80, 108))) == (*expected, *NONE)  # no bulk copies


def test_columns_by_hand():
    made = planned(view((1000, 64)), axis=0)
    constants = dict(made.config.constants)
    assert made.config.family == "columns" and made.config.items == 4 and made.config.grid
    assert (constants["Chunks"], constants["Steps"]) == (32, 8)
    assert accesses(made) == ("Vector", "Vector", "None", *NONE)
    assert scalars(made)[:2] == (1, 4)
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
            config.results[0].access,
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


# ---- several arrays ------------------------------------------------------------------------------------


def of_shape(shape, *dtypes):
    return tuple(view(shape, dtype) for dtype in dtypes)


RECURRENCE = dict(op=LINEAR_RECURRENCE)


@pytest.mark.parametrize(
    "dtypes, op, expected",
    [
        # Bytes of the values of a unit: of 8,192 elements of 8 bytes each they are 64 KiB, of 4,096 they are 32 KiB.
        (["float32", "float32"], LINEAR_RECURRENCE, Order(4, 4, 8)),
        (["float16", "float16"], LINEAR_RECURRENCE, Order(8, 4, 8)),  # 8,192 of 4
        (["float16", "float32"], LINEAR_RECURRENCE, Order(4, 4, 8)),  # 8,192 of 6 are too many
        (["float64", "float32"], LINEAR_RECURRENCE, Order(2, 4, 8)),  # the result is float32; 4,096 of 12
        (["float64", "float64"], LINEAR_RECURRENCE, Order(2, 4, 8)),
        (["complex64", "complex64"], LINEAR_RECURRENCE, Order(2, 4, 8)),
        (["complex128", "complex128"], LINEAR_RECURRENCE, Order(1, 4, 8)),
        (["float32"] * 3, state_of(*["float32"] * 3), Order(4, 2, 8)),  # 24 KiB
        (["float32"] * 4, state_of(*["float32"] * 4), Order(4, 2, 8)),
        (["int8"] * 2, state_of("int8", "int8"), Order(16, 4, 8)),  # 16,384 of 2
        (["int8"] * 16, state_of(*["int8"] * 16), Order(16, 1, 4)),  # one vector is the least
        (["int8"], INDEXED["max", "first"], Order(2, 8, 8)),  # the indices are results of 8 bytes
        (["float64"], INDEXED["min", "last"], Order(2, 8, 8)),
        (["int8"] * 2, state_of("int8", "int64"), Order(2, 8, 8)),
    ],
)
def test_units_shrink_to_32_KiB_of_values(dtypes, op, expected):
    made = request(of_shape((99,), *dtypes), op)
    assert order_of(made) == expected
    constants = dict(make_plan(request(of_shape((10**6,), *dtypes), op), H200).config.constants)
    assert constants["Vectors"] == expected.vectors and constants["Warps"] == expected.warps


def test_the_order_does_not_depend_on_what_is_broadcast_or_beside_the_values():
    b = view((9, 10_000))
    full = order_of(request((b, b), **RECURRENCE))
    for a in (view(()), view((10_000,)), view((9, 1)), view((9, 10_000), strides=(40_000, 3))):
        assert order_of(request((a, b), **RECURRENCE)) == full
    extra = dict(row_initial=view((9,)), return_last=True, segments=("keys", view((10_000,), "float64")))
    assert order_of(request((b, b), mask=view((10_000,), "bool"), **extra, **RECURRENCE)) == full
    assert order_of(request(b, segments=("keys", view((10_000,), "float64")))) is ORDER4
    assert order_of(request((b, b), axis=0, **RECURRENCE)) == Order(8, 1, 1)


@pytest.mark.parametrize(
    "length, family, warps, units",
    [(512, "rows", 4, 1), (513, "tiles", 2, 1), (1025, "tiles", 4, 1), (4096, "tiles", 8, 1), (4097, "tiles", 8, 2)],
)
def test_rows_of_two_values_are_half_as_long(length, family, warps, units):
    made = planned(of_shape((length,), "float32", "float32"), **RECURRENCE)
    assert (made.config.family, made.config.grid, scalars(made)[1]) == (family, units > 1, units)
    assert dict(made.config.constants)["Warps"] == warps


def test_every_array_is_a_port():
    float32 = Port("float32", "Vector")
    made = planned(view((1000,)), mask=view((1000,), "bool"), segments=("reset", view((1000,), "bool", pointer=1)))
    assert ports(made) == (float32, float32, Port("boolean", "Vector"), Port("boolean", "Element"), ABSENT, ABSENT)
    made = planned(view((1000,), "float16"), INDEXED["max", "first"], segments=("keys", view((1000,), "bfloat16")))
    assert made.config.values == (Port("float16", "Vector"),)
    assert made.config.results == (Port("float16", "Vector"), Port("int64", "Vector"))
    assert ports(made)[3:] == (ABSENT, Port("bfloat16", "Vector"), ABSENT, ABSENT)
    pair = (view((1000,), "bool"), view((1000,), "int64", strides=(-1,), pointer=999 * 8))
    made = planned(pair, PAIR, out=(view((1000,), pointer=4), view((1000,), "int8")))
    assert made.config.values == (Port("boolean", "Vector"), Port("int64", "Mirrored"))
    assert made.config.results == (Port("float32", "Shifted"), Port("int8", "Vector"))
    assert str(float32) == "Port<float32, Access::kVector>" and str(ABSENT) == "Port<boolean, Access::kNone>"


def test_rows_of_initial_and_last_states_by_hand():
    arrays = of_shape((3, 500), "float16", "float16")
    made = planned(arrays, row_initial=view((3,), strides=(5,)), return_last=True, **RECURRENCE)
    axis, column, batch = dimensions(made)
    assert axis == dim(500, 2, 2, 2, arrays=7) and column == dim(1, arrays=7)
    assert batch == [dim(3, 1000, 1000, 1000, 0, 0, 20, 4, arrays=7)]
    assert ports(made)[5:] == (Port("float32", "Uniform"), Port("float32", "Uniform")) and made.config.has_initial
    back = planned(arrays, row_initial=view((3,)), return_last=True, reverse=True, **RECURRENCE)
    assert back.offsets == (998, 998, 998, 0, 0, 0, 0) and dimensions(back)[0] == dim(500, -2, -2, -2, arrays=7)

    arrays = of_shape((1000, 64), "float32", "float32")
    made = planned(arrays, axis=0, row_initial=view((64,)), return_last=True, **RECURRENCE)
    axis, column, batch = dimensions(made)
    assert made.config.family == "columns" and made.config.items == 2  # two states of 8 bytes
    assert axis == dim(1000, 256, 256, 256, arrays=7) and batch == [dim(1, arrays=7)]
    assert column == (64, 4, 4, 4, 0, 0, 4, 4)
    assert accesses(made) == ("Vector",) * 3 + ("None",) * 2 + ("Vector",) * 2
    broadcast = planned(arrays, axis=0, row_initial=view(()), **RECURRENCE)
    assert accesses(broadcast)[5:] == ("Uniform", "None")
    # 4 units of 64 columns: states of 2 words, carries of 4 in one group and one section.
    assert scalars(made) == (1, 4, 64 * (4 * 2 + 4 + 4 + 4), 0, 0)
    # 32 chunks of 8 threads of 2 columns, a pad, and a word.
    assert made.config.shared_bytes == 32 * ((8 * 2 + 1) * 8 + 4) + plan.SHARED_REST


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
        (["float16"], "logaddexp", False, 8, 16),
        (["float16"], "logaddexp", True, 12, 24),
        (["float32"], INDEXED["max", "first"], False, 8, 8),
        (["float64"], INDEXED["max", "first"], False, 16, 16),  # 32 bits of index, and a pad
        (["int8"], INDEXED["max", "first"], True, 12, 12),
        (["int64"], INDEXED["max", "first"], True, 24, 24),
        (["float32"] * 2, LINEAR_RECURRENCE, False, 8, 16),
        (["float32"] * 2, LINEAR_RECURRENCE, True, 12, 24),
        (["float64"] * 2, LINEAR_RECURRENCE, True, 24, 24),
        (["complex64"] * 2, LINEAR_RECURRENCE, False, 16, 32),
        (["complex64"] * 2, LINEAR_RECURRENCE, True, 24, 48),
        (["complex128"] * 2, LINEAR_RECURRENCE, False, 32, 32),
        (["complex128"] * 2, LINEAR_RECURRENCE, True, 48, 48),
        (["int8"], state_of("int8"), False, 1, 1),
        (["int8"], state_of("int8"), True, 8, 8),  # the mark is 4 bytes, and aligned to them
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


@pytest.mark.parametrize(
    "dtypes, op, marked, units, tables",
    [
        # Of 2**20 elements: words of the aggregates of units and groups, of those of sections and of their carries.
        (["float32"] * 2, LINEAR_RECURRENCE, False, 256, (256 * 2, 8 * 4, 4, 4)),
        (["float32"], "logaddexp", False, 256, (256 * 2, 8 * 4, 4, 4)),
        (["float32"], INDEXED["max", "first"], False, 256, (256 * 2, 8 * 2, 2, 2)),
        (["float64"], INDEXED["max", "first"], False, 256, (256 * 4, 8 * 4, 4, 4)),
        (["float32"], "add", True, 128, (128 * 2, 4 * 4, 4, 4)),
        (["float32"], "max", True, 128, (128 * 2, 4 * 2, 2, 2)),
        (["complex64"], "add", True, 256, (256 * 4, 8 * 8, 8, 8)),
        (["complex128"], "add", True, 512, (512 * 8, 16 * 8, 8, 8)),
        (["float64"] * 2, LINEAR_RECURRENCE, True, 512, (512 * 6, 16 * 6, 6, 6)),
        (["complex64"] * 2, LINEAR_RECURRENCE, True, 512, (512 * 6, 16 * 12, 12, 12)),
        (["complex128"] * 2, LINEAR_RECURRENCE, True, 1024, (1024 * 12, 32 * 12, 12, 12)),
        (["int32", "int8"], state_of("int32", "int8"), True, 256, (256 * 3, 8 * 3, 3, 3)),
        (["int8"], state_of("int8"), False, 64, (64, 2, 1, 1)),
    ],
)
def test_the_workspace_of_a_chain_of_structs(dtypes, op, marked, units, tables):
    segments = ("reset", view((2**20,), "bool")) if marked else None
    for rows in (1, 2):  # a table of each kind for all rows, filled up to an even number
        words = sum(rows * table + rows * table % 2 for table in tables)
        made = planned(of_shape((rows, 2**20), *dtypes), op, segments=segments)
        assert made.config.grid and scalars(made) == (rows, units, words, 0, 0)
        assert made.workspace_bytes == plan.HEADER_BYTES + 8 * words


def test_indices_have_32_bits_where_that_is_enough():
    small, large = (planned(view((n,)), INDEXED["min", "last"]) for n in (2**32 - 1, 2**32))
    assert small.config.op == small.config.carry_op == "Extremum<float32, uint32, -1, true>"
    assert large.config.op == large.config.carry_op == "Extremum<float32, int64, -1, true>"
    assert (small.config.state_bytes, large.config.state_bytes) == (8, 16)
    assert scalars(large)[1:3] == (2**20, 2**20 * 4 + 2**15 * 4 + 2**10 * 4 + 2**10 * 4)
    assert planned(view((2**32 - 1,)), INDEXED["min", "last"], include_initial=True).config.index == "int64"


@pytest.mark.parametrize("op, dtype", [(LINEAR_RECURRENCE, "complex128"), (state_of("int8", "int8"), "int8")])
def test_columns_of_large_and_small_states(op, dtype):
    for width, segments in itertools.product((2, 3, 64), (None, ("keys", view((1000,), "int32")))):
        config = planned(of_shape((1000, width), dtype, dtype), op, axis=0, segments=segments).config
        assert config.family == "columns" and config.blocks_per_sm * config.block in (512, 1024)
        assert config.items * DTYPES[dtype].itemsize <= 16


def test_columns_of_a_state_of_one_byte():
    for width, items in ((2, 2), (3, 1), (16, 16), (64, 16)):
        config = planned(view((1000, width), "int8"), state_of("int8"), axis=0).config
        assert (config.family, config.items, config.state_bytes) == ("columns", items, 1)


def test_uniform_values_take_next_to_no_shared_memory():
    """A place in each stage, of one vector."""
    b = view((9, 2**20))
    tile = 8 * 4 * 32 * 4  # warps, vectors, lanes, items
    held = {
        name: planned((a, b), **RECURRENCE)
        for name, a in {
            "full": b,
            "strided": view((9, 2**20), strides=(2**21, 2)),
            "scalar": view((), pointer=4),
            "row": view((9, 1), strides=(3, 1), pointer=4),
            "along": view((2**20,)),
        }.items()
    }
    assert {name: accesses(made)[0] for name, made in held.items()} == {
        "full": "Vector", "strided": "Element", "scalar": "Uniform", "row": "Uniform", "along": "Vector",
    }  # fmt: skip
    rest = plan.SHARED_REST + 2 * (8 * 8 + 16)  # aggregates of 8 warps, a carry; two of each
    assert {name: (made.config.shared_bytes - rest) / plan.STAGES for name, made in held.items()} == {
        "full": 8 * tile, "strided": 8 * tile, "scalar": 4 * tile + 16, "row": 4 * tile + 16, "along": 8 * tile,
    }  # fmt: skip
    assert [name for name, made in held.items() if not made.config.staged] == ["strided"]
    assert dimensions(held["row"])[2] == [dim(9, 12, 2**22, 2**22, arrays=7)]
    still = planned((view(()), view((2**20,), strides=(0,))), **RECURRENCE).config
    assert not still.staged and still.shared_bytes == rest + plan.STAGES * 2 * 16


def test_uniform_is_a_matter_of_the_axis_that_vectors_run_along():
    x = view((1000, 64))
    columns = [planned((a, x), axis=0, **RECURRENCE) for a in (view(()), view((1000, 1)), view((64,)))]
    assert [accesses(made)[:3] for made in columns] == [("Uniform", "Vector", "Vector")] * 2 + [("Vector",) * 3]
    assert [dimensions(made)[0][1] for made in columns] == [0, 4, 0]
    reverse = planned(view((5, 100)), mask=view((5, 1), "bool", pointer=3), reverse=True)
    assert accesses(reverse)[:3] == ("Mirrored", "Mirrored", "Uniform") and reverse.offsets[2] == 0
    segments = [planned(x, segments=("keys", keys)) for keys in (view((1, 1)), view((1000, 1)), view((1, 64)))]
    assert [accesses(made)[3] for made in segments] == ["Uniform", "Uniform", "Vector"]


@pytest.mark.parametrize(
    "keys, access",
    [
        (view((3, 1000), "float64"), "Vector"),  # 4 items are 32 bytes: two accesses of 16
        (view((3, 1000), "float64", pointer=16), "Vector"),
        (view((3, 1000), "float64", pointer=8), "Element"),
        (view((3, 1000), "float64", strides=(1002, 1)), "Vector"),
        (view((3, 1000), "float64", strides=(1001, 1)), "Element"),
        (view((3, 1000), "int16", strides=(1004, 1)), "Vector"),
        (view((3, 1000), "int16", strides=(1002, 1)), "Element"),
        (view((3, 1000), "int16", strides=(1000, -1), pointer=999 * 2), "Mirrored"),
        (view((3, 1000), "int16", strides=(-1000, 1)), "Vector"),
        (view((3, 1000), "int16", strides=(2000, 2)), "Element"),
        (view((1000,), "int8", pointer=4), "Vector"),
        (view((1000,), "int8", pointer=2), "Element"),
    ],
)
def test_wider_vectors_are_aligned_to_one_access(keys, access):
    made = planned(view((3, 1000)), segments=("keys", keys))
    assert accesses(made) == ("Vector", "Vector", "None", access, "None", "None")


def test_the_longer_result_by_hand():
    made = planned(view((3, 1000)), include_initial=True)
    assert dimensions(made) == (dim(1001, 4, 4), ONE, [dim(3, 4000, 4004)]) and made.offsets == (0,) * 6
    assert accesses(made)[:2] == ("Vector", "Element")
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
    lengths = [(1023, "rows", 1), (1024, "tiles", 1), (8191, "tiles", 1), (8192, "tiles", 2)]
    for length, family, units in lengths:
        made = planned(view((length,)), include_initial=True)
        assert (made.config.family, scalars(made)[1], dimensions(made)[0][0]) == (family, units, length + 1)
    assert scalars(planned(view((256, 64)), axis=0, include_initial=True))[1] == 2
    for reverse in (False, True):  # nothing but the initial value
        made = planned(view((3, 0)), include_initial=True, reverse=reverse)
        assert dimensions(made)[0][0] == 1 and scalars(made)[:2] == (3, 1) and made.offsets[1] == 0
    for shape, axis in (((1, 50), 0), ((50, 1), 1)):
        made = planned(view(shape), axis=axis, include_initial=True)
        assert dimensions(made)[0][0] == 2 and made.config.family == ("columns", "rows")[axis]


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("include_initial", [False, True])
def test_flags_of_the_kernel(exclusive, include_initial):
    made = planned(view((100,)), exclusive=exclusive, include_initial=include_initial, skipna=include_initial).config
    assert made.exclusive == (exclusive or include_initial) and made.shows_segment_starts == exclusive
    assert made.includes_initial == include_initial == made.skips_nan


@pytest.mark.parametrize(
    "offsets, words",
    [
        (view((6,), "int32"), (6, 4)),
        (view((6,), "int64"), (6, 8)),
        (view((1,), "int64"), (1, 8)),
        (view((6,), "int32", strides=(3,)), (6, 12)),
        (view((6,), "int64", strides=(-2,), pointer=80), (6, -16)),
        (view((6,), "int64", strides=(0,)), (6, 0)),
    ],
)
def test_offsets_are_two_words_of_the_geometry(offsets, words):
    for reverse in (False, True):
        made = planned(view((3, 1000)), segments=("offsets", offsets), reverse=reverse)
        step = -4 if reverse else 4
        assert scalars(made) == (3, 1, 0, *words)
        assert dimensions(made) == (dim(1000, step, step), ONE, [dim(3, 4000, 4000)])
        assert made.offsets == ((3996, 3996, 0, 0, 0, 0) if reverse else (0,) * 6)
        assert made.config.segment_port == Port(offsets.dtype.name, "Element")
        assert made.config.segments == "Offsets" and made.config.reverse == reverse
    chain = planned(view((10**6,)), segments=("offsets", offsets))
    assert scalars(chain) == (1, 123, chain.workspace_words, *words) and chain.workspace_words > 0
    columns = planned(view((1000, 64)), axis=0, segments=("offsets", offsets))
    assert columns.config.family == "columns" and scalars(columns)[-2:] == words


def test_bits_of_segment_starts_lie_in_shared_memory():
    offsets = ("offsets", view((6,), "int64"))
    rows = {dtype: planned(view((1000,), dtype), "max", segments=offsets).config for dtype in ("int8", "float32")}
    assert {dtype: config.shared_bytes for dtype, config in rows.items()} == {
        "int8": 128 * 4,  # 16 items of 2 vectors: a word for each thread
        "float32": 128 * 4,
    }
    assert planned(view((2048,), "int8"), "max", segments=offsets).config.shared_bytes == 128 * 2 * 4
    for segments in (None, ("keys", view((1000,)))):
        assert planned(view((1000,)), segments=segments).config.shared_bytes == plan.ROWS_SHARED
    plain, marked = (planned(view((2**20,)), segments=segments).config for segments in (None, offsets))
    assert marked.shared_bytes - plain.shared_bytes == 8 * 32 * 4 + 2 * (8 * 4 + 8)  # and states with a mark


def test_what_a_kernel_knows_of_segments():
    x, flags = view((1000,)), view((1000,), "bool")
    kinds = {
        "Reset": ("reset", flags),
        "Keys": ("keys", flags),
        "Offsets": ("offsets", view((2,), "int32")),
        "None": None,
    }
    for name, segments in kinds.items():
        config = planned(x, segments=segments, has_initial=True, reverse=True).config
        assert config.segments == name and config.segments_have_initial == (segments is not None)
        assert config.reverse == (name == "Offsets")
        assert not planned(x, segments=segments).config.segments_have_initial
        assert not planned((x, x), segments=segments, has_initial=True, **RECURRENCE).config.segments_have_initial
        assert planned(x, INDEXED["max", "first"], segments=segments, reverse=True).config.reverse
        assert segments is None or scalars(planned(x, segments=segments))[-2:] == (
            (2, 4) if name == "Offsets" else (0, 0)
        )


def test_several_arrays_fit_in_the_shared_memory_of_an_sm():
    segments = [None, ("offsets", view((9,), "int64"))]
    calls = [(["complex128"] * 2, LINEAR_RECURRENCE), (["float32", "complex64"], LINEAR_RECURRENCE)]
    calls += [([dtype] * n, state_of(*[dtype] * n)) for dtype, n in (("int8", 16), ("float32", 4), ("float64", 2))]
    for (dtypes, op), where in itertools.product(calls, segments):
        config = planned(of_shape((2**20,), *dtypes), op, segments=where).config
        taken = config.blocks_per_sm * (config.shared_bytes + plan.SHARED_RESERVED)
        assert config.staged and taken <= H200.shared_bytes, (dtypes, where)


@pytest.mark.parametrize("fields", [2, 4, 8, 16])
def test_several_arrays_fit_in_the_shared_memory_of_a_small_gpu(fields):
    small = Target(120, 170, shared_bytes=100 * 1024)
    arrays, op = of_shape((2**20,), *["int8"] * fields), state_of(*["int8"] * fields)
    for segments in (None, ("offsets", view((9,), "int64"))):
        config = make_plan(request(arrays, op, segments=segments), small).config
        assert config.shared_bytes + plan.SHARED_RESERVED <= small.shared_bytes


def test_a_kernel_is_compiled_once_for_many_segments_and_rows():
    offsets = [view((n,), "int32", strides=(step,)) for n, step in itertools.product((1, 2, 1000), (1, 3))]
    configs = {
        planned(view((rows, 2**20)), segments=("offsets", o)).config
        for rows, o in zip((1, 2, 3) * 2, offsets, strict=True)
    }
    assert len(configs) == 1
    assert planned(view((2**20,)), segments=("offsets", view((2,), "int64"))).config not in configs
    rows = {
        planned(of_shape((n, 2**20), *["float32"] * 2), row_initial=view((n,), strides=(n,)), **RECURRENCE).config
        for n in (1, 2, 3)
    }
    assert len(rows) == 1


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


KINDS = {
    # Dtypes of the values and of the results.
    "add": ("add", None, None),
    "max with indices": (INDEXED["max", "first"], None, None),
    "linear recurrence": (LINEAR_RECURRENCE, None, None),
    "user": (PAIR, ("int16", "float64"), ("float32", "int8")),
}


@settings(max_examples=500, deadline=None)
@given(data=st.data())
def test_a_plan_visits_every_element_once_in_scan_order(data):
    draw = data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4)))
    axis, reverse, longer = draw(st.integers(0, len(shape) - 1)), draw(st.booleans()), draw(st.booleans())
    kind = draw(st.sampled_from(sorted(KINDS)))
    op, dtypes, result_dtypes = KINDS[kind]
    if dtypes is None:
        all_dtypes = {"add": ["int8", "float16", "float32", "float64", "complex128"]}
        all_dtypes["max with indices"] = all_dtypes["add"][:-1]
        all_dtypes["linear recurrence"] = all_dtypes["add"][1:]
        dtype = draw(st.sampled_from(all_dtypes[kind]))
        dtypes = ("float16", dtype) if op is LINEAR_RECURRENCE else (dtype,)
        result_dtypes = tuple(
            d.name for d in request(of_shape((1,), *dtypes), op, dtype=dtype).op.results(DTYPES[dtype])
        )
    longer = longer and op is not LINEAR_RECURRENCE
    full = tuple(n + (longer and i == axis) for i, n in enumerate(shape))
    row = shape[:axis] + shape[axis + 1 :]

    def array(shape, dtype, broadcast=False):
        return view(shape, dtype, *lay_out(draw, shape, DTYPES[dtype].itemsize, broadcast=broadcast))

    values = tuple(array(shape, dtype, True) for dtype in dtypes)
    outs = tuple(array(full, dtype) for dtype in result_dtypes)
    mask = array(shape, "bool", True) if draw(st.booleans()) else None
    flag_dtype = {"reset": "bool", "keys": draw(st.sampled_from(["int8", "int32", "float64"]))}
    segments = draw(st.sampled_from([None, "reset", "keys", "offsets"]))
    flags = array(shape, flag_dtype[segments], True) if segments in flag_dtype else None
    offsets = view((3,), "int64", strides=(2,)) if segments == "offsets" else None
    rows = array(row, "float32", True) if op is LINEAR_RECURRENCE and draw(st.booleans()) else None
    keeps_last = op is LINEAR_RECURRENCE and draw(st.booleans())
    made = make_plan(
        request(
            values,
            op,
            axis,
            reverse=reverse,
            include_initial=longer,
            mask=mask,
            segments=segments and (segments, offsets if flags is None else flags),
            row_initial=rows,
            return_last=keeps_last,
            out=outs,
        ),
        H200,
    )
    last = view(row, DTYPES[result_dtypes[0]].accumulator) if keeps_last else None
    arrays = [*values, *outs, mask, flags, rows, last]
    assert [a is not None for a in arrays] == [
        p.access != "None" and not (segments == "offsets" and p is made.config.segment_port) for p in ports(made)
    ]

    def places(index):
        """For each array: the byte offsets of its elements in one row, in scan order."""
        for a in arrays:
            if a is None:
                yield (0,)
                continue
            size, along = a.dtype.itemsize, len(a.shape) == len(shape)
            strides = a.strides[:axis] + a.strides[axis + 1 :] if along else a.strides
            start = sum(i * s for i, s in zip(index, strides, strict=True))
            positions = range(a.shape[axis])[:: -1 if reverse else 1] if along else (0,)
            yield tuple((start + p * (a.strides[axis] if along else 0)) * size for p in positions)

    def visited(index):
        """The same, as the kernels find them."""
        for k, a in enumerate(arrays):
            start = made.offsets[k] + sum(i * d[1 + k] for i, d in zip(index, outer, strict=True))
            step = dims[0][1 + k]
            along = a is not None and len(a.shape) == len(shape)
            assert along or step == 0
            yield tuple(start + p * step for p in range(a.shape[axis] if along else 1))

    dims = dimensions(made)
    outer = [dims[1], *dims[2]]
    assert dims[0][0] == full[axis]
    for k, (value, (lowest, end)) in enumerate(zip(values, spans(made), strict=True)):
        every = [place for index in walk(row) for place in list(places(index))[k]]
        assert (lowest + made.offsets[k], end + made.offsets[k]) == (min(every), max(every) + value.dtype.itemsize)
    got, expected = [tuple(visited(i)) for i in walk([d[0] for d in outer])], [tuple(places(i)) for i in walk(row)]
    assert sorted(got) == sorted(expected)
    assert scalars(made)[0] == math.prod(d[0] for d in dims[2])
    assert scalars(made)[3:] == ((3, 16) if segments == "offsets" else (0, 0))
    check = check_units if made.config.family in ("thread_rows", "warp_rows") else check_vectors
    check(made, dims, arrays)


def check_units(made, dims, arrays):
    """Rows are dense, and a thread's rows begin at multiples of what it reads and writes at once."""
    constants, length = dict(made.config.constants), dims[0][0]
    for k, (name, array) in enumerate(zip(("ValueUnit", "ResultUnit", "MaskUnit"), arrays[:3], strict=True)):
        if array is None:
            continue
        size = array.dtype.itemsize
        back = {"Vector": 0, "Mirrored": length - 1}[accesses(made)[k]]
        assert all(dim[1 + k] == length * size or dim[0] == 1 for dim in dims[2])
        if made.config.family == "thread_rows":
            unit = constants[name] * size
            assert (array.pointer + made.offsets[k] - back * size) % unit == 0
            assert constants["Side"] * length * size % unit == 0 and constants["Rows"] % constants["Side"] == 0


def check_vectors(made, dims, arrays):
    """Whole vectors begin (mirrored ones: end) at multiples of their size, or of 16, wherever the kernel looks."""
    items = made.config.items
    along, others = (dims[1], [dims[0], *dims[2]]) if made.config.family == "columns" else (dims[0], dims[2])
    for k, array in enumerate(arrays):
        access = ports(made)[k].access
        if array is None or access == "Element" or "Shifted" in access:
            continue
        size = array.dtype.itemsize
        assert along[1 + k] == {"Vector": size, "Mirrored": -size, "Uniform": 0}[access]
        if access == "Uniform":
            continue
        for index in walk([d[0] for d in others]):
            for first in range(0, along[0] - items + 1, items):
                item = array.pointer + made.offsets[k] + first * along[1 + k]
                item += sum(i * d[1 + k] for i, d in zip(index, others, strict=True))
                start = item if access == "Vector" else item - (items - 1) * size
                assert start % min(items * size, 16) == 0
