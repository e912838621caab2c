"""Segments, positions, recurrences, user operators and other features on a GPU: the twin's bits, in every family."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import copied_flags
import numpy as np
import pytest
from copied_flags import ACROSS
from features import (
    FEATURES,
    LOG_SUMS,
    SEGMENTS,
    Feature,
    call_for,
    extremum,
    offsets_for,
    recurrence,
    scan,
    segments_for,
    strided,
    user,
)
from gpu import (
    LIBRARIES,
    WAYS,
    Call,
    Configs,
    Placement,
    Seen,
    assert_same,
    check_call,
    compile_ahead,
    configs_of,
    cupy,
    hold,
    need,
    numbers,
    numpy_dtype,
    same_bits,
    small_units,
    to_numpy,
    values,
)
from interval import INTERVAL, intervals
from operator_examples import AFFINE, EXAMPLES, MATRIX_PRODUCT, STRING_HASH

import cuscan
from cuscan import CompileError, ScanTypeError, ScanValueError
from cuscan.backends import cuda, kernel
from cuscan.dtypes import DTYPES, Kind
from cuscan.operators import OPERATORS
from cuscan.order import COLUMNS
from cuscan.planning.segment_starts import FEWEST

pytestmark = pytest.mark.gpu

both_libraries = pytest.mark.parametrize("name", LIBRARIES)

REAL = [d.name for d in DTYPES.values() if d.kind is not Kind.COMPLEX]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
INEXACT = [*FLOATS, "complex64", "complex128"]
FAMILIES = ["rows", "thread_rows", "cluster", "tiles-shared bulk", "panels-shared"]


@pytest.fixture
def small() -> Iterator[None]:
    """Units of few elements."""
    with small_units():
        yield


def in_turn(cases: dict[str, tuple[Any, ...]]) -> list[Any]:
    """Test parameters by name; the libraries take turns."""
    libraries = itertools.cycle(LIBRARIES)
    return [pytest.param(next(libraries), *case, id=name) for name, case in cases.items()]


def through_some_ways(features: dict[str, Feature], each: int = 1) -> dict[str, tuple[Feature, str]]:
    """Every feature through `each` of the ways; the next feature takes the next ones."""
    ways = itertools.cycle(WAYS)
    return {
        f"{name}-{kind}": (feature, kind) for name, feature in features.items() for kind in itertools.islice(ways, each)
    }


# ---- every feature ----------------------------------------------------------------------------------------

# A feature takes every other way, the next feature those between.
THROUGH_KERNELS = {
    f"{name}-{kind}": (feature, kind)
    for number, (name, feature) in enumerate(FEATURES.items())
    for kind in list(WAYS)[number % 2 :: 2]
}
SEGMENTS_OF = through_some_ways(
    {
        f"{op.name}-{d.name}-{segments}": scan(
            op.name, d.name, segments=segments, result=d.name, reverse=number % 2 == 1
        )
        for number, (segments, (op, d)) in enumerate(
            zip(
                itertools.cycle(SEGMENTS),
                [(op, d) for op in OPERATORS.values() for d in DTYPES.values() if op.exact and d.kind in op.kinds],
                strict=False,
            )
        )
    }
)
POSITIONS_OF = through_some_ways(
    {
        f"{function.__name__}-{dtype}-{ties}": extremum(function, dtype, ties=ties)
        for dtype, (function, ties) in zip(
            REAL, itertools.cycle(itertools.product([cuscan.cummax, cuscan.cummin], ["first", "last"])), strict=False
        )
    }
)
RECURRENCES_OF = through_some_ways(
    {
        f"{dtype}-{name}": recurrence(dtype, return_last=True, **call)
        for dtype in INEXACT
        for name, call in {
            "arrays": {"initial": "rows"},
            "channels": {"a": "channels", "segments": "keys", "reverse": True},
            "number": {"a": -0.75, "segments": "reset", "initial": 1.25},
        }.items()
    }
)
MISSING_OF = through_some_ways(
    {
        f"{op}-{dtype}": scan(op, dtype, nan=True, skipna=True, exclusive=op == "mul")
        for dtype, op in zip(INEXACT * 2, itertools.cycle(["add", "mul"]), strict=False)
    }
    | {f"{op}-{dtype}": scan(op, dtype, nan=True, skipna=True) for op in ("min", "max") for dtype in FLOATS}
)
EXACT = {
    "feature": THROUGH_KERNELS,
    "segments": SEGMENTS_OF,
    "positions": POSITIONS_OF,
    "recurrence": RECURRENCES_OF,
    "missing": MISSING_OF,
}
EVERYTHING = {f"{group}-{name}": case for group, cases in EXACT.items() for name, case in cases.items()}
LOGS = through_some_ways(LOG_SUMS, 4) | through_some_ways(
    {f"log sums of {dtype}": scan("logaddexp", dtype, segments="reset", reverse=True) for dtype in FLOATS}, 2
)


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """The kernels of the long tables, compiled side by side."""

    def of(feature: Feature, kind: str) -> Configs:
        with small_units():
            return configs_of(call_for(feature, kind).request())

    def of_ways(calls: Callable[[str], Iterator[Call]], kind: str) -> Configs:
        with small_units():
            return configs_of(*(call.request() for call in calls(kind)))

    tables = {
        "test_tuples_of_results": (functools.partial(of_ways, with_outs), zip(WAYS)),
        "test_in_place": (functools.partial(of_ways, in_place), zip(WAYS)),
        "test_the_bits_of_the_twin": (of, EVERYTHING.values()),
        "test_log_sums_are_close_to_exact_ones": (of, LOGS.values()),
        "test_replays_with_other_arrays": (lambda call: configs_of(call.request()), zip(FREQUENT.values())),
    }
    compile_ahead(request, tables)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, feature, kind", in_turn(EVERYTHING))
def test_the_bits_of_the_twin(name, feature, kind):
    check_call(name, call_for(feature, kind))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, feature, kind", in_turn(LOGS))
def test_log_sums_are_close_to_exact_ones(name, feature, kind):
    """Within eps (|exact| + 2.5 depth), see tests/test_log_and_nan.py; 16-bit results are rounded once more."""
    library, call = need(name), call_for(feature, kind)
    [got] = map(values, call.placed(Placement(library.device))())
    wide = got.dtype == np.float64  # the twin's sums count as exact, but have errors of their own
    exact = values(Call(call.function, call.arguments, {**call.keywords, "dtype": "float64"}).expected(library)[0])
    assert_close_logs(got, exact, 2 if wide else 1)


def assert_close_logs(got: np.ndarray, exact: np.ndarray, times: float) -> None:
    finite = np.isfinite(exact)
    wide = got.astype("f8")
    np.testing.assert_array_equal(wide[~finite], exact[~finite])
    eps = np.finfo("f8" if got.dtype == np.float64 else "f4").eps
    bound = times * eps * (np.abs(exact[finite]) + 2.5 * 64)
    if got.dtype.itemsize == 2:
        bound += {"float16": 2.0**-11, "bfloat16": 2.0**-8}[got.dtype.name] * (np.abs(exact[finite]) + bound)
    error = np.abs(wide[finite] - exact[finite])
    assert (error <= bound).all(), f"worst ratio {(error / bound).max()}"


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize(
    "name, feature",
    in_turn({key: (FEATURES[key],) for key in ("offsets, all flags", "keys", "recurrence", "string_hash")}),
)
def test_units_of_their_real_size(name, feature, kind):
    check_call(name, call_for(feature, kind))


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name, feature",
    in_turn(
        {key: (FEATURES[key],) for key in ("offsets", "reset, all flags", "positions", "recurrence", "matrix_product")}
    ),
)
def test_long_chains(name, feature):
    unit = 32  # for the widest type
    call = feature((1100 * 8 * unit + 5,), 0, 0)
    assert cuda.make_plan(call.request(), cuda._target(0)).config.levels == 3
    check_call(name, call)
    check_call(name, feature((40 * COLUMNS.unit + 3, 3), 0, 0))


# ---- segments ---------------------------------------------------------------------------------------------


def scanned_intervals(begins: np.ndarray) -> np.ndarray:
    """The scan of [0, 1), [1, 2), ... where segments begin at these places."""
    n = begins.size
    first = np.maximum.accumulate(np.where(begins, np.arange(n), 0))
    return intervals(first, np.arange(1, n + 1))


@pytest.mark.parametrize("kind", SEGMENTS[::2])
@pytest.mark.parametrize("reverse", [False, True])
def test_nothing_is_lost_in_long_chains_of_segments(kind, reverse):
    n = 2_000_003
    x = intervals(np.arange(n), np.arange(1, n + 1))
    order = slice(None, None, -1 if reverse else 1)
    given = segments_for(kind, (n,), 0, length=3000)
    if kind == "reset":
        begins = given["reset"][order].copy()
    else:
        keys = given.get("keys")
        if keys is None:
            keys = np.searchsorted(given["offsets"], np.arange(n), side="right")
        begins = np.concatenate([[True], keys[order][1:] != keys[order][:-1]])
    expected = scanned_intervals(begins)[order]
    device = need("cupy").device
    x, given = device(np.ascontiguousarray(x[order])), {key: device(array) for key, array in given.items()}
    with small_units():
        for got in [cuscan.scan(x, INTERVAL, reverse=reverse, **given) for _ in range(5)]:
            assert_same(got, expected)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, dtype", in_turn({dtype: (dtype,) for dtype in REAL}))
def test_keys_of_every_dtype(name, dtype):
    n, rng = 3000, np.random.default_rng(1)
    keys = np.repeat(rng.choice(np.array([0, 1, 2, 3]), n // 10), 10).astype(numpy_dtype(dtype))
    if dtype in FLOATS:
        keys[rng.random(n) < 0.05] = np.nan
        keys[rng.random(n) < 0.3] *= -1  # -0 is 0
    call = Call(cuscan.cumsum, (numbers((n,), "int32"),), {"keys": keys, "reverse": True})
    [got] = check_call(name, call)
    turned = keys[::-1]
    begins = np.concatenate([[True], turned[1:] != turned[:-1]])
    totals = np.cumsum(call.arguments[0][::-1], dtype=np.int64)
    starts = np.maximum.accumulate(np.where(begins, np.arange(n), 0))
    np.testing.assert_array_equal(got[::-1], totals - np.where(starts > 0, totals[starts - 1], 0))


# Shapes of so many elements that flags and keys of all lines become bits.
MANY = {
    "rows": ((2**18, 33), 1),
    "tiles": ((5, 2**21 + 77), 1),
    "strips": ((2**21, 5), 0),
    "whole rows": ((2**18 + 9, 40), 0),
    "panels": ((3, 700, 4099), 1),
}


@pytest.mark.parametrize("kind", ["reset", "keys"])
@pytest.mark.parametrize("layout", MANY)
def test_flags_and_keys_of_all_lines_give_the_bits_of_those_of_all_elements(layout, kind):
    (shape, axis), rng = MANY[layout], np.random.default_rng(3)
    n, x = shape[axis], cupy.asarray(rng.standard_normal(shape, np.float32))
    assert x.size >= FEWEST
    items = rng.random(n) < 0.01
    items[[0, -1]] = True
    if kind == "keys":
        items = np.where(rng.random(n) < 0.001, np.nan, np.cumsum(items) % 3).astype(np.float32)
    thin = cupy.broadcast_to(cupy.asarray(items.reshape([n if i == axis else 1 for i in range(x.ndim)])), shape)
    full = cupy.ascontiguousarray(thin)
    for call in ({}, {"reverse": True, "exclusive": True, "initial": 2.5}, {"include_initial": True}):
        got, expected = (cuscan.scan(x, axis=axis, **call, **{kind: flags}) for flags in (thin, full))
        assert_same(to_numpy(got), to_numpy(expected))


@pytest.mark.parametrize("layout", ACROSS)
def test_flags_across_rows_are_copied(layout, monkeypatch):
    monkeypatch.setattr(copied_flags.FEWEST, 0)
    case = ACROSS[layout]
    mask, reset = (Seen(case.memory(share), case.seen) for share in (0.6, 0.1))
    for call in ({"mask": mask}, {"reset": reset}, {"mask": mask, "reset": reset, "reverse": True}):
        check_call("cupy", Call(cuscan.scan, (numbers(case.shape),), {"axis": -1, **call}))


def test_many_flags_across_rows_give_the_bits_of_flags_along_them():
    rng, shape = np.random.default_rng(3), (3001, 5, 457)
    x, mask, reset = (rng.standard_normal(shape, np.float32), rng.random(shape) < 0.7, rng.random(shape) < 0.01)
    turned = [cupy.ascontiguousarray(cupy.asarray(flags).T).T for flags in (mask, reset)]
    for axis in (0, 2):
        there = cupy.asarray(x) if axis == 2 else cupy.ascontiguousarray(cupy.asarray(x).T).T
        along = [cupy.asarray(mask), cupy.asarray(reset)] if axis == 2 else turned
        across = turned if axis == 2 else [cupy.asarray(mask), cupy.asarray(reset)]
        got, expected = (cuscan.scan(there, axis=axis, mask=m, reset=r) for m, r in (across, along))
        assert_same(to_numpy(got), to_numpy(expected))


@pytest.mark.usefixtures("small")
@both_libraries
@pytest.mark.parametrize("shape, axis", [((3, 2000), 1), ((900, 5), 0)])
def test_segments_of_any_layout(name, shape, axis):
    x = numbers(shape)
    thin = tuple(1 if a != axis else n for a, n in enumerate(shape))
    for segments in ("reset", "keys of x"):
        [(key, array)] = segments_for(segments, shape, axis).items()
        fortran = Seen(np.ascontiguousarray(array.T), lambda memory: memory.T)
        for given in (strided(array), fortran):
            check_call(name, Call(cuscan.scan, (x,), {"axis": axis, key: given}))
    for segments in ("offsets", "offsets32", "keys"):
        [(key, array)] = segments_for(segments, shape, axis).items()
        check_call(name, Call(cuscan.scan, (x,), {"axis": axis, key: strided(array), "exclusive": True}))
    keys = segments_for("keys", shape, axis)["keys"].reshape(thin)
    check_call(name, Call(cuscan.scan, (x,), {"axis": axis, "keys": keys, "reverse": True}))


@both_libraries
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("place", [0, 300_000, 1_000_000])
def test_skewed_lengths(name, reverse, place):
    """One segment of 2^20 elements among a million others, most of which are empty."""
    rng = np.random.default_rng(2)
    lengths = np.where(rng.random(1_000_001) < 0.9, 0, rng.integers(0, 4, 1_000_001))
    lengths[place] = 2**20 + 5
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = int(offsets[-1])
    x = rng.integers(-100, 100, n, np.int32)
    totals = np.concatenate([[0], np.cumsum(x[::-1] if reverse else x)])
    ends = (n - offsets)[::-1] if reverse else offsets
    expected = totals[1:] - np.repeat(totals[ends[:-1]], np.diff(ends))
    expected = (expected[::-1] if reverse else expected).astype(np.int64)
    keys = np.repeat(np.arange(lengths.size), lengths)
    reset = np.diff(keys, append=-1) != 0 if reverse else np.diff(keys, prepend=-1) != 0
    library = need(name)
    array = library.device(x)
    for given in ({"offsets": offsets}, {"offsets": offsets.astype(np.int32)}, {"keys": keys}, {"reset": reset}):
        got = cuscan.scan(array, reverse=reverse, **{key: library.device(value) for key, value in given.items()})
        assert_same(got, library.host(expected), next(iter(given)))


@both_libraries
def test_lengths_become_cu_seqlens_in_one_call(name):
    lengths = np.random.default_rng(3).integers(0, 50, 30_000)
    call = Call(cuscan.scan, (lengths,), {"exclusive": True, "include_initial": True, "dtype": "int32"})
    [got] = check_call(name, call)
    np.testing.assert_array_equal(got, np.concatenate([[0], np.cumsum(lengths)]))
    offsets = cuscan.scan(need(name).device(lengths), **call.keywords)
    x = need(name).device(np.ones(int(got[-1]), np.int32))
    positions = values(cuscan.scan(x, offsets=offsets, exclusive=True, validate=True))
    np.testing.assert_array_equal(positions, np.arange(got[-1]) - np.repeat(got[:-1], lengths))


# ---- invalid offsets ----------------------------------------------------------------------------------------


def garbage(n: int) -> dict[str, np.ndarray]:
    """Arrays of offsets that a checked call would reject."""
    rng = np.random.default_rng(4)
    limits = np.iinfo(np.int64)
    return {
        "noise": rng.integers(limits.min, limits.max, 3000),
        "noise of 32 bits": rng.integers(-(2**31), 2**31, 3000).astype(np.int32),
        "inside, in no order": rng.integers(-5, n + 6, 3000),
        "decreasing": np.arange(n, -1, -1),
        "decreasing, 32 bits": np.arange(2 * n, -n, -7).astype(np.int32),
        "the ends of the range": np.resize(np.array([limits.max, limits.min]), 1001),
        "all beyond": np.full(100, n + 1),
        "all before": np.full(100, limits.min),
        "all the same": np.full(5000, n // 2),
        "one": np.array([n // 3]),
        "up and down": (np.arange(4000) * 7919) % (n + 1),
    }


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    "name, shape, axis",
    in_turn({"rows": ((7, 60), 1), "cluster": ((2, 1900), 1), "tiles": ((2, 5000), 1), "panels": ((1900, 3), 0)}),
)
@pytest.mark.usefixtures("small")
def test_whatever_offsets_hold_nothing_is_touched_outside(name, shape, axis, reverse):
    """Every result combines a run of elements that ends with its own; the memory around the arrays does not change."""
    library, n, margin = need(name), shape[axis], 512
    along = [-1 if a == axis else 1 for a in range(len(shape))]
    place = np.arange(n)[:: -1 if reverse else 1].reshape(along)
    x = np.broadcast_to(intervals(place, place + 1), shape)
    before = np.full((2, 2 * margin + x.size), 2**63 + 12345, np.uint64)
    before[0, margin:-margin] = x.reshape(-1)
    for what, bad in garbage(n).items():
        around = np.concatenate([np.zeros(margin, bad.dtype), bad, np.zeros(margin, bad.dtype)])
        memory, offsets = library.device(before), library.device(around)
        array, out = (memory[i, margin:-margin].reshape(shape) for i in (0, 1))
        given = offsets[margin:-margin]
        cuscan.scan(array, INTERVAL, axis=axis, reverse=reverse, offsets=given, out=out)
        after = to_numpy(memory)
        np.testing.assert_array_equal(after[0], before[0], what)
        for side in (slice(margin), slice(-margin, None)):
            np.testing.assert_array_equal(after[1, side], before[1, side], what)
        np.testing.assert_array_equal(to_numpy(offsets), around, what)
        got = after[1, margin:-margin].reshape(shape)
        assert (got >> np.uint64(32) == place + 1).all() and (got & np.uint64(2**32 - 1) <= place).all(), what
    check_call(name, FEATURES["offsets"](shape, axis, 0))  # the next call works


@pytest.mark.usefixtures("small")
@both_libraries
@pytest.mark.parametrize("reverse", [False, True])
def test_offsets_in_order_that_reach_beyond_the_axis(name, reverse):
    x, inside = numbers((3000,)), offsets_for(np.random.default_rng(5), 3000)
    library = need(name)
    for low, high in ((-(2**62), 2**62), (-1, 3001), (0, 5000)):
        wild = np.concatenate([[low] * 40, inside, [high] * 40])
        got = cuscan.scan(library.device(x), offsets=library.device(wild), reverse=reverse)
        assert_same(got, cuscan.scan(library.host(x), offsets=library.host(inside), reverse=reverse))
    for some in (inside[1000 // 40 :], inside[:-20]):  # the ends are boundaries even if offsets omit them
        whole = np.concatenate([[0], some, [3000]])
        got = cuscan.scan(library.device(x), offsets=library.device(some), reverse=reverse)
        assert_same(got, cuscan.scan(library.host(x), offsets=library.host(whole), reverse=reverse))


@both_libraries
def test_validate_finds_offsets_that_are_no_partition(name):
    library = need(name)
    x = library.device(numbers((100,)))
    out = library.device(np.full(100, 7, np.float32))
    for dtype in (np.int32, np.int64):
        for bad in ([1, 100], [0, 99], [0, 101], [-1, 100], [0, 60, 40, 100], [100, 0], [0], [100]):
            offsets = library.device(np.array(bad, dtype))
            with pytest.raises(ScanValueError, match="offsets"):
                cuscan.scan(x, offsets=offsets, validate=True, out=out)
            with pytest.raises(ScanValueError, match="offsets"):
                cuscan.linear_recurrence(0.5, x, offsets=offsets, validate=True, out=out)
        good = library.device(np.array([0, 0, 40, 40, 100, 100], dtype))
        assert_same(cuscan.scan(x, offsets=good, validate=True), cuscan.scan(x, offsets=good))
    assert (to_numpy(out) == 7).all()


# ---- one more result, and no elements -----------------------------------------------------------------------


@both_libraries
@pytest.mark.parametrize("reverse", [False, True])
def test_no_elements_and_one_more_result(name, reverse):
    library = need(name)
    empty = library.device(np.empty((3, 0), np.float32))
    offsets = library.device(np.zeros(4, np.int64))
    for call in ({}, {"initial": 4}, {"initial": 4, "offsets": offsets}, {"exclusive": True, "initial": 4}):
        got = values(cuscan.scan(empty, include_initial=True, reverse=reverse, **call))
        np.testing.assert_array_equal(got, np.full((3, 1), call.get("initial", 0), np.float32))
    turned = library.device(np.empty((0, 300), np.int16))
    got = values(cuscan.scan(turned, "max", axis=0, include_initial=True, reverse=reverse))
    np.testing.assert_array_equal(got, np.full((1, 300), -(2**15), np.int16))
    places = cuscan.cummin(empty, return_indices=True, include_initial=True, reverse=reverse)
    assert values(places[0]).tolist() == [[np.inf]] * 3 and values(places[1]).tolist() == [[-1]] * 3
    assert tuple(cuscan.scan(empty, axis=0, include_initial=True).shape) == (4, 0)
    for segments in ({"offsets": offsets}, {"keys": library.device(np.empty(0, np.int32))}):
        assert tuple(cuscan.scan(empty, reverse=reverse, **segments).shape) == (3, 0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, kind", in_turn({kind: (kind,) for kind in WAYS}))
def test_one_more_result_is_put_where_it_is_wanted(name, kind):
    call = call_for(FEATURES["one more, segments"], kind)
    shape = list(call.arguments[0].shape)
    shape[call.keywords["axis"]] += 1
    check_call(
        name, Call(call.function, call.arguments, {**call.keywords, "out": strided(np.zeros(shape, np.float32))})
    )


@both_libraries
def test_the_array_api(name):
    for function, dtype in itertools.product(
        (cuscan.cumulative_sum, cuscan.cumulative_prod), ("uint8", "int16", "float16")
    ):
        x = numbers((3, 500), dtype, "mul" if dtype == "float16" else "add")
        for call in ({"axis": 0}, {"axis": 1, "include_initial": True}, {"axis": -1, "dtype": "float32"}):
            [got] = check_call(name, Call(function, (x,), call))
            assert got.dtype.name == call.get("dtype", {"uint8": "uint64", "int16": "int64"}.get(dtype, dtype))
    check_call(name, Call(cuscan.cumulative_sum, (numbers((999,), "bool"),)))
    with pytest.raises(ScanValueError, match="axis"):
        cuscan.cumulative_sum(need(name).device(numbers((3, 4))))


# ---- positions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["cummax", "cummin"])
@pytest.mark.parametrize("dtype", ["uint8", "int64", "bfloat16", "float64"])
@pytest.mark.parametrize("shape, axis", [((50_000,), 0), ((700, 90), 0)])
def test_the_latest_of_ties_are_those_of_torch(function, dtype, shape, axis):
    library = need("torch")
    torch = library.torch
    x = library.device(extremum(cuscan.cummax, dtype)(shape, axis, 0).arguments[0])
    expected = getattr(torch, function)(x, axis)
    got = getattr(cuscan, function)(x, axis=axis, return_indices=True, ties="last")
    assert torch.equal(got[1], expected.indices)
    assert torch.equal(got[0].isnan(), expected.values.isnan())
    assert torch.equal(got[0].nan_to_num(99), expected.values.nan_to_num(99))


def test_positions_beyond_the_first_of_all():
    """The first position for a falling array; each element's own position for a rising one."""
    n = 3_000_000
    falling = need("cupy").device(np.arange(n, 0, -1, np.int32))
    for array, expected in ((falling, np.zeros(n, np.int64)), (falling[::-1], np.arange(n))):
        _, places = cuscan.cummax(array, return_indices=True)
        np.testing.assert_array_equal(to_numpy(places), expected)


