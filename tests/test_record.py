"""Recorded NumPy calls: on other values, they give the results of the recorded code."""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np
import pytest
from host_cases import same_bits

import cuscan
from cuscan.backends import exact, host, repeats, short
from cuscan.backends.combine import combine_of
from cuscan.backends.program import Program
from cuscan.backends.record import Noted, NotNotedError, alike, decision, opaque, plain, zeros
from cuscan.backends.steps import at, chain, kogge_stone, total
from cuscan.dtypes import Kind
from cuscan.kept import Table
from cuscan.operators import LINEAR_RECURRENCE, OPERATORS


def noted(function, *arrays):
    """A recorded function. It takes arrays like the recorded ones; its result is None if values decide otherwise."""
    program = Program()
    places = [zeros(program, array.shape, array.dtype) for array in arrays]
    for place, array in zip(places, arrays, strict=True):
        plain(place)[...] = array
    result = plain(function(*places))
    program.finish([result])

    def run(*values):
        for place, value in zip(places, values, strict=True):
            plain(place)[...] = value
        return result.copy() if program.run() else None

    return run, program


def steps_of(x):
    """All kinds of steps that the code of scans applies to arrays, and more of them."""
    y = np.empty_like(x, shape=(2, 6))
    y[0], y[1] = x, x[::-1] * 2
    y[:, ::2] += 1
    z = np.where(y > 0, y, -y).T.copy()
    np.copyto(z, 7, where=z == 3)
    z = np.concatenate([z[:2], z[3:]]).reshape(-1)
    z = np.repeat(z, 2).reshape(5, 4) + np.stack([x[:4]] * 5)
    z |= 1
    np.maximum(z, 2, out=z)
    return np.minimum(z, z.max()).astype(np.float32) / z[0].sum()


@pytest.mark.parametrize("seed", range(5))
def test_a_program_does_what_was_noted(seed):
    x, others = np.arange(6), np.random.default_rng(seed).integers(-9, 9, (3, 6))
    run, _ = noted(steps_of, x)
    for other in (*others, x):
        assert same_bits(run(other), steps_of(other))


def test_a_view_is_no_copy_and_a_copy_is():
    def through_a_view(x):
        y = x.reshape(2, 3).T[1:]
        y[0] = 5
        return x + x.astype(np.int8) + x.astype(x.dtype, copy=False)

    x = np.arange(6)
    assert same_bits(noted(through_a_view, x)[0](x + 1), through_a_view(x + 1))


def test_what_no_result_needs_is_not_called():
    def with_waste(x):
        waste = x * 3
        waste += 1
        return x + 1

    run, program = noted(with_waste, np.arange(4))
    assert len(program._calls) == 1 and run(np.ones(4, int)).tolist() == [2] * 4


def in_place(x):
    y = x * 2
    np.add(y, x, out=y)
    return y


def in_place_later(x):
    y, z = x * 2, x * 3
    np.add(y, z, out=y)
    return y


def in_place_after_a_look(x):
    y = x * 2
    z = y + 1
    np.add(y, z, out=y)
    return y + z


def in_place_in_part(x):
    y = x * 2
    np.add(y[1:], 1, out=y[1:])
    return y


@pytest.mark.parametrize("function, made", [(in_place, 0), (in_place_later, 0), (in_place_after_a_look, 1)])
def test_calls_in_place_are_made_elsewhere(function, made):
    run, program = noted(function, np.arange(3.0))
    for x in (np.ones(3), np.arange(3.0)):
        assert same_bits(run(x), function(x))
    writes = [(call.args[-1], call.args[:-1]) for call in program._calls]
    assert sum(any(np.may_share_memory(out, array) for array in read) for out, read in writes) == made


def test_a_call_in_place_reads_the_very_array_that_it_writes():
    """NumPy takes half the time if it need not find out that two arrays are the same memory."""
    _, program = noted(in_place_after_a_look, np.arange(3.0))
    assert sum(call.args[0] is call.args[-1] for call in program._calls) == 1


def test_calls_in_part_of_an_array_leave_the_rest():
    run, _ = noted(in_place_in_part, np.arange(3.0))
    assert run(np.ones(3)).tolist() == [2, 3, 3]


