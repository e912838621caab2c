"""Plans checked by enumeration: every element once, in scan order, every vector aligned."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import (
    H200,
    PAIR,
    dimensions,
    gaps_of,
    of_shape,
    operands_of,
    request,
    scalars,
    spans,
)
from views import view

from cuscan.dtypes import DTYPES
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.planning import make_plan

pytestmark = pytest.mark.usefixtures("tables")


def lay_out(draw, shape, itemsize, *, broadcast):
    """Random strides without overlap (some are 0 with `broadcast`), in a random order of axes."""
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
    # Operator; dtypes of the values; dtypes of the results.
    "add": ("add", None, None),
    "max with indices": (INDEXED["max", "first"], None, None),
    "linear recurrence": (LINEAR_RECURRENCE, None, None),
    "user": (PAIR, ("int16", "float64"), ("float32", "int8")),
}


@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_a_plan_visits_every_element_once_in_scan_order(data):
    draw = data.draw
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 8, 16]), min_size=1, max_size=4)))
    axis, reverse, longer = draw(st.integers(0, len(shape) - 1)), draw(st.booleans()), draw(st.booleans())
    kind = draw(st.sampled_from(sorted(KINDS)))
    op, dtypes, result_dtypes = KINDS[kind]
    if dtypes is None:
        all_dtypes = {"add": ["int16", "float16", "float32", "float64", "complex128"]}
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
        p.access != "None" and not (segments == "offsets" and p is made.config.segment_operand)
        for p in operands_of(made)
    ]

    def places(index):
        """For each array, the byte offsets of its elements in one row, in scan order."""
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
        """The same offsets, as the kernels compute them."""
        for k, a in enumerate(arrays):
            start = made.offsets[k] + sum(i * d[1 + k] for i, d in zip(index, outer, strict=True))
            step = dims[0][1 + k]
            along = a is not None and len(a.shape) == len(shape)
            assert along or step == 0
            yield tuple(start + p * step for p in range(a.shape[axis] if along else 1))

    dims = dimensions(made)
    outer = [dims[1], *dims[2]]
    if dict(made.config.constants).get("Gaps"):  # the columns are those of several rows
        every, gaps, _ = gaps_of(made)
        (size, *steps), *rest = outer
        rows = [every * step + gap for step, gap in zip(steps, gaps, strict=True)]
        outer = [(every, *steps), (size // every, *rows), *rest]
    assert dims[0][0] == full[axis]
    for k, (one, (lowest, end)) in enumerate(zip(arrays[:-2], spans(made), strict=True)):
        every = [place for index in walk(row) for place in list(places(index))[k]]
        expected = (0, 0) if one is None else (min(every), max(every) + one.dtype.itemsize)
        assert (lowest + made.offsets[k], end + made.offsets[k]) == expected
    got, expected = [tuple(visited(i)) for i in walk([d[0] for d in outer])], [tuple(places(i)) for i in walk(row)]
    assert sorted(got) == sorted(expected)
    assert scalars(made)[0] == math.prod(d[0] for d in dims[2])
    check = check_units if made.config.family == "thread_rows" else check_vectors
    check(made, dims, arrays)


def check_units(made, dims, arrays):
    """Rows begin at multiples of the size of a thread's accesses, and no unit ends behind the next row's beginning."""
    config, length, (run, *others) = made.config, dims[0][0], dims[2]
    constants, values, results = dict(made.config.constants), len(config.values), len(config.results)
    for k, name in enumerate(["ValueUnit"] * values + ["ResultUnit"] * results + ["MaskUnit"] * 2):
        operand, array = operands_of(made)[k], arrays[k]
        if not operand.staged:
            assert array is None or operand.access == "Broadcast"
            continue
        size = array.dtype.itemsize
        behind = {"Vector": 0, "Reversed": size}[operand.access]
        assert run[1 + k] >= length * size or run[0] == 1
        unit = size * (1 if config.segments == "Keys" and operand is config.segment_operand else constants[name])
        assert (array.pointer + made.offsets[k] + behind) % unit == 0
        assert all(dim[1 + k] % unit == 0 for dim in (run, *others))


def check_vectors(made, dims, arrays):
    """All vectors of the kernel begin (mirrored ones: end) at multiples of their size, or of 16."""
    items = made.config.items
    along, others = (dims[1], [dims[0], *dims[2]]) if made.config.family == "panels" else (dims[0], dims[2])
    for k, array in enumerate(arrays):
        access = operands_of(made)[k].access
        if array is None or access == "Strided" or "Shifted" in access:
            continue
        if access == "PerLine":
            assert dims[0][1 + k] == 0
            continue
        size = array.dtype.itemsize
        assert along[1 + k] == {"Vector": size, "Reversed": -size, "Broadcast": 0}[access]
        if access == "Broadcast":
            continue
        for index in walk([d[0] for d in others]):
            for first in range(0, along[0] - items + 1, items):
                item = array.pointer + made.offsets[k] + first * along[1 + k]
                item += sum(i * d[1 + k] for i, d in zip(index, others, strict=True))
                start = item if access == "Vector" else item - (items - 1) * size
                assert start % min(items * size, 16) == 0