# ---- tuples ---------------------------------------------------------------------------------------------------


def with_outs(kind: str) -> Iterator[Call]:
    """Calls with `out` for several results."""
    call = call_for(FEATURES["positions"], kind)
    shape = call.arguments[0].shape
    out = strided(np.zeros(shape, np.float32)), np.zeros(shape, np.int64)
    yield Call(call.function, call.arguments, {**call.keywords, "out": out})
    call = call_for(FEATURES["affine"], kind)
    shape = call.arguments[0][0].shape
    out = np.zeros(shape, np.float32), strided(np.zeros(shape, np.float32))
    yield Call(call.function, call.arguments, {**call.keywords, "out": out})


def in_place(kind: str) -> Iterator[Call]:
    """Calls whose results replace their inputs."""

    def turned(feature: str, out: Callable[[Any], Any], **keywords: Any) -> Call:
        call = call_for(FEATURES[feature], kind)
        return Call(call.function, call.arguments, {**call.keywords, **keywords, "out": out(call.arguments)})

    yield turned("positions", lambda given: (given[0], np.zeros(given[0].shape, np.int64)), reverse=True)
    yield turned("affine, flags", lambda given: given[0])
    yield turned("recurrence", lambda given: given[1])
    yield turned("recurrence", lambda given: given[0], return_last=True)
    yield turned("keys", lambda given: given[0], exclusive=True)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, kind", in_turn({kind: (kind,) for kind in WAYS}))