def test_broadcast_calls_are_flat():
    run, program = noted(lambda x, y: x * y[:3] + y[1:4, None] * x, np.ones((3, 3)), np.arange(4.0))
    x, y = np.arange(9.0).reshape(3, 3), np.arange(4.0) + 1
    assert same_bits(run(x, y), x * y[:3] + y[1:4, None] * x)
    calls = [call for call in program._calls if isinstance(call.func, np.ufunc)]
    assert len(calls) == 3 and all(array.ndim == 1 for call in calls for array in call.args)


def test_a_run_stops_where_it_decides_otherwise():
    run, _ = noted(lambda x: x + 1 if (x > 0).all() else x - 1, np.ones(2))
    assert run(np.full(2, 3)).tolist() == [4, 4] and run(np.zeros(2)) is None
    assert run(np.full(2, 3)).tolist() == [4, 4]


def copies(target, pairs):
    """Copies from rows of one array to rows of another, or to later rows of the same."""

    def function(x):
        y = np.zeros_like(x)
        whole = {"other": (y, x), "same": (y, y), "number": (y, x[0, 0])}[target]
        y[0] = x[0]
        for to, source in pairs:
            whole[0][to] = whole[1] if target == "number" else whole[1][source]
        return y

    return function


@pytest.mark.parametrize(
    "target, pairs, calls",
    [
        ("other", [(1, 2), (2, 3), (3, 4)], 2),
        ("other", [(1, 4), (2, 2), (3, 0)], 2),  # backwards
        ("other", [(1, 2), (2, 3), (4, 4)], 2),  # not equally far apart
        ("other", [(1, 2), (1, 3)], 2),  # the same place twice
        ("same", [(1, 0), (2, 1)], 3),  # the first copy writes what the second one reads
        ("same", [(2, 0), (3, 1)], 2),
        ("number", [(1, 0), (2, 0)], 2),
    ],
)
def test_copies_between_neighbours_are_one_call(target, pairs, calls):
    function, x = copies(target, pairs), np.arange(15.0).reshape(5, 3)
    run, program = noted(function, x)
    assert same_bits(run(x * 2 + 1), function(x * 2 + 1))
    assert len(program._calls) == calls


@pytest.mark.parametrize(
    "dtype, first, few, moved",
    [
        ("float32", 0, 2, 8),
        ("complex64", 2, 2, 16),
        ("uint8", 8, 8, 8),
        ("float16", 4, 2, 4),
        ("float32", 1, 2, 4),  # not aligned
        ("float32", 0, 3, 4),
        ("complex128", 0, 2, 16),
    ],
)
def test_few_neighbours_move_as_one_item(dtype, first, few, moved):
    """`moved`: bytes of the items that are copied."""

    def function(x):
        y = np.zeros_like(x, shape=(3, 5, 16))
        y[1, :, :few] = x[:, first : first + few]
        return y

    bits = np.random.default_rng(0).integers(0, 256, (2, 5, 16 * np.dtype(dtype).itemsize), np.uint8)
    one, other = bits.view(dtype)  # among them NaN with payloads
    run, program = noted(function, one)
    assert run(other).tobytes() == function(other).tobytes()
    assert [call.func.__self__.itemsize for call in program._calls] == [moved]


@pytest.mark.parametrize("order, count, calls", [("C", 2, 2), ("C", 4, 4), ("C", 5, 1), ("F", 2, 1)])
def test_copies_along_a_short_inner_axis_are_taken_apart(order, count, calls):
    """NumPy loops over the inner axis of the target. More calls take longer than such loops."""

    def function(x):
        y = np.empty_like(x, shape=(150, count)) if order == "C" else np.empty_like(x, shape=(count, 150)).T
        y[...] = x[::-1].T
        return y

    x = np.arange(150.0 * count).reshape(count, 150)
    run, program = noted(function, x)
    assert same_bits(run(x + 1), function(x + 1))
    assert len(program._calls) == calls


def test_a_copy_onto_itself_is_one_call():
    def function(x):
        y = x.copy()
        y[...] = y[:, ::-1]
        return y

    x = np.arange(300.0).reshape(100, 3)
    run, program = noted(function, x)
    assert same_bits(run(x + 1), function(x + 1)) and len(program._calls) == 2


