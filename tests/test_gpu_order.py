"""The defined order on a GPU: nothing lost, doubled or swapped; the same bits in every run and in every batch."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from gpu import (
    LIBRARIES,
    WAYS,
    assert_same,
    check,
    compile_ahead,
    config_of,
    configs_of,
    cupy,
    need,
    numbers,
    numpy_dtype,
    request_of,
    small_units,
    to_numpy,
    values,
    way,
)
from interval import INTERVAL, Example

import cuscan
from cuscan.order import COLUMNS, CONTIGUOUS

pytestmark = pytest.mark.gpu

both_libraries = pytest.mark.parametrize("name", LIBRARIES)

FLAGS = {
    "plain": (False, False, False, False),
    "reverse": (True, False, False, False),
    "exclusive": (False, True, False, False),
    "masked": (False, False, True, False),
    "initial": (False, False, False, True),
    "all": (True, True, True, True),
}


# ---- intervals --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """The kernels of the longest table, compiled side by side."""

    def configs(kind, flags):
        reverse, exclusive, masked, initial = flags
        shape, axis = way(kind, "uint64")
        call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "initial": 7 if initial else None}
        call["mask"] = np.empty(shape, bool) if masked else None
        return configs_of(request_of(cuscan.scan, np.empty(shape, np.uint64), INTERVAL, **call))

    cases = itertools.product(WAYS, FLAGS.values())
    compile_ahead(request, {"test_intervals_through_every_kernel": (configs, cases)})


def assert_intervals(shape: tuple[int, ...], axis: int, flags: tuple[bool, ...], rounds: int = 1) -> None:
    """A scan of intervals along an axis in CuPy equals the one that `Example` predicts."""
    reverse, exclusive, masked, initial = flags
    mask = np.random.default_rng(1).random(shape) < 0.8 if masked else None
    example = Example(shape, axis, reverse=reverse, mask=mask, initial=initial)
    device = need("cupy").device
    x, kept, expected = (
        device(example.value),
        None if mask is None else device(mask),
        example.scanned(exclusive=exclusive),
    )
    call = {"axis": axis, "reverse": reverse, "exclusive": exclusive, "mask": kept, "initial": example.initial}
    for got in [cuscan.scan(x, INTERVAL, **call) for _ in range(rounds)]:
        assert_same(got, expected)


@pytest.mark.parametrize("flags", FLAGS.values(), ids=FLAGS)
@pytest.mark.parametrize("kind", WAYS)
def test_intervals_through_every_kernel(kind, flags):
    assert_intervals(*way(kind, "uint64"), flags)


@pytest.mark.parametrize("flags", [FLAGS["plain"], FLAGS["all"]], ids=["plain", "all"])
@pytest.mark.parametrize("n", [10_000, 4_000_003])
def test_intervals_through_long_chains_of_small_units(n, flags):
    with small_units():
        assert config_of(np.empty(4_000_003, np.uint64), INTERVAL).levels == 3
        assert_intervals((n,), 0, flags, rounds=10)


@pytest.mark.parametrize("flags", [FLAGS["plain"], FLAGS["all"]], ids=["plain", "all"])
def test_intervals_through_chains_of_sections(flags):
    assert_intervals((1100 * CONTIGUOUS[8].unit + 9,), 0, flags)
    assert_intervals((4100 * COLUMNS.unit + 9, 3), 0, flags)


@pytest.mark.parametrize("flags", [FLAGS["plain"], FLAGS["initial"]], ids=["plain", "initial"])
@pytest.mark.parametrize("columns, rows", [(15, 830 * 256 + 9), (3, 830 * 2048 + 9), (96, 400 * 256 + 9)])
def test_intervals_through_batches_of_tiles(columns, rows, flags):
    constants = dict(config_of(np.empty((rows, columns), np.uint64), INTERVAL, axis=0).constants)
    assert constants["Batch"] == 2 and constants["BulkStores"] == constants["Flat"] == (columns <= 32)
    assert_intervals((rows, columns), 0, flags, rounds=3)


@pytest.mark.parametrize(
    "columns, rows",
    [(15, 830 * 256 + 9), (16, 830 * 256 + 9), (2, 830 * 4096), (3, 830 * 2048 + 8), (100, 500 * 256)],
)
def test_batches_of_tiles_have_the_bits_of_the_twin(columns, rows):
    for call in ({}, {"reverse": True, "exclusive": True, "initial": 1.5}):
        check("cupy", numbers((rows, columns)), axis=0, **call)


def test_intervals_see_a_swap():
    value = Example((100_000,)).value
    value[[40_000, 40_001]] = value[[40_001, 40_000]]
    got = to_numpy(cuscan.scan(need("cupy").device(value), INTERVAL))
    expected = Example((100_000,)).scanned()
    assert (got[:40_000] == expected[:40_000]).all() and not (got[40_000:] == expected[40_000:]).any()


# ---- the same bits ------------------------------------------------------------------------------------------


def normal(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape, np.float32)


def gpu_bits(array: Any) -> Any:
    """The bits of float32 results, still on the GPU."""
    return array.view(cupy.uint32)


@pytest.mark.parametrize("flags", [{}, {"reverse": True, "exclusive": True}], ids=["plain", "reverse-exclusive"])
@pytest.mark.parametrize("length", [5, 100, 1000, 3000, 20_000])
def test_a_row_does_not_notice_the_other_rows(length, flags):
    x = need("cupy").device(normal((4096, length)))
    scan = functools.partial(cuscan.scan, axis=1, **flags)
    batch = gpu_bits(scan(x))
    for row in (0, 1, 76, 4095):
        alone = cuscan.scan(x[row].copy(), **flags)
        assert bool((gpu_bits(alone) == batch[row]).all())
    for first, rows in ((0, 2), (1, 77), (4000, 96)):
        assert bool((gpu_bits(scan(x[first : first + rows])) == batch[first : first + rows]).all())
    order = np.random.default_rng(2).permutation(4096)
    assert bool((gpu_bits(scan(x[cupy.asarray(order)])) == batch[cupy.asarray(order)]).all())


@pytest.mark.parametrize("length", [5, 300, 9000])
def test_a_column_does_not_notice_the_other_columns(length):
    x = need("cupy").device(normal((length, 2112)))
    batch = gpu_bits(cuscan.scan(x, axis=0))
    for first, columns in ((0, 2), (1, 77), (2000, 112)):
        some = cuscan.scan(x[:, first : first + columns].copy(), axis=0)
        assert bool((gpu_bits(some) == batch[:, first : first + columns]).all())
    stacked = cuscan.scan(cupy.stack([x[:, :64], x[:, 64:128]]), axis=1)
    assert bool((gpu_bits(stacked[1]) == batch[:, 64:128]).all())


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize(
    "dtype, op", [("float16", "add"), ("bfloat16", "mul"), ("float64", "add"), ("complex64", "mul")]
)
@pytest.mark.parametrize("length", [100, 5000])
def test_rows_of_other_dtypes_do_not_notice_each_other(name, dtype, op, length):
    library, host = need(name), numbers((4096, length), dtype, op)
    order = np.random.default_rng(3).permutation(4096)
    x, turned = library.device(host), library.device(host[order])
    batch = values(cuscan.scan(x, op, axis=1))
    for row in (0, 4095):
        assert_same(values(cuscan.scan(x[row], op)), batch[row])
    for first, rows in ((7, 1), (0, 2), (1, 77)):
        assert_same(values(cuscan.scan(x[first : first + rows], op, axis=1)), batch[first : first + rows])
    assert_same(values(cuscan.scan(turned, op, axis=1)), batch[order])


@pytest.mark.parametrize("length", [300, 9000])
def test_permuted_columns_and_columns_of_many_matrices(length):
    x = need("cupy").device(normal((length, 500)))
    batch = gpu_bits(cuscan.scan(x, axis=0))
    order = cupy.asarray(np.random.default_rng(4).permutation(500))
    assert bool((gpu_bits(cuscan.scan(x[:, order].copy(), axis=0)) == batch[:, order]).all())
    into = cupy.empty((length, 1000), np.float32)[:, ::2]  # the rows of this result are not dense
    assert bool((cuscan.scan(x, axis=0, out=into).copy().view(np.uint32) == batch).all())
    matrices = x.reshape(length, 10, 50).transpose(1, 0, 2).copy()
    scanned = gpu_bits(cuscan.scan(matrices, axis=1))
    assert bool((scanned.transpose(1, 0, 2).reshape(length, 500) == batch).all())


@both_libraries
@pytest.mark.parametrize("shape, axis", [((2**23 + 5,), 0), ((2**17, 60), 0), ((300, 20_000), 1)])
def test_the_same_bits_while_another_stream_copies(name, shape, axis):
    library = need(name)
    host = normal(shape)
    x, noise = library.device(host), library.device(np.zeros(2**26, np.uint8))
    target = library.copy(noise)
    busy, stream = library.stream(), library.stream()
    first = cuscan.scan(x, axis=axis)
    library.synchronize()
    results = []
    for _ in range(100):
        with library.on(busy):
            for _ in range(3):
                target[...] = noise
        with library.on(stream):
            results.append((cuscan.scan(x, axis=axis) != first).sum())
    library.synchronize()
    assert not any(int(different) for different in results)
    assert_same(first, cuscan.scan(library.host(host), axis=axis))


@pytest.mark.parametrize("axis", [0, 1])
def test_an_axis_is_contiguous_in_array_and_result_or_it_is_across(axis):
    x = numbers((600, 500))
    c, f = need("cupy").device(x), need("cupy").device(x.T.copy()).T
    along, across = (c, f) if axis == 1 else (f, c)
    expected = to_numpy(cuscan.scan(across, axis=axis))
    assert not (to_numpy(cuscan.scan(along, axis=axis)) == expected).all()
    for value, like in ((across, along), (along, across)):
        assert_same(cuscan.scan(value, axis=axis, out=cupy.empty_like(like)), expected)


# ---- rounding errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
def test_the_error_stays_small_over_many_elements(reverse):
    """|error| <= 16 eps sum |x|, where the sum is over the elements that contribute to the result."""
    x = normal((2**26,))
    turned = x[::-1] if reverse else x
    exact, magnitude = np.cumsum(turned, dtype="f8"), np.cumsum(np.abs(turned), dtype="f8")
    got = to_numpy(cuscan.scan(need("cupy").device(x), reverse=reverse))
    got = got[::-1] if reverse else got
    assert (np.abs(got - exact) <= 16 * np.finfo("f4").eps * magnitude).all()
    tenths = need("cupy").device(np.full(2**24, 0.1, np.float32))
    error = np.abs(to_numpy(cuscan.scan(tenths, reverse=reverse)).max() / (2**24 * np.float64(np.float32(0.1))) - 1)
    assert error <= 2 * np.finfo("f4").eps


@pytest.mark.parametrize("reverse", [False, True])
def test_the_error_of_float64_is_that_of_its_rounding(reverse):
    """|error| <= (24 + log2 n) eps sum |x|, against sums of integers, which are exact."""
    n = 2**24
    rng = np.random.default_rng(6)
    high, low = rng.integers(2**24, 2**26, n) * rng.choice([-1, 1], n), rng.integers(0, 2**26, n)
    x = high * 2.0**26 + low  # at most 53 bits: exact
    order = slice(None, None, -1 if reverse else 1)
    got = to_numpy(cuscan.scan(need("cupy").device(x), reverse=reverse))[order]
    highs, lows = np.cumsum(high[order]), np.cumsum(low[order])
    magnitude = np.cumsum(np.abs(x[order]))
    error = np.abs((got - highs * 2.0**26) - lows)  # this rounds by less than 1
    assert (error <= (24 + np.log2(n)) * np.finfo("f8").eps * magnitude + 2).all()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_error_of_halves_is_that_of_one_rounding(dtype):
    """They are summed in float32, and rounded once."""
    x = (normal((2**22,)) * 2**-10).astype(numpy_dtype(dtype))
    wide = x.astype("f8")
    exact, magnitude = np.cumsum(wide), np.cumsum(np.abs(wide))
    got = values(cuscan.scan(need("cupy").device(x))).astype("f8")
    half = {"float16": 2.0**-11, "bfloat16": 2.0**-8}[dtype]
    summed = 16 * np.finfo("f4").eps * magnitude
    assert (np.abs(got - exact) <= summed + half * (np.abs(exact) + summed) + 2.0**-25).all()


@pytest.mark.parametrize("kind", WAYS)
def test_a_hundred_runs_give_the_same_bits(kind):
    shape, axis = way(kind)
    x = need("cupy").device(numbers(shape))
    first = gpu_bits(cuscan.scan(x, axis=axis))
    different = [(gpu_bits(cuscan.scan(x, axis=axis)) != first).sum() for _ in range(100)]
    assert not any(int(count) for count in different)
    assert_same(cuscan.scan(x, axis=axis), cuscan.scan(numbers(shape), axis=axis))


# ---- orders of axes in memory ---------------------------------------------------------------------------------------

TURNED = [order for order in itertools.permutations(range(3)) if order != (0, 1, 2)]


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "float64"])
@pytest.mark.parametrize("order", TURNED)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_results_lie_in_another_order_than_values(axis, order, dtype):
    """Long and short axes, with enough lines for all blocks and with few."""
    for shape in ((3, 4001, 190), (700, 90, 33), (40000, 5, 6)):
        out = numbers(tuple(shape[a] for a in order), dtype, seed=1)
        check(
            "cupy",
            numbers(shape, dtype),
            axis=axis,
            dtype=dtype,
            reverse=axis == 1,
            out=out,
            out_view=lambda out: out.transpose(np.argsort(order)),
        )