def test_tuples_of_results(name, kind):
    for call in with_outs(kind):
        check_call(name, call)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name, kind", in_turn({kind: (kind,) for kind in WAYS}))
def test_in_place(name, kind):
    for call in in_place(kind):
        check_call(name, call)


@both_libraries
def test_fields_that_are_broadcast_and_converted(name):
    rng = np.random.default_rng(6)
    scale, shift = rng.choice([-1, 1], (4, 1)).astype(np.int8), rng.integers(-3, 4, (9000,)).astype(np.float64)
    got = check_call(name, Call(cuscan.scan, ((scale, shift), AFFINE.operator()), {"axis": 1}))
    assert [part.dtype for part in got] == [np.float32, np.float32] and got[0].shape == (4, 9000)
    codes = rng.integers(0, 256, (300, 40)).astype(np.uint8)
    base = np.array([257], np.int16)
    check_call(name, Call(cuscan.scan, ((codes, base), STRING_HASH.operator()), {"axis": 0, "reverse": True}))


# ---- recurrences ------------------------------------------------------------------------------------------------


@both_libraries
@pytest.mark.parametrize(
    "dtype, reverse", [("float16", True), ("bfloat16", False), ("float32", True), ("complex64", False)]
)
def test_chunk_by_chunk_is_the_whole(name, dtype, reverse):
    """Whole numbers, so that no state is rounded: every association gives the same result."""
    rng, n, library = np.random.default_rng(7), 30_000, need(name)
    a, b = rng.choice([-1, 0, 1], (3, n), p=[0.45, 0.1, 0.45]), rng.integers(-4, 5, (3, n))
    a, b = a.astype(numpy_dtype(dtype)), b.astype(numpy_dtype(dtype))
    call = {"reverse": reverse, "return_last": True}
    whole, end = cuscan.linear_recurrence(library.host(a), library.host(b), **call)
    whole, end, carry = values(whole), values(end), None
    spans = list(itertools.pairwise([0, 1, 1, 700, 8192, 8192, 29_999, n]))
    a, b = library.device(a), library.device(b)
    for first, last in spans[::-1] if reverse else spans:
        chunk = slice(first, last)
        h, carry = cuscan.linear_recurrence(a[:, chunk], b[:, chunk], initial=carry, **call)
        np.testing.assert_array_equal(values(h), whole[:, chunk])
    assert library.owns(carry) and values(carry).dtype == end.dtype
    np.testing.assert_array_equal(values(carry), end)