def test_copies_that_interleave_are_one_call():
    """Real and imaginary parts lie in the same stretch of memory, but not in each other's places."""

    def function(x):
        y = np.empty_like(x, np.complex64, shape=x.shape[1:])
        y.imag[...], y.real[...] = x
        return y

    x = np.arange(40, dtype=np.float32).reshape(2, 20)
    run, program = noted(function, x)
    assert same_bits(run(x + 1), function(x + 1))
    assert [call.func.__self__.size for call in program._calls] == [40]


@pytest.mark.parametrize(
    "rows, size, calls",
    [
        # Copies of earlier fields, factor, summands and neighbours; a product, three sums; a copy of the results.
        (tuple, 6, 9),
        (lambda x: (x[2], x[0], x[3], x[1]), 6, 10),  # two copies of fields
        (lambda x: tuple(x[:, :1]), 6, 9),  # fields that are broadcast
        (tuple, 300, 18),  # many elements: a call for each product, sum and result
    ],
)
def test_steps_of_complex_recurrences_take_few_calls(rows, size, calls):
    combine = combine_of(LINEAR_RECURRENCE, Kind.COMPLEX)
    earlier, later = np.random.default_rng(0).normal(size=(2, 2, 4, size)).astype(np.float32)

    def expected(x, y):
        (a, b, im, re), (c, d, more_im, more_re) = rows(x), y
        whole = np.broadcast_arrays(a * c - b * d, b * c + a * d, im * c + re * d + more_im, re * c - im * d + more_re)
        return np.stack(whole)

    run, program = noted(lambda x, y: np.stack(combine(rows(x), tuple(y))), earlier[0], later[0])
    assert same_bits(run(earlier[1], later[1]), expected(earlier[1], later[1]))
    assert len(program._calls) == calls


ROWS = [(LINEAR_RECURRENCE, 4, 7), (OPERATORS["mul"], 2, 6)]


@pytest.mark.parametrize("op, count, calls", ROWS)
@pytest.mark.parametrize("shape", [(8, 3), (5, 1), (32, 2)])
def test_scans_of_complex_numbers_take_few_calls(op, count, calls, shape):
    """A step: copies of factors, neighbours and fronts; a product; two sums, and one of the numbers of recurrences."""
    combine = combine_of(op, Kind.COMPLEX)
    one, other = np.random.default_rng(0).normal(size=(2, count, *shape)).astype(np.float32)

    def scan(x):
        return np.stack(kogge_stone(combine, tuple(x)))

    run, program = noted(scan, one)
    assert same_bits(run(other), scan(other))
    assert len(program._calls) <= calls * (shape[0] - 1).bit_length() + 1 + count


@pytest.mark.parametrize("op, count, calls", ROWS)
@pytest.mark.parametrize("with_before", [False, True])
def test_items_of_complex_numbers_take_few_calls(op, count, calls, with_before):
    """The copies of all factors are one, and fronts are none."""
    combine, items = combine_of(op, Kind.COMPLEX), 6
    before, others = np.random.default_rng(0).normal(size=(2, 2, 1 + items, count, 3, 4)).astype(np.float32)

    def walk(x):
        fields = tuple(np.moveaxis(x, 1, 0))
        shown, steps = chain(combine, tuple(x[0, -2:]), at(fields, slice(1, None)), with_before)
        for i, into in enumerate(steps):
            if i == 1:
                into[0][0] = x[0, 0, 0]  # the next step reads it
        return np.stack([np.stack(shown[0]), np.stack(shown[1])])

    run, program = noted(walk, before[0])
    assert same_bits(run(before[1]), walk(before[1])) and same_bits(run(others[0]), walk(others[0]))
    assert len(walk(others[0])[0]) == items + with_before
    assert len(program._calls) <= (calls - 2) * items + 8
    run, _ = noted(lambda x: np.stack(total(combine, tuple(np.moveaxis(x, 1, 0)))), before[0])
    assert same_bits(run(others[1]), np.stack(total(combine, tuple(np.moveaxis(others[1], 1, 0)))))


