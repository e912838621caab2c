"""Requests: pure functions of shapes, strides and dtypes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import (
    H200,
    ORDER4,
    PAIR,
    request,
    state_of,
)
from views import of_another_kind, view

from cuscan import ScanTypeError, ScanValueError
from cuscan.dtypes import DTYPES
from cuscan.interop.view import Device
from cuscan.operators import INDEXED, LINEAR_RECURRENCE, OPERATORS
from cuscan.planning import make_plan
from cuscan.request.call import find_dtype
from cuscan.request.checks import check_offsets
from cuscan.request.initial import check_initial, check_start, initial_argument
from cuscan.specs import ArraySpec, dense_strides

pytestmark = pytest.mark.usefixtures("tables")


def test_requests_and_plans_are_frozen_and_hashable():
    a, b = (request(view((3, 40)), mask=view((40,), "bool")) for _ in range(2))
    assert a == b and hash(a) == hash(b) and a is not b
    assert a != request(view((3, 40)), exclusive=True)
    one, other = make_plan(a, H200), make_plan(b, H200)
    assert one == other and hash(one) == hash(other) and hash(one.config) == hash(other.config)
    for thing in (a, a.kind, a.values[0], a.mask, one, one.config, one.config.values[0], H200, ORDER4):
        names = [f.name for f in dataclasses.fields(thing)] if dataclasses.is_dataclass(thing) else thing._fields
        for name in names:
            with pytest.raises(AttributeError):  # FrozenInstanceError, since it is a dataclass
                setattr(thing, name, None)


def test_a_request_knows_addresses_by_their_alignment_alone():
    assert request(view((8,), pointer=4096)) == request(view((8,), pointer=8192))
    assert request(view((8,), pointer=4096)) != request(view((8,), pointer=8196))


@pytest.mark.parametrize("kind", ["offsets", "keys"])
def test_what_gives_segments_is_aligned_to_its_elements(kind):
    with pytest.raises(ScanValueError, match=f"^{kind} begins at address 0x2, which is no multiple of its item size"):
        request(view((8,)), segments=(kind, view((8,), "int32", pointer=2)))


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
        ("float16", "add", "float32"),
        ("bfloat16", "mul", "float32"),
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
    made = request((view((6, 4)), view((4,), "int64")), pair, axis=0)  # either array may be the larger one
    assert [v.strides for v in made.values] == [(4, 1), (0, 1)]
    assert [r.dtype.name for r in made.results] == ["float32", "int8"] and made.carry == "float32"
    assert request((view((4,)), view((6, 4), "int64")), pair).shape == (6, 4)
    made = request((view((6, 1)), view((1, 4), "int64")), pair, axis=0)  # or neither
    assert made.shape == (6, 4) and [v.strides for v in made.values] == [(1, 0), (0, 1)]
    assert [(r.shape, r.strides) for r in made.results] == [((6, 4), (4, 1))] * 2
    turned = request((view((6, 4), strides=(1, 6)), view((1, 4), "int64")), pair)  # in the order of the larger array
    assert [r.strides for r in turned.results] == [(1, 6)] * 2


@pytest.mark.parametrize(
    "shape, strides, reach",
    [
        ((2, 3), (3, 1), (0, 24)),
        ((2, 3), (-5, 1), (-20, 12)),
        ((4, 2), (-2, -1), (-28, 4)),
        ((5, 3), (0, 2), (0, 20)),
        ((1, 3), (-100, 1), (0, 12)),
        ((), (), (0, 4)),
        ((3, 0), (-1, 1), (0, 0)),
    ],
)
def test_arrays_cover_bytes_from_their_address_on(shape, strides, reach):
    """From the first byte to the one after the last; arrays without elements cover none."""
    assert view(shape, strides=strides).kind.reach == reach


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
    assert made.kind == kind and made.array == ArraySpec(array.dtype, (5, 7), strides, 0, False, array.kind.reach)


def test_offsets_have_an_axis_of_their_own():
    made = request(view((5, 7)), segments=("offsets", view((4,), "int32", strides=(-2,), pointer=40))).segments
    assert made.kind == "offsets" and made.array == ArraySpec(DTYPES["int32"], (4,), (-2,), 8, False, (-24, 4))


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
        got = initial_argument(request(view((3,))).kind, initial)
        assert got == number and got.dtype == "float64"  # it enters the carry
    made = request((view((3,)), view((3,), "uint8")), pair)
    for initial, parts in ((None, (0, 0)), ((2.5, 9), (2.5, 9))):
        got = initial_argument(made.kind, initial)
        assert got.shape == (1,) and got.dtype.itemsize == 8 and got[0].item() == parts


def test_offsets_are_boundaries_of_the_axis():
    for good in ([0, 7], [0, 0, 3, 3, 7, 7], [0, 2, 7]):
        check_offsets(np.array(good), 7)
    check_offsets(np.array([0]), 0)
    for bad in ([0, 6], [1, 7], [0, 8], [0, 5, 4, 7], [-1, 7], [7, 0], [0]):
        with pytest.raises(ScanValueError, match=rf"^offsets must .* \(7\) .* got {bad[0]} to {bad[-1]}$"):
            check_offsets(np.array(bad), 7)


X = view((3, 4))
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
            ScanValueError,  # they do broadcast, but to more than b
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
        (
            ScanTypeError,
            r"^out must be a tuple of 2 arrays for op='max with indices'; got 1",
            dict(x=X, op=INDEXED["max", "first"], out=X),
        ),
        (ScanTypeError, r"^out must be one array for op='add'; got 2", dict(x=X, out=(X, X))),
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
        (ScanValueError, r"^a is on cuda:1 and b on cuda:0", dict(x=(ELSEWHERE["x"], X), op=LINEAR_RECURRENCE)),
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