@both_libraries
def test_an_empty_chunk_hands_the_carry_on(name):
    library = need(name)
    for dtype in ("float16", "float32", "float64", "complex64"):
        b = library.device(np.empty((2, 0, 3), dtype))
        state = np.float32 if dtype == "float16" else np.dtype(dtype)
        carry = np.arange(6).reshape(2, 3).astype(state)
        for initial, expected in (
            (library.device(carry), carry),
            (2.5, np.full((2, 3), 2.5)),
            (None, np.zeros((2, 3))),
        ):
            h, last = cuscan.linear_recurrence(0.5, b, axis=1, initial=initial, return_last=True)
            assert tuple(h.shape) == (2, 0, 3) and values(last).dtype == state
            np.testing.assert_array_equal(values(last), expected)
    thin = library.device(np.array([[1.5], [2.5]], np.float32))  # it is broadcast along the other axes
    _, last = cuscan.linear_recurrence(
        0.5, library.device(np.empty((2, 0, 3), np.float32)), axis=1, initial=thin, return_last=True
    )
    assert values(last).tolist() == [[1.5] * 3, [2.5] * 3]
    nothing = library.device(np.empty((0, 5), np.float32))
    h, last = cuscan.linear_recurrence(0.5, nothing, return_last=True)
    assert tuple(h.shape) == (0, 5) and tuple(last.shape) == (0,)