def test_a_test_is_one_call():
    @decision
    def is_sorted(array):
        assert type(array) is np.ndarray
        return bool((array[1:] >= array[:-1]).all())

    run, program = noted(lambda x: x + 1 if is_sorted(x) else x - 1, np.arange(3))
    assert len(program._calls) == 2 and is_sorted(np.arange(3))
    assert run(np.arange(3) * 2).tolist() == [1, 3, 5] and run(np.arange(3)[::-1]) is None


@pytest.mark.parametrize("function", [lambda x: x[x > 0], lambda x: int(x[0]), np.sort, lambda x: np.add(x, [x, x])])
def test_what_cannot_be_noted_is_refused(function):
    with pytest.raises(NotNotedError):
        noted(function, np.ones(2))


def test_a_user_s_function_is_one_call():
    seen = []

    @opaque
    def function(x, y):
        seen.append(type(x))
        return np.array([x[0] if x[0] > 0 else y[0]])

    run, program = noted(function, np.ones(1), np.zeros(1))
    assert len(program._calls) == 1 and program.quiet is None
    assert run([-1], [4]).tolist() == [4] and seen == [np.ndarray] * 2
    assert function(np.ones(1), np.ones(1)).tolist() == [1]


def test_a_user_s_function_writes_where_it_should():
    def twice(x):
        whole = np.empty_like(x, shape=(2, 3))
        whole[0] = x
        assert opaque(np.negative)(x, out=whole[1]).shape == (3,)
        return whole

    run, program = noted(twice, np.arange(3))
    assert len(program._calls) == 2 and run(np.ones(3, int)).tolist() == [[1] * 3, [-1] * 3]


def test_constants_beside_noted_arrays_are_noted():
    one, constant = zeros(Program(), (2,), int), np.ones(2)
    assert all(isinstance(array, Noted) for array in alike((one, constant)))
    assert alike((constant,))[0] is constant


def test_programs_do_not_warn(recwarn):
    x = np.zeros(4, np.float32)
    x[0] = np.inf
    for values in (x, x[::-1].copy()):
        for _ in range(3):
            cuscan.cumsum(values - 0, mask=values == 0)
            cuscan.linear_recurrence(values, values)
            cuscan.cumprod(values)
    assert not recwarn.list
    with pytest.warns(RuntimeWarning):
        x[1:] * np.inf


# ---- which programs there are ----------------------------------------------------------------------------------------


