"""The defined order: the NumPy backend compared with a transcription of its definition, and its consequences."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest
from selection import covering, each

import cuscan
from cuscan.backends import lines, repeats
from cuscan.kept import Table
from cuscan.order import COLUMNS, CONTIGUOUS, Order
from cuscan.request import layout

ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays of NumPy come from ml_dtypes")
bfloat16 = ml_dtypes.bfloat16

SMALL = [Order(1, 1, 1), Order(2, 1, 2), Order(1, 2, 2), Order(3, 2, 3)]
FLOATS = [np.float16, bfloat16, np.float32, np.float64]
ACCUMULATOR = {np.float16: np.float32, bfloat16: np.float32, np.float32: np.float32, np.float64: np.float64}
CARRY = {**ACCUMULATOR, np.float32: np.float64}
ABSENT = None


def bits(array):
    return np.ascontiguousarray(array).tobytes()


def rough(shape, dtype=np.float32, seed=0):
    """Finite numbers of very different sizes, so that another association gives other bits."""
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * 10.0 ** rng.uniform(-2, 2, shape)).astype(dtype)


# ---- the text of order.py, element by element ----------------------------------------------------------


def literal(x, order, op, carry_type, *, initial=ABSENT, exclusive=False, identity=0):
    """The scan of a list of accumulators: out[i] by the text alone, each part by its own recursion."""
    n, accumulator = len(x), type(x[0])
    unit_size = order.items * 32 * order.vectors * order.warps

    def join(earlier, later):
        if earlier is ABSENT or later is ABSENT:
            return later if earlier is ABSENT else earlier
        return op(earlier, later)

    def left_fold(parts):
        return functools.reduce(join, parts, ABSENT)

    def doubling(part, place, distance=16):
        """Kogge & Stone: the value of `place` after the step of `distance`, by recursion over the steps."""
        if distance == 0:
            return part(place)
        later = doubling(part, place, distance // 2)
        if place < distance:
            return later
        return op(doubling(part, place - distance, distance // 2), later)

    @functools.cache
    def run_of(lane):
        """Lane number `lane` of the row: consecutive elements, one by one."""
        return left_fold(x[lane * order.items : (lane + 1) * order.items])

    @functools.cache
    def lanes_up_to(lane):
        first = lane - lane % 32
        return doubling(lambda place: run_of(first + place), lane % 32)

    @functools.cache
    def vectors_before(vector, until):
        return left_fold(lanes_up_to(v * 32 + 31) for v in range(vector, until))

    @functools.cache
    def warp(w):
        return vectors_before(w * order.vectors, (w + 1) * order.vectors)

    @functools.cache
    def warps_before(w, until):
        return left_fold(warp(v) for v in range(w, until))

    @functools.cache
    def unit_total(unit):
        return carry_type(warps_before(unit * order.warps, (unit + 1) * order.warps))

    @functools.cache
    def units_up_to(unit):
        first = unit - unit % 32
        return doubling(lambda place: unit_total(first + place), unit % 32)

    @functools.cache
    def groups_up_to(group):
        first = group - group % 32
        return doubling(lambda place: units_up_to((first + place) * 32 + 31), group % 32)

    def carry_into(unit):
        group = unit // 32
        start = ABSENT if initial is ABSENT else carry_type(initial)
        sections = left_fold([start, *(groups_up_to(s * 32 + 31) for s in range(group // 32))])
        groups = groups_up_to(group - 1) if group % 32 else ABSENT
        units = units_up_to(unit - 1) if unit % 32 else ABSENT
        return join(join(sections, groups), units)

    def result(i):
        unit, lane = i // unit_size, i // order.items
        vector = lane // 32
        w = vector // order.vectors
        carry = carry_into(unit)
        carry = carry if carry is ABSENT else accumulator(carry)
        before_warp = join(carry, warps_before(unit * order.warps, w))
        lanes = lanes_up_to(lane - 1) if lane % 32 else ABSENT
        before = join(before_warp, join(vectors_before(w * order.vectors, vector), lanes))
        items = x[lane * order.items : i if exclusive else i + 1]
        total = left_fold([before, *items])
        return identity if total is ABSENT else total

    return [result(i) for i in range(n)]


def paired(x, order, op, carry_type):
    """The inclusive scan of a list of accumulators in a paired order, also by the text."""
    n, accumulator = len(x), type(x[0])

    def join(earlier, later):
        return earlier if later is ABSENT else later if earlier is ABSENT else op(earlier, later)

    def left_fold(parts):
        return functools.reduce(join, parts, ABSENT)

    @functools.cache
    def block(level, number):
        """Block number `number` of 2^level runs."""
        if level == 0:
            return left_fold(x[number * order.items : (number + 1) * order.items])
        return op(block(level - 1, 2 * number), block(level - 1, 2 * number + 1))

    def units(first, end):
        return left_fold(carry_type(block(5, unit)) for unit in range(first, end))

    @functools.cache
    def groups(first, end):
        return left_fold(units(16 * group, 16 * group + 16) for group in range(first, end))

    def carry_into(unit):
        group = unit // 16
        section = group // 16
        sections = left_fold(groups(16 * s, 16 * s + 16) for s in range(section))
        return join(join(sections, groups(16 * section, group)), units(16 * group, unit))

    def result(i):
        run = i // order.items
        carry = carry_into(run // 32)
        before = carry if carry is ABSENT else accumulator(carry)
        runs = left_fold(block(level, (run >> level) - 1) for level in (4, 3, 2, 1, 0) if run >> level & 1)
        return left_fold([join(before, runs), *x[run * order.items : i + 1]])

    return [result(i) for i in range(n)]


def use_order(monkeypatch, order):
    monkeypatch.setattr(layout, "CONTIGUOUS", dict.fromkeys(CONTIGUOUS, order))
    monkeypatch.setattr(layout, "COLUMNS", order)
    monkeypatch.setattr(repeats, "calls", Table())  # stored calls have orders of their own


def add(a, b):
    return a + b


def times(a, b):
    return a * b


def assert_literal(x, order, **call):
    op = {"add": add, "mul": times}[call.get("op", "add")]
    accumulator = ACCUMULATOR[x.dtype.type]
    with np.errstate(all="ignore"):
        expected = literal(
            [accumulator(v) for v in x],
            order,
            op,
            CARRY[x.dtype.type],
            initial=call.get("initial"),
            exclusive=call.get("exclusive", False),
            identity=accumulator(call.get("op") == "mul"),
        )
        expected = np.array(expected, accumulator).astype(x.dtype)
    got = cuscan.scan(x, **call)
    assert bits(got) == bits(expected), np.flatnonzero(got != expected)[:10]


@pytest.mark.parametrize("order", SMALL, ids=str)
@pytest.mark.parametrize("units", [0.3, 1, 2.5, 31.5, 32, 33.5, 65.2])
def test_the_backend_follows_the_text(monkeypatch, order, units):
    use_order(monkeypatch, order)
    for dtype in (np.float32, np.float64):
        x = rough(max(int(order.unit * units), 1), dtype, seed=int(units * 10))
        assert_literal(x, order)
        assert_literal(x, order, initial=0.3)


@pytest.mark.parametrize("units, initial", covering(itertools.product([1023, 1024.5, 1057, 2090.3], [None, 0.3]), each))
def test_the_backend_follows_the_text_over_sections(monkeypatch, units, initial):
    order = Order(1, 1, 1)
    use_order(monkeypatch, order)
    for dtype in (np.float32, np.float64):  # only float64 shows the last bits of the carry
        assert_literal(rough(int(order.unit * units), dtype), order, initial=initial)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("initial", [None, 0.7])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_the_backend_follows_the_text_for_every_float(monkeypatch, dtype, exclusive, initial, op):
    order = Order(2, 2, 1)
    use_order(monkeypatch, order)
    x = rough(order.unit * 35 + 77)
    if op == "mul":  # values near 1, so that the product stays finite
        x = 2 ** (x / 2000)
    assert_literal(x.astype(dtype), order, exclusive=exclusive, initial=initial, op=op)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("length", [1, 3, 40, 300, 1100, 9001, 35_000])
def test_the_tuned_orders_of_a_contiguous_axis(dtype, length):
    x = rough(length, dtype)
    assert_literal(x, CONTIGUOUS[x.itemsize], initial=1)


@pytest.mark.parametrize("length", [1, 3, 8, 40, 256, 257, 4096, 4097, 8500, 69_700])
def test_the_tuned_order_of_other_axes(length):
    x = rough((length, 2))
    got = cuscan.scan(x, axis=0)
    for column in range(2):
        expected = paired(list(x[:, column]), COLUMNS, add, np.float64)
        assert bits(got[:, column]) == bits(np.array(expected, np.float32))


def test_another_order_gives_other_bits():
    """The numbers of these tests distinguish associations."""
    x = list(rough(3000))
    orders = [Order(2, 2, 2), Order(1, 2, 2), Order(2, 1, 2), Order(4, 1, 1), Order(2, 4, 1)]
    assert len({bits(np.array(literal(x, order, add, np.float64))) for order in orders}) == len(orders)


def test_complex_numbers_follow_the_order(monkeypatch):
    order = Order(2, 2, 2)
    use_order(monkeypatch, order)
    x = (rough(9000) + 1j * rough(9000, seed=1)).astype(np.complex64)
    expected = literal(list(x), order, add, np.complex128, initial=1 + 2j)
    assert bits(cuscan.scan(x, initial=1 + 2j)) == bits(np.array(expected, np.complex64))


# ---- consequences of the order -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*FLOATS, np.complex64])
@pytest.mark.parametrize("exclusive", [False, True])
def test_a_prefix_of_the_scan_is_the_scan_of_the_prefix(dtype, exclusive):
    x = rough(300_000, dtype)
    whole = cuscan.scan(x, exclusive=exclusive)
    for k in (1, 2, 31, 33, 129, 1025, 8191, 8192, 8193, 17_000, 262_145, 299_999):
        assert bits(whole[:k]) == bits(cuscan.scan(x[:k], exclusive=exclusive)), k


@pytest.mark.parametrize("axis", [0, 1])
def test_a_prefix_of_rows_and_columns(axis):
    x = rough((9000, 3) if axis == 0 else (3, 9000))
    whole = np.moveaxis(cuscan.scan(x, axis=axis), axis, 0)
    for k in (2, 9, 257, 8193, 8999):
        cut = np.take(x, range(k), axis)
        assert bits(whole[:k]) == bits(np.moveaxis(cuscan.scan(cut, axis=axis), axis, 0))


@pytest.mark.parametrize("length", [5, 100, 1000, 9000])
def test_a_row_does_not_notice_the_other_rows(length):
    x = rough((37, length))
    batch = cuscan.scan(x, axis=1)
    for row in (0, 1, 36):
        assert bits(batch[row]) == bits(cuscan.scan(x[row]))
        assert bits(batch[row]) == bits(cuscan.scan(x[row : row + 1], axis=1))
    assert bits(batch) == bits(cuscan.scan(np.concatenate([x, x[::-1]]))[:37])
    assert bits(batch) == bits(cuscan.scan(x.reshape(37, 1, length)))


@pytest.mark.parametrize("length", [5, 300, 9000])
def test_a_column_does_not_notice_the_other_columns(length):
    x = rough((length, 19))
    batch = cuscan.scan(x, axis=0)
    for width in (2, 3, 18):
        assert bits(batch[:, :width]) == bits(cuscan.scan(np.ascontiguousarray(x[:, :width]), axis=0))
    stacked = cuscan.scan(np.stack([x, x + 1]), axis=1)
    assert bits(batch) == bits(stacked[0])


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_the_bits_do_not_depend_on_strides_within_one_axis_order(axis):
    x = rough((7, 300, 5))
    expected = bits(cuscan.scan(x, axis=axis))
    spread = np.zeros((14, 600, 15), np.float32)
    spread[::2, ::2, ::3] = x
    assert expected == bits(cuscan.scan(spread[::2, ::2, ::3], axis=axis))
    mirrored = np.ascontiguousarray(x[::-1, ::-1, ::-1])[::-1, ::-1, ::-1]
    assert expected == bits(cuscan.scan(mirrored, axis=axis))
    out = np.zeros((7, 300, 10), np.float32)[..., ::2]
    assert expected == bits(cuscan.scan(x, axis=axis, out=out))
    assert expected == bits(cuscan.scan(x, axis=axis, out=x))


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_is_contiguous_in_array_and_result_or_it_is_across(axis):
    c = rough((600, 500))
    f = np.asfortranarray(c)
    along, across = (c, f) if axis == 1 else (f, c)
    expected = bits(cuscan.scan(across, axis=axis))
    assert expected != bits(cuscan.scan(along, axis=axis))
    assert expected == bits(cuscan.scan(across, axis=axis, out=np.empty_like(along)))
    assert expected == bits(cuscan.scan(along, axis=axis, out=np.empty_like(across)))


@pytest.mark.parametrize("lines", [7, 8])
def test_lines_that_take_less_than_a_sector_run_along_contiguous_results_of_any_array(lines):
    x = rough((lines, 700))
    along, across = (bits(cuscan.scan(each, axis=1)) for each in (x, np.asfortranarray(x)))
    assert along != across
    assert bits(cuscan.scan(np.asfortranarray(x), axis=1, out=x.copy())) == (along if lines == 7 else across)
    assert bits(cuscan.scan(x, axis=1, out=np.asfortranarray(x))) == across


def test_the_bits_do_not_depend_on_the_size_of_the_blocks(monkeypatch):
    x = rough((50, 700))
    expected = [bits(cuscan.scan(x, axis=axis, mask=x > 0)) for axis in (0, 1)]
    monkeypatch.setattr(lines, "BLOCK", 1500)
    assert expected == [bits(cuscan.scan(x, axis=axis, mask=x > 0)) for axis in (0, 1)]


def test_the_association_depends_on_position_not_on_what_follows():
    x = rough(50_000)
    changed = x.copy()
    changed[20_001:] = np.nan
    assert bits(cuscan.scan(x)[:20_001]) == bits(cuscan.scan(changed)[:20_001])


@pytest.mark.parametrize("order", [*SMALL, *CONTIGUOUS.values(), COLUMNS], ids=str)
def test_the_sizes_of_an_order(order):
    assert order.vector == order.items * 32
    assert order.warp_tile == order.vector * order.vectors
    assert order.unit == order.items * 32 * order.vectors * order.warps