def test_the_host_waits_for_no_scan_of_nothing():
    torch = need("torch").torch
    nothing = torch.empty(0, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        _, carry = cuscan.cummax(nothing, return_carry=True)
        _, last = cuscan.linear_recurrence(0.5, nothing, initial=2.5, return_last=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert (carry.item(), last.item()) == (-np.inf, 2.5)


@both_libraries
@pytest.mark.parametrize("a", [2, 0.5, -1, 0, np.float32(0.3), 0.5 + 0.5j], ids=repr)
def test_a_decay_that_is_one_number(name, a):
    dtype = "complex64" if isinstance(a, complex) else "float32"
    for shape, axis in (((5, 90), 1), ((9000,), 0), ((300, 4), 0)):
        b = numbers(shape, dtype)
        got = check_call(name, Call(cuscan.linear_recurrence, (a, b), {"axis": axis}))
        if dtype == "float32":
            full = np.full((1,) * len(shape), a, dtype)
            assert_same(got[0], check_call(name, Call(cuscan.linear_recurrence, (full, b), {"axis": axis}))[0])


@both_libraries
@pytest.mark.parametrize("initial", [(1, 1), (1, 33), (3, 33), (33,)], ids=str)
def test_carries_of_any_layout(name, initial):
    carry = numbers(initial, seed=1)
    call = {"axis": 1, "return_last": True}
    a, b = numbers((3, 700, 33), "float32", "mul"), numbers((3, 700, 33))
    check_call(name, Call(cuscan.linear_recurrence, (np.float32(0.5), b), {**call, "initial": carry}))
    check_call(
        name,
        Call(cuscan.linear_recurrence, (a * np.float32(0.9), b), {**call, "initial": strided(carry), "reverse": True}),
    )


@both_libraries
@pytest.mark.parametrize("n", [1000, 100_000])
def test_a_decay_of_zero_cuts_history_exactly(name, n):
    a, b = np.full(n, 0.99, np.float32), numbers((n,))
    b[:100] = 1e30
    cuts = np.arange(100, n, 97)
    a[cuts] = 0
    [got] = check_call(name, Call(cuscan.linear_recurrence, (a, b)))
    np.testing.assert_array_equal(got[cuts], b[cuts])
    assert (np.abs(got[100:]) < 1e5).all()


@both_libraries
def test_generalized_advantage_estimation_is_one_call(name):
    rng = np.random.default_rng(8)
    steps, agents, gamma, trace = 128, 1000, 0.99, 0.95
    rewards, predicted = rng.standard_normal((steps, agents)), rng.standard_normal((steps + 1, agents))
    dones = rng.random((steps, agents)) < 0.1
    expected, advantage = np.empty_like(rewards), np.zeros(agents)
    for t in reversed(range(steps)):
        delta = rewards[t] + gamma * predicted[t + 1] * ~dones[t] - predicted[t]
        advantage = delta + gamma * trace * ~dones[t] * advantage
        expected[t] = advantage
    deltas = rewards + gamma * predicted[1:] * ~dones - predicted[:-1]
    call = {"axis": 0, "reverse": True, "reset": dones}
    [got] = check_call(name, Call(cuscan.linear_recurrence, (gamma * trace, deltas), call))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-11)


# ---- log sums ---------------------------------------------------------------------------------------------------


@both_libraries
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_infinities_and_nan_are_those_of_numpy(name, dtype):
    rows = np.array(list(itertools.product([-np.inf, np.inf, np.nan, 1.0, -2.0], repeat=5)), dtype)
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp.accumulate(rows.astype("f8"), axis=1)
    library = need(name)
    for x, axis, turned in ((rows, 1, False), (np.ascontiguousarray(rows.T), 0, True)):
        got = values(cuscan.logcumsumexp(library.device(x), axis=axis))
        assert_close_logs(got.T if turned else got, expected, 2)


@both_libraries
@pytest.mark.parametrize("value", [0.0, -300.0, 1e6, -3e38])
def test_log_sums_of_many_equal_terms(name, value):
    n = 3_000_000
    x = np.full(n, value, np.float32)
    got = values(cuscan.logcumsumexp(need(name).device(x)))
    assert_close_logs(got, np.float64(x[0]) + np.log(np.arange(1, n + 1)), 1)


# ---- user operators ---------------------------------------------------------------------------------------------


@both_libraries
@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_operators_mean_what_they_say(name, example):
    n = 20_000
    arrays = example.draw(np.random.default_rng(9), (n,))
    library = need(name)
    x = tuple(map(library.device, arrays))
    got = cuscan.scan(x if example.state else x[0], example.operator(numpy=None))
    fields = [values(field) for field in (got if example.state else (got,))]
    assert [field.dtype.name for field in fields] == example.dtypes
    for i in (0, 1, 255, 4096, 8191, 8192, n - 1):
        row = list(zip(*(array[: i + 1].tolist() for array in arrays), strict=True))
        assert tuple(field[i].item() for field in fields) == example.meaning(row)


@both_libraries
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint16", "int32", "uint64", "float16", "bfloat16", "float64"])
def test_one_value_keeps_its_dtype(name, dtype):
    latest = cuscan.Operator(
        "latest",
        "later != T(0) ? later : earlier",
        0,
        numpy=lambda earlier, later: np.where(later != 0, later, earlier),
    )
    rng = np.random.default_rng(10)
    x = (rng.integers(0, 2 if dtype == "bool" else 100, (3, 9000)) * (rng.random((3, 9000)) < 0.1)).astype(
        numpy_dtype(dtype)
    )
    [got] = check_call(name, Call(cuscan.scan, (x, latest), {"initial": 1, "exclusive": True}))
    assert got.dtype == x.dtype


def test_fields_of_many_sizes():
    names = ["int8", "uint16", "int32", "float64"]
    state = dict(zip("abcd", names, strict=True))
    op = cuscan.Operator(
        "sums",
        "State{int8(earlier.a + later.a), uint16(earlier.b + later.b), earlier.c + later.c, earlier.d + later.d}",
        (0, 0, 0, 0),
        state=state,
        numpy=lambda earlier, later: tuple(earlier[field] + later[field] for field in state),
    )
    rng = np.random.default_rng(11)
    x = tuple(rng.integers(0, 3, (2, 9000)).astype(dtype) for dtype in names)
    for name, axis in (("cupy", 0), ("torch", 1)):
        check_call(name, Call(cuscan.scan, (x, op), {"axis": axis, **segments_for("reset", (2, 9000), axis)}))


@both_libraries
def test_what_does_not_compile_shows_the_users_line(name):
    broken = cuscan.Operator("broken", "earlier + latter", 0)
    x = need(name).device(numbers((3000,)))
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            cuscan.scan(x, broken)
        assert "combine of broken" in str(caught.value) and "latter" in str(caught.value)
    check_call(name, Call(cuscan.scan, (numbers((3000,)),)))


def test_equal_operators_share_a_kernel(monkeypatch):
    x = tuple(map(need("cupy").device, AFFINE.draw(np.random.default_rng(12), (777,))))
    first = cuscan.scan(x, AFFINE.operator())

    def forbidden(*args, **kwargs):
        raise AssertionError("an equal operator compiles nothing")

    monkeypatch.setattr(kernel, "load_kernel", forbidden)
    for got, expected in zip(cuscan.scan(x, AFFINE.operator()), first, strict=True):
        assert_same(got, expected)


# ---- errors -----------------------------------------------------------------------------------------------------


@both_libraries
def test_arrays_of_another_library_or_device(name):
    library = need(name)
    other = need(LIBRARIES[1 - LIBRARIES.index(name)])
    x = library.device(numbers((50,)))
    arrays = {"reset": np.zeros(50, bool), "offsets": np.array([0, 50]), "keys": np.zeros(50, np.int32)}
    for key, array in arrays.items():
        with pytest.raises(ScanTypeError, match=f"{key} is of {other.name} and x of {name}"):
            cuscan.scan(x, **{key: other.device(array)})
        with pytest.raises((ScanTypeError, ScanValueError), match=f"{key} is o"):
            cuscan.scan(x, **{key: library.host(array)})
    with pytest.raises(ScanTypeError, match=f"a is of {other.name}"):
        cuscan.linear_recurrence(other.device(numbers((50,))), x)
    with pytest.raises(ScanTypeError, match=f"initial is of {other.name}"):
        cuscan.linear_recurrence(0.5, x, initial=other.device(np.ones((), np.float32)))
    with pytest.raises(ScanTypeError, match=r"is of"):
        cuscan.scan((x, other.device(numbers((50,)))), AFFINE.operator())
    with pytest.raises(ScanValueError, match="reset and offsets"):
        cuscan.scan(x, **{key: library.device(arrays[key]) for key in ("reset", "offsets")})
    with pytest.raises(ScanValueError, match="out"):
        cuscan.cummax(x, return_indices=True, out=(x[:40], library.device(np.zeros(40, np.int64))))
    positions = library.device(np.zeros(50, np.int64))
    with pytest.raises(ScanValueError, match="out"):
        cuscan.cummax(positions, return_indices=True, out=(positions, positions))


def test_jax_arrays_in_every_place():
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    host, place = numbers((3, 9000)), jax.numpy.asarray
    for kind in ("reset", "offsets32", "keys of x"):
        given = segments_for(kind, (3, 9000), 1)
        got = cuscan.scan(place(host), **{key: place(array) for key, array in given.items()})
        assert isinstance(got, jax.Array)
        assert_same(got, cuscan.scan(host, **given))
    decay, carry = numbers((3, 1), "float32", "mul"), numbers((3,))
    got = cuscan.linear_recurrence(place(decay) * 0.5, place(host), initial=place(carry), return_last=True)
    expected = cuscan.linear_recurrence(decay * np.float32(0.5), host, initial=carry, return_last=True)
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)
    x = AFFINE.draw(np.random.default_rng(13), (9000,))
    for one, other in zip(
        cuscan.scan(tuple(map(place, x)), AFFINE.operator()), cuscan.scan(x, AFFINE.operator()), strict=True
    ):
        assert_same(one, other)