@pytest.fixture
def no_programs(monkeypatch):
    """Runs scans that store no programs."""

    def scan(function, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(repeats, "calls", Table())
            patch.setattr(host, "is_short", lambda *_: False)
            return function(*arguments, **keywords)

    return scan


KINDS = [[], [0.0], [-0.0], [np.nan], [np.inf], [-np.inf, np.inf], [-0.0, np.nan]]


@pytest.mark.parametrize("op", ["add", "max"])
@pytest.mark.parametrize("most", [1, 2, 4])
def test_values_that_decide_otherwise_have_their_own_program(op, most, no_programs, monkeypatch):
    monkeypatch.setattr(short, "MOST_LIKE", most)
    monkeypatch.setattr(short, "_idle", Table())
    rng = np.random.default_rng(most)
    reset = np.arange(60) % 7 == 0
    for kind in rng.integers(0, len(KINDS), 40):
        x = rng.normal(size=60)
        x[rng.integers(0, 60, len(KINDS[kind]))] = KINDS[kind]
        assert same_bits(cuscan.scan(x, op, reset=reset), no_programs(cuscan.scan, x, op, reset=reset))
        assert all(1 <= len(kept) <= most for kept in short._idle.values())


def test_the_first_of_like_calls_notes_nothing(monkeypatch):
    """So a user's program that never repeats a shape does not pay for recordings."""
    monkeypatch.setattr(short, "_idle", Table())
    monkeypatch.setattr(repeats, "calls", Table())
    for n in range(1, 9):
        cuscan.cumsum(np.ones(n))
    assert not short._idle
    cuscan.cumsum(np.ones(3))
    assert len(short._idle) == 1


OPS = ["add", "mul", "max", "logaddexp", "recurrence", "positions", "user"]


@pytest.mark.parametrize("op, dtype", list(itertools.product(OPS, ["float32", "complex64", "int32"])))
def test_carries_and_columns_of_like_calls(op, dtype, no_programs):
    """Recorded short scans include carries, axes that are not contiguous, and states of several fields."""
    kind = np.dtype(dtype).kind
    if (kind == "c" and op not in ("add", "mul", "recurrence")) or (kind == "i" and op in ("logaddexp", "recurrence")):
        pytest.skip("the operator is not defined for the dtype")
    rng = np.random.default_rng(OPS.index(op))
    user = cuscan.Operator("plus", "earlier + later", 0, numpy=np.add)
    scans = {
        "recurrence": lambda x, **call: cuscan.linear_recurrence(x / 40, x, **call),
        "positions": functools.partial(cuscan.cummax, return_indices=True),
        "user": lambda x, **call: cuscan.scan(x, user, **call),
    }
    scan = scans.get(op, lambda x, **call: cuscan.scan(x, op, **call))
    for shape, axis, reverse in [
        ((3, 40), 1, False),
        ((70, 3), 0, True),
        ((2, 20, 5), 1, False),
        ((2, 3, 80), -1, True),
    ]:
        reset = rng.random(shape) < 0.1
        for segments in ({}, {"reset": reset}, {"keys": np.cumsum(rng.random(shape[axis]) < 0.2)}):
            call = {"axis": axis, "reverse": reverse, "return_carry": True, **segments}
            carry = None
            for _ in range(3):
                x = (30 * rng.normal(size=shape)).astype(dtype)
                got, expected = scan(x, carry=carry, **call), no_programs(scan, x, carry=carry, **call)
                assert all(map(same_bits, flat(got), flat(expected)))
                carry = got[-1]


FLAGS = [{}, {"reverse": True}, {"initial": 2}]
EXCLUSIVE = [{"exclusive": True}, {"exclusive": True, "initial": 2}, {"include_initial": True, "initial": 2}]


@pytest.mark.parametrize(
    "op, flags", [*itertools.product(["mul", "recurrence"], FLAGS), *[("mul", flags) for flags in EXCLUSIVE]], ids=str
)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_flags_of_like_calls_on_complex_numbers(op, flags, dtype, no_programs):
    """The elements that nothing precedes, and infinities, cross no row of a program."""
    scan = cuscan.cumprod if op == "mul" else lambda x, **call: cuscan.linear_recurrence(x, x[::-1] + 1, **call)
    rng = np.random.default_rng(3)
    for shape, axis in [((1,), 0), ((2,), 0), ((33,), 0), ((100,), 0), ((300,), 0), ((10, 10), 0), ((9, 40), 1)]:
        reset = rng.random(shape) < 0.1
        for segments in ({}, {"reset": reset}):
            for _ in range(3):
                x = rng.normal(size=(*shape, 2)).astype(np.dtype(dtype).type(0).real.dtype).view(dtype)[..., 0]
                x.reshape(-1)[rng.integers(0, x.size, 2)] = rng.choice([0, -0.0, np.inf, 1], 2)
                call = {"axis": axis, **flags, **segments}
                assert same_bits(scan(x, **call), no_programs(scan, x, **call))


def flat(results):
    return [a for one in results for a in (one if isinstance(one, tuple) else (one,))]


# ---- extrema in segments ---------------------------------------------------------------------------------------------


@pytest.fixture
def never(monkeypatch):
    """Runs scans that do not find extrema of integers in segments by keys."""

    def scan(function, *arguments, **keywords):
        with monkeypatch.context() as patch:
            patch.setattr(repeats, "calls", Table())
            patch.setattr(host, "is_extremum_of_segments", lambda *_: False)
            return function(*arguments, **keywords)

    return scan


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int64", "uint64"])
@pytest.mark.parametrize("op", ["min", "max"])
@pytest.mark.parametrize("span", [3, 100, 2**64])
def test_extrema_of_segments_by_keys(op, dtype, span, never, monkeypatch):
    rng = np.random.default_rng(8)
    for n, reverse, at_a_time in (
        (1, True, 2**15),
        (50, False, 2**15),
        (50, True, 2**15),
        (3000, False, 1000),
        (3000, True, 2**15),
    ):
        monkeypatch.setattr(exact, "_AT_A_TIME", at_a_time)
        low, high = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        ends = [(low, min(low + span, high)), (max(high - span, low), high)]
        for end in ends:
            x = rng.integers(*end, (3, n), dtype=np.dtype(dtype) if dtype != "bool" else np.int8, endpoint=True)
            x = x.astype(dtype)
            call = {"reset": rng.random((3, n)) < 0.05, "reverse": reverse}
            for array, keywords in ((x, call), (np.asfortranarray(x), call), (x.T, {**call, "reset": call["reset"].T})):
                axis = 0 if array.shape != x.shape else 1
                got = cuscan.scan(array, op, axis=axis, **keywords)
                assert same_bits(got, never(cuscan.scan, array, op, axis=axis, **keywords))
            place = x.copy()
            assert same_bits(cuscan.scan(place, op, out=place, **call), never(cuscan.scan, x, op, **call))


@pytest.mark.parametrize("wide", [False, True])
def test_keys_are_for_ranges_that_they_hold(wide, monkeypatch):
    x, reset = np.arange(10_000), np.arange(10_000) % 100 == 0
    x[5] = 2**60 if wide else 2**40
    monkeypatch.setattr(host, "scan_lines", None)
    with pytest.raises(TypeError) if wide else contextlib.nullcontext():
        cuscan.cummax(x, reset=reset)


# ---- similar calls ---------------------------------------------------------------------------------------------------


def test_an_initial_value_of_another_type_is_not_a_like_call():
    """An initial value that a JAX program has yet to compute goes to JAX, whatever the earlier calls."""
    jax = pytest.importorskip("jax")
    x = np.ones(5, np.float32)
    for initial in (1.0, 1.0, 2):
        assert cuscan.cumsum(x, initial=initial)[-1] == 5 + initial
    assert jax.jit(lambda start: cuscan.cumsum(x, initial=start))(3.0)[-1] == 8


def test_like_calls_with_bfloat16():
    """In NumPy it comes from another package, and in the backend it is bits."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    x = np.ones(5, np.float32)
    for _ in range(3):
        for call in ({"dtype": bfloat16}, {"dtype": "bfloat16"}, {"out": np.empty(5, bfloat16)}):
            got = cuscan.cumsum(x, **({"dtype": bfloat16} | call))
            assert got.dtype == bfloat16 and got.astype(int).tolist() == [1, 2, 3, 4, 5]
        assert cuscan.cumsum(x.astype(bfloat16)).astype(int).tolist() == [1, 2, 3, 4, 5]


def test_calls_that_differ_in_what_can_be_written_are_not_alike():
    x, out = np.ones(5), np.zeros(5)
    for _ in range(3):
        assert cuscan.cumsum(x, out=out) is out
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        cuscan.cumsum(x, out=out)
    for _ in range(3):
        with pytest.raises(ValueError, match="out overlaps x in part"):
            cuscan.cumsum(x[:4], out=x[1:])


def test_subclasses_and_numbers_beside_like_arrays():
    x = np.ones(5)
    for _ in range(3):
        assert cuscan.cumsum(x).tolist() == [1, 2, 3, 4, 5]
        assert cuscan.linear_recurrence(2, x).tolist() == [1, 3, 7, 15, 31]
        assert cuscan.linear_recurrence(3, x)[1] == 4
        with pytest.raises(TypeError, match="masked array"):
            cuscan.cumsum(np.ma.masked_array(x, x > 2))


def test_small_units_of_gpu_tests_store_no_calls() -> None:
    """A stored call has an order. In the order of small units, sums of floats have other bits."""
    gpu = pytest.importorskip("gpu", reason="CuPy or ml_dtypes is not installed")
    x = np.random.default_rng(0).standard_normal(600).astype(np.complex64)
    usual = cuscan.scan(x)
    with gpu.small_units():
        small = [cuscan.scan(x) for _ in range(2)]
    repeated = cuscan.scan(x)
    repeats.calls.clear()
    assert same_bits(repeated, usual) and same_bits(cuscan.scan(x), usual)
    assert same_bits(*small) and not same_bits(small[0], usual)