# ---- streams and graphs -------------------------------------------------------------------------------------------

# Calls that a program repeats with other arrays. Their carries from unit to unit take 4 to 32 bytes.
_REPEATED: dict[str, tuple[Feature, tuple[int, ...], int]] = {
    "offsets": (FEATURES["offsets, all flags"], (100_000,), 0),
    "offsets of columns": (FEATURES["offsets"], (3000, 6), 0),
    "keys": (FEATURES["keys"], (2, 40_000), 1),
    "reset": (FEATURES["reset"], (300, 50), 1),
    "positions": (FEATURES["positions, all flags"], (60_000,), 0),
    "recurrence": (recurrence(initial="rows", return_last=True), (3, 30_000), 1),
    "recurrence of columns": (recurrence("float16", initial="rows", segments="offsets"), (3000, 6), 0),
    "one decay": (FEATURES["recurrence, one decay"], (60_000,), 0),
    "matrices": (user(MATRIX_PRODUCT, initial=True), (40_000,), 0),
    "one more": (FEATURES["one more, segments"], (40_000,), 0),
}
FREQUENT = {name: feature(shape, axis, 0) for name, (feature, shape, axis) in _REPEATED.items()}


def several(what: str, count: int) -> list[Call]:
    """Calls that differ only in their arrays, which have the same shapes."""
    feature, shape, axis = _REPEATED[what]
    calls = [feature(shape, axis, seed) for seed in range(count)]
    first = calls[0].keywords.get("initial")
    return [
        Call(
            c.function,
            c.arguments,
            {**c.keywords, "initial": first} if isinstance(first, tuple | float) else c.keywords,
        )
        for c in calls
    ]


frequent = pytest.mark.parametrize("name, what", in_turn({what: (what,) for what in _REPEATED}))


def refill(library: Any, target: Placement, source: Placement) -> None:
    """Copy arrays over those of another call, on the current stream."""
    for into, array in zip(target.memory.values(), source.memory.values(), strict=True):
        into[...] = array


@frequent
def test_replays_with_other_arrays(name, what):
    library, calls = need(name), several(what, 4)
    stream, target = library.stream(), Placement(library.device)
    run = calls[0].placed(target)
    sources = [Placement(library.device) for _ in calls]
    for call, source in zip(calls, sources, strict=True):
        call.placed(source)
    expected = [call.expected(library) for call in calls]
    run()
    library.synchronize()
    graph, results = library.capture(run, stream)
    queued = []
    for number in range(20):
        with library.on(stream):
            refill(library, target, sources[(number + 1) % 4])
            library.replay(graph, stream)
            queued.append(tuple(library.copy(result) for result in results))
    library.synchronize()
    for number, got in enumerate(queued):
        for part, (one, other) in enumerate(zip(got, expected[(number + 1) % 4], strict=True)):
            assert_same(one, other, f"part {part} of replay {number}")
    assert not same_bits(queued[0][0], queued[1][0]).all()


@both_libraries
def test_a_graph_writes_nothing_but_its_results(name):
    """Memory that a captured call uses internally is not given to other arrays."""
    library = need(name)
    b = numbers((60_000,))
    x, stream = library.device(b), library.stream()
    expected = cuscan.linear_recurrence(0.5, library.host(b))
    with library.on(stream):
        cuscan.linear_recurrence(0.5, x)
    library.synchronize()
    graph, result = library.capture(lambda: cuscan.linear_recurrence(0.5, x), stream)
    with library.on(stream):
        others = [library.device(np.full(size, -1, np.float32)) for size in (1, 100, 1000, 100_000) for _ in range(20)]
        for _ in range(3):
            library.replay(graph, stream)
    library.synchronize()
    assert_same(result, expected)
    for array in others:
        assert (to_numpy(array) == -1).all()


@frequent
def test_nothing_waits_for_the_device(name, what):
    library, [call] = need(name), several(what, 1)
    stream, run = library.stream(), call.placed(Placement(library.device))
    with library.on(stream):
        run()  # so that the kernel is compiled and has its workspace
    hold(0, library.handle(stream))
    library.synchronize()
    hold(100, library.handle(stream))
    event = library.event(stream)
    with library.on(stream):
        got = run()
    assert not library.is_done(event)
    library.synchronize()
    for one, other in zip(got, call.expected(library), strict=True):
        assert_same(one, other)


@both_libraries
def test_validate_waits(name):
    library = need(name)
    x, offsets = library.device(numbers((3000,))), library.device(np.array([0, 100, 3000]))
    stream = library.stream()
    with library.on(stream):
        cuscan.scan(x, offsets=offsets)
    hold(0, library.handle(stream))
    library.synchronize()
    hold(50, library.handle(stream))
    event = library.event(stream)
    with library.on(stream):
        cuscan.scan(x, offsets=offsets, validate=True)
    assert library.is_done(event)


@frequent
def test_work_goes_to_the_current_stream(name, what):
    """Earlier work on the stream fills all arrays: on any other stream the call would see the old ones."""
    library, (old, new) = need(name), several(what, 2)
    target, source = Placement(library.device), Placement(library.device)
    run = old.placed(target)
    new.placed(source)
    run()
    library.synchronize()
    stream = library.stream()
    hold(0, library.handle(stream))
    with library.on(stream):
        hold(50, library.handle(stream))
        refill(library, target, source)
        got = run()
        stream.synchronize()
    for one, other in zip(got, new.expected(library), strict=True):
        assert_same(one, other)


@frequent
def test_the_same_bits_while_another_stream_copies(name, what):
    library, [call] = need(name), several(what, 1)
    run = call.placed(Placement(library.device))
    noise = library.device(np.zeros(2**26, np.uint8))
    target = library.copy(noise)
    busy, stream = library.stream(), library.stream()
    first = run()
    library.synchronize()
    different = []
    for _ in range(100):
        with library.on(busy):
            for _ in range(3):
                target[...] = noise
        with library.on(stream):
            different += [((one != other) & (one == one)).sum() for one, other in zip(run(), first, strict=True)]
    library.synchronize()
    assert not any(int(count) for count in different)
    for one, other in zip(first, call.expected(library), strict=True):
        assert_same(one, other)


@frequent
def test_a_second_call_is_a_lookup(name, what, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a second call compiles nothing")

    library, (one, other) = need(name), several(what, 2)
    one.placed(Placement(library.device))()
    run, expected = other.placed(Placement(library.device)), other.expected(library)
    for module, step in ((cuda, "make_request"), (cuda, "make_plan"), (kernel, "Kernel")):
        monkeypatch.setattr(module, step, forbidden)
    for got, twin in zip(run(), expected, strict=True):
        assert_same(got, twin)


# ---- the same bits in any batch -------------------------------------------------------------------------------------


def rows_of(length: int, what: str, library: Any) -> tuple[Any, ...]:
    """The arrays of 4096 rows, and a function of these arrays."""
    rng = np.random.default_rng(14)
    x = rng.standard_normal((4096, length), np.float32)
    if what == "reset":
        return lambda x, reset: (cuscan.scan(x, reset=reset),), (x, rng.random(x.shape) < 0.01)
    if what == "offsets":
        offsets = library.device(offsets_for(rng, length))
        return lambda x: (cuscan.scan(x, offsets=offsets, exclusive=True),), (x,)
    if what == "recurrence":
        a = rng.uniform(-1, 1, x.shape).astype(np.float32)
        return (
            lambda a, b, carry: cuscan.linear_recurrence(a, b, axis=-1, initial=carry, return_last=True),
            (a, x, rng.standard_normal(4096, np.float32)),
        )
    if what == "log sums":
        return lambda x: (cuscan.logcumsumexp(x),), (x,)
    return lambda a, b: cuscan.scan((a, b), AFFINE.operator()), (rng.uniform(-1, 1, x.shape).astype(np.float32), x)


@pytest.mark.parametrize("what", ["reset", "offsets", "recurrence", "log sums", "operator"])
@pytest.mark.parametrize("length", [50, 1000, 9000])
def test_a_row_does_not_notice_the_other_rows(what, length):
    library = need("cupy")
    function, arrays = rows_of(length, what, library)
    arrays = tuple(map(library.device, arrays))
    batch = function(*arrays)

    def same(got: tuple[Any, ...], rows: Any) -> bool:
        return all(
            bool((one.view(np.uint32) == other[rows].view(np.uint32)).all())
            for one, other in zip(got, batch, strict=True)
        )

    for row in (0, 1, 76, 4095):  # each alone, as an array of one dimension
        alone = function(*(array[row].copy() for array in arrays))
        assert same(tuple(part.reshape(1, -1) if part.ndim else part.reshape(1) for part in alone), slice(row, row + 1))
    for first, count in ((0, 1), (1, 2), (100, 77), (4000, 96)):
        rows = slice(first, first + count)
        assert same(function(*(array[rows] for array in arrays)), rows)
    order = cupy.asarray(np.random.default_rng(15).permutation(4096))
    assert same(function(*(array[order] for array in arrays)), order)
