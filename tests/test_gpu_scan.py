"""Scans on a GPU: compared bit for bit with the twin, and with NumPy's own arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from gpu import (
    COLUMNS_OF_ROWS,
    H200,
    LIBRARIES,
    TURNED,
    WAYS,
    Call,
    Seen,
    assert_same,
    available,
    broadcast,
    check,
    check_call,
    compile_ahead,
    config_of,
    configs_of,
    cupy,
    ml_dtypes,
    need,
    numbers,
    numpy_dtype,
    permuted,
    request_of,
    rows_anywhere,
    same_bits,
    small_units,
    turned,
    values,
    way,
)
from host_cases import COMPLEX, EXACT, FLOATS, assert_close, cases, initial_for, numbers_for
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import cuscan
from cuscan import ScanTypeError, ScanValueError
from cuscan.backends import cuda, kernel, repeats, workspace
from cuscan.dtypes import DTYPES
from cuscan.interop import adopt
from cuscan.kept import Table
from cuscan.operators import OPERATORS
from cuscan.order import COLUMNS, CONTIGUOUS
from cuscan.planning import make_plan

pytestmark = pytest.mark.gpu

SOME_WAYS = ["rows", "cluster aligned", "tiles-shared bulk", "panels wide", "strips-shared wide", "whole_rows-shared"]
both_libraries = pytest.mark.parametrize("name", LIBRARIES)


def in_turn(*lists: Any) -> list[Any]:
    """Test parameters: the items of the lists; the libraries take turns."""
    libraries = itertools.cycle(LIBRARIES)
    return [pytest.param(next(libraries), *items, id="-".join(map(str, items))) for items in lists]


# ---- rows that begin anywhere --------------------------------------------------------------------------


@pytest.mark.parametrize("name, rows", in_turn(*((rows,) for rows in rows_anywhere())))
def test_rows_that_begin_anywhere(name, rows):
    call = rows_anywhere()[rows]
    config = make_plan(call.request(), H200).config
    assert (config.family, config.grid, dict(config.constants)["Flat"]) == ("strips", True, 0)
    for _ in range(3):
        check_call(name, call)


@pytest.mark.parametrize("name, arrays", in_turn(*((arrays,) for arrays in TURNED)))
def test_arrays_that_lie_along_the_axis(name, arrays):
    call = turned(*TURNED[arrays])
    config = make_plan(call.request(), H200).config
    assert (config.family, config.grid) == ("strips", True)
    for _ in range(3):
        check_call(name, call)


@pytest.mark.parametrize("name, rows", in_turn(*((rows,) for rows in COLUMNS_OF_ROWS)))
def test_columns_of_several_rows(name, rows):
    call = COLUMNS_OF_ROWS[rows]()
    config = make_plan(call.request(), H200).config
    assert config.family == "panels" and dict(config.constants)["Gaps"]
    for _ in range(3):
        check_call(name, call)


# ---- operators, dtypes, flags --------------------------------------------------------------------------


OPERATORS_AND_DTYPES = [
    (op.name, d.name) for op in OPERATORS.values() for d in DTYPES.values() if op.exact and d.kind in op.kinds
]
OPERATORS_AND_DTYPES = [(*pair, kind) for pair, kind in zip(OPERATORS_AND_DTYPES, itertools.cycle(WAYS))]


@pytest.mark.parametrize("name, op, dtype, kind", in_turn(*OPERATORS_AND_DTYPES))
def test_every_operator_and_dtype(name, op, dtype, kind):
    shape, axis = way(kind, dtype)
    check(name, numbers(shape, dtype, op), op, axis=axis, dtype=dtype)


ALL_FLAGS = list(itertools.product((False, True), repeat=4))
SOME_FLAGS = [(True, False, False, False), (False, True, True, False), (True, True, True, True)]
FLAGS = [
    (kind, *on)
    for kind in WAYS
    for on in (ALL_FLAGS if kind in ("cluster aligned", "tiles-shared bulk") else SOME_FLAGS)
]


def flags_of(shape, reverse, exclusive, masked, initial):
    mask = {"mask": numbers(shape, "bool")} if masked else {}
    return {"reverse": reverse, "exclusive": exclusive, "initial": 2.3 if initial else None, **mask}


@pytest.mark.parametrize("name, kind, reverse, exclusive, masked, initial", in_turn(*FLAGS))
def test_flags(name, kind, reverse, exclusive, masked, initial):
    shape, axis = way(kind)
    check(name, numbers(shape), axis=axis, **flags_of(shape, reverse, exclusive, masked, initial))


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """The kernels of the two long tables, compiled side by side."""

    def operators(op, dtype, kind):
        shape, axis = way(kind, dtype)
        return configs_of(request_of(cuscan.scan, np.empty(shape, numpy_dtype(dtype)), op, axis=axis, dtype=dtype))

    def flags(kind, *on):
        shape, axis = way(kind)
        return configs_of(request_of(cuscan.scan, np.empty(shape, np.float32), axis=axis, **flags_of(shape, *on)))

    tables = {"test_every_operator_and_dtype": (operators, OPERATORS_AND_DTYPES), "test_flags": (flags, FLAGS)}
    compile_ahead(request, tables)


CONVERSIONS = [
    ("bool", None, "tiles-shared"),
    ("int16", "float32", "cluster"),
    ("float64", "bfloat16", "cluster one"),
    ("uint8", None, "rows"),
    ("int16", None, "panels-shared"),
    ("bool", "float32", "rows"),
    ("int32", "bool", "panels one"),
    ("int64", "int8", "tiles-shared bulk"),
    ("uint8", "float16", "tiles-shared"),
    ("float16", "float64", "panels wide"),
    ("float32", "bfloat16", "tiles-shared bulk"),
    ("float64", "float16", "rows"),
    ("int16", "complex128", "tiles-shared rows"),
    ("complex64", "complex128", "panels-kept"),
]


@pytest.mark.parametrize("name, dtype, result, kind", in_turn(*CONVERSIONS))
def test_conversions(name, dtype, result, kind):
    shape, axis = way(kind, dtype, result or "int64")
    check(name, numbers(shape, dtype), axis=axis, dtype=result, reverse=True)


@pytest.mark.parametrize("name, dtype", in_turn(("bool",), ("int8",), ("int16",), ("uint32",)))
def test_sums_of_narrow_columns_of_any_number(name, dtype):
    """Strips of wider results may begin where no vector of the values does."""
    for columns in (24, 40, 56, 104, 136, 264):
        check(name, numbers((2**17, columns) if columns < 100 else (2**13, columns), dtype), axis=0)


# ---- sizes -----------------------------------------------------------------------------------------------


def lengths(dtype: str) -> list[int]:
    """Lengths around the borders of items, vectors, warp tiles, units and groups."""
    order = CONTIGUOUS[numpy_dtype(dtype).itemsize]
    borders = [order.items, order.vector, order.warp_tile, order.unit]
    near = [n + d for n in borders for d in (-1, 0, 1)]
    return sorted({*near, 1, 2 * order.unit, 32 * order.unit, 33 * order.unit + 5} - {0})


@pytest.mark.parametrize("name, n", in_turn(*[(n,) for n in lengths("float32")]))
def test_lengths_of_a_contiguous_axis(name, n):
    check(name, numbers((n,)))
    check(name, numbers((3, n)), axis=1, reverse=True)


@pytest.mark.parametrize(
    "name, dtype, n", in_turn(*[(d, n) for d in ("uint8", "float16", "float64", "complex128") for n in lengths(d)[-4:]])
)
def test_lengths_in_other_orders(name, dtype, n):
    check(name, numbers((n,), dtype), dtype=dtype)


@pytest.mark.parametrize("name, n", in_turn(*[(n,) for n in (1, 7, 8, 9, 255, 256, 257, 2 * 256, 33 * 256 + 5)]))
@pytest.mark.parametrize("width", [3, 32])
def test_lengths_of_another_axis(name, n, width):
    check(name, numbers((n, width)), axis=0)
    check(name, numbers((2, n, width)), axis=1, reverse=True)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("call", [{}, {"reverse": True, "exclusive": True, "initial": 0.7}], ids=["plain", "flags"])
def test_chains_of_sections(name, call):
    n = 1030 * CONTIGUOUS[8].unit + 7
    assert config_of(np.empty(n)).levels == 3
    check(name, numbers((n,), "float64"), **call)
    check(name, numbers((1030 * COLUMNS.unit + 3, 2)), axis=0, **call)


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.parametrize("call", [{}, {"reverse": True, "exclusive": True, "initial": 0.7}], ids=["plain", "flags"])
@pytest.mark.parametrize(("units", "columns", "warps"), [(4400, 5, 2), (2200, 14, 1)])
def test_walks_of_strips_take_turns(name, units, columns, warps, call):
    value = numbers((units * COLUMNS.unit + 8, columns), "float16")
    constants = dict(config_of(value, axis=0, **call).constants)
    assert (constants["Walks"], constants["LookBackWarps"]) == (4, warps)
    for _ in range(3):
        check(name, value, axis=0, **call)


@both_libraries
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), (2, 0, 5)])
def test_empty_arrays(name, shape):
    x = need(name).device(np.empty(shape, np.int8))
    for axis in range(len(shape)):
        got = cuscan.scan(x, axis=axis, exclusive=True, initial=3)
        assert need(name).owns(got) and tuple(got.shape) == shape and values(got).dtype == np.int64


# ---- layouts ---------------------------------------------------------------------------------------------


class Layout(NamedTuple):
    """The layout of an array in memory: the shape of the memory, and the view of it."""

    base: Callable[[tuple[int, ...]], tuple[int, ...]]
    view: Callable[[Any, tuple[int, ...]], Any]
    torch: bool = True  # torch has such tensors


LAYOUTS = {
    "misaligned": Layout(lambda s: (int(np.prod(s)) + 1,), lambda b, s: b[1:].reshape(s)),
    "from-1": Layout(lambda s: (*s[:-1], s[-1] + 1), lambda b, s: b[..., 1:]),
    "padded": Layout(lambda s: (*s[:-1], s[-1] + 3), lambda b, s: b[..., : s[-1]]),
    "every-third": Layout(lambda s: (*s[:-1], 3 * s[-1]), lambda b, s: b[..., ::3]),
    "transposed": Layout(lambda s: s[::-1], lambda b, s: permuted(b, range(len(s))[::-1])),
    "mirrored": Layout(lambda s: s, lambda b, s: b[..., ::-1], torch=False),
    "all-mirrored": Layout(lambda s: s, lambda b, s: b[(slice(None, None, -1),) * len(s)], torch=False),
    "mirrored-from-1": Layout(lambda s: (*s[:-1], s[-1] + 1), lambda b, s: b[..., :0:-1], torch=False),
}
BROADCASTS = {
    "one-row": Layout(lambda s: (1,) * (len(s) - 1) + s[-1:], broadcast),
    "one-column": Layout(lambda s: (*s[:-1], 1), broadcast),
}


def layouts_and_ways(layouts: dict[str, Layout], chosen: list[str]) -> list[Any]:
    libraries = itertools.cycle(LIBRARIES)
    return [
        pytest.param(next(libraries) if at.torch else "cupy", at, kind, i % 2 == 1, id=f"{layout}-{kind}")
        for layout, at in layouts.items()
        for i, kind in enumerate(chosen, len(layout))
    ]


@pytest.mark.parametrize("name, layout, kind, flags", layouts_and_ways({**LAYOUTS, **BROADCASTS}, SOME_WAYS))
def test_layouts_of_the_input(name, layout, kind, flags):
    shape, axis = way(kind)

    def view(base):
        return layout.view(base, shape)

    base = layout.base(shape)
    masked = {"mask": numbers(base, "bool"), "mask_view": view, "reverse": True} if flags else {}
    check(name, numbers(base), view=view, axis=axis, **masked)


@pytest.mark.parametrize(
    "name, layout, kind, flags", layouts_and_ways(LAYOUTS, ["cluster aligned", "tiles-shared bulk", "panels wide"])
)
def test_layouts_of_out(name, layout, kind, flags):
    shape, axis = way(kind)
    out = numbers(layout.base(shape), seed=1)
    check(name, numbers(shape), axis=axis, reverse=flags, out=out, out_view=lambda base: layout.view(base, shape))


@pytest.mark.parametrize("name, layout, kind, flags", layouts_and_ways(LAYOUTS, SOME_WAYS[:4]))
def test_in_place(name, layout, kind, flags):
    shape, axis = way(kind)
    base = numbers(layout.base(shape))
    check(name, base, view=lambda b: layout.view(b, shape), axis=axis, in_place=True, exclusive=True, reverse=flags)


@both_libraries
@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("memory", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)], ids=str)
def test_every_axis(name, memory, axis):
    shape = (3, 40, 5, 33)
    base = numbers(tuple(shape[a] for a in memory))
    check(name, base, view=lambda b: permuted(b, np.argsort(memory)), axis=axis - 4)


@both_libraries
@pytest.mark.parametrize("kept", [(1, 1, 33), (40, 1), (1,), (3, 40, 33)], ids=str)
def test_masks_broadcast(name, kept):
    check(name, numbers((3, 40, 33)), mask=numbers(kept, "bool"), axis=1)
    check(name, numbers((3, 40, 33)), mask=numbers(kept, "bool"), axis=2, exclusive=True)


# ---- random calls ----------------------------------------------------------------------------------------


def draw_layout(draw: Any, shape: tuple[int, ...], steps: list[int]) -> tuple[tuple[int, ...], Callable[[Any], Any]]:
    """A shape of memory and the view of it: permuted axes, steps, a misaligned start."""
    axes = draw(st.permutations(range(len(shape))))
    strides = [draw(st.sampled_from(steps)) for _ in shape]
    start = draw(st.sampled_from([0, 0, 1]))
    base = [shape[a] * abs(s) for a, s in zip(axes, strides, strict=True)]
    base[-1] += start

    def view(memory):
        return permuted(memory[..., start:][tuple(slice(None, None, s) for s in strides)], np.argsort(axes))

    return tuple(base), view


def must_say(value: str, result: str) -> bool:
    """Whether a call needs dtype= beside such an `out`, because the conversion loses information."""
    return (value not in EXACT and result in EXACT) or value != result == "bool"


# No shrinking: it would compile every smaller case.
@settings(
    max_examples=100,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(case=cases(), data=st.data())
def test_any_call_matches_the_twin_and_a_sequential_scan(case, data):
    value, op, result, shape, seed = case
    draw, rng = data.draw, np.random.default_rng(seed)
    name = draw(st.sampled_from(available()))
    steps = [1, 1, 1, 2] if name == "torch" else [1, 1, 1, -1, 2, -3]
    memory, view = draw_layout(draw, shape, steps)
    base = numbers_for(rng, op, value, result, memory)
    extra: dict[str, Any] = {}
    mask = None
    if draw(st.booleans()):
        kept = tuple(n if draw(st.booleans()) else 1 for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
        if len(kept) == 1 < len(shape):
            kept = (1, *kept)  # a mask of one dimension may also fit the scanned axis
        mask_memory, extra["mask_view"] = draw_layout(draw, kept, steps)
        extra["mask"] = rng.random(mask_memory) < 0.6
        mask = extra["mask_view"](extra["mask"])
    where = draw(st.sampled_from(["new", "given", "in place"]))
    if where == "in place" and value == result:
        extra["in_place"] = True
    elif where == "given":
        out_memory, extra["out_view"] = draw_layout(draw, shape, steps)
        extra["out"] = numbers(out_memory, result)
        if must_say(value, result):
            extra["dtype"] = result
    else:
        extra["dtype"] = result
    call = {
        "axis": draw(st.integers(0, len(shape) - 1)),
        "reverse": draw(st.booleans()),
        "exclusive": draw(st.booleans()),
        "initial": initial_for(rng, op, result) if draw(st.booleans()) else None,
    }
    if draw(st.booleans()):
        with small_units():
            got = check(name, base, op, view=view, **extra, **call)
    else:
        got = check(name, base, op, view=view, **extra, **call)
    assert_close(got, view(base), op, result, mask=mask, **call)


# ---- NumPy's own arithmetic -------------------------------------------------------------------------------

UFUNCS = {
    "add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.mark.parametrize("name, op, kind", in_turn(*zip(UFUNCS, itertools.cycle(SOME_WAYS))))
def test_integers_are_those_of_numpy(name, op, kind):
    shape, axis = way(kind, "int64")
    x = numbers(shape, "int64")
    assert (check(name, x, op, axis=axis) == UFUNCS[op].accumulate(x, axis)).all()


@pytest.mark.parametrize("name, kind", in_turn(*[(kind,) for kind in WAYS]))
def test_sums_are_those_of_float64(name, kind):
    shape, axis = way(kind)
    x = numbers(shape)
    exact, magnitude = np.cumsum(x.astype("f8"), axis), np.cumsum(np.abs(x.astype("f8")), axis)
    assert (np.abs(check(name, x, axis=axis) - exact) <= 16 * np.finfo("f4").eps * magnitude).all()


@both_libraries
@pytest.mark.parametrize("shape, axis", [((100_000,), 0), ((3000, 5), 0), ((50, 70), 1)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_denormals_are_kept(name, shape, axis, dtype):
    x = np.full(shape, np.finfo(dtype).smallest_subnormal, dtype)
    assert_same(check(name, x, axis=axis), np.cumsum(x, axis))


@both_libraries
def test_denormal_halves_and_products(name):
    for dtype in ("float16", "bfloat16"):
        tiny = float(ml_dtypes.finfo(numpy_dtype(dtype)).smallest_subnormal)
        got = check(name, np.full(100, tiny, numpy_dtype(dtype)))
        assert (got.astype("f8") == np.arange(1, 101) * tiny).all()
    x = np.array([2.0**-120] + [0.5] * 40, np.float32)
    got = check(name, x, "mul")
    assert_same(got, np.cumprod(x))
    assert got[29] == np.finfo("f4").smallest_subnormal and got[30] == 0


@both_libraries
@pytest.mark.parametrize("kind", SOME_WAYS)
@pytest.mark.parametrize("op, neutral", [("add", 0), ("max", -np.inf)])
def test_masked_elements_count_as_the_identity_whatever_they_hold(name, op, neutral, kind):
    shape, axis = way(kind)
    rng = np.random.default_rng(3)
    x, mask = numbers(shape), rng.random(shape) < 0.5
    dirty = np.where(mask, x, rng.choice([np.nan, np.inf, -np.inf, 1e38], shape)).astype("f4")
    clean = np.where(mask, x, np.float32(neutral))
    got = check(name, dirty, op, mask=mask, axis=axis)
    assert_same(got, check(name, clean, op, axis=axis))


@both_libraries
@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_and_infinity_spread_as_in_numpy(name, dtype):
    x = np.ones(20_000, numpy_dtype(dtype))
    x[[9000, 12_000, 17_000]] = np.inf, -np.inf, np.nan
    got = check(name, x).astype("f8")
    assert np.isfinite(got[:9000]).all() and (got[9000:12_000] == np.inf).all() and np.isnan(got[12_000:]).all()
    for op in ("min", "max"):
        got = check(name, x, op).astype("f8")
        np.testing.assert_array_equal(got, UFUNCS[op].accumulate(x.astype("f8")))


@pytest.mark.parametrize("name, kind, still", in_turn(*itertools.product(SOME_WAYS, (False, True))))
def test_the_result_behind_the_last_element_does_not_restart(name, kind, still):
    shape, axis = way(kind)
    lengths = [1 if still and a == axis else n for a, n in enumerate(shape)]
    reset = Seen(np.random.default_rng(5).random(lengths) < 0.5, lambda memory: broadcast(memory, shape))
    call = {"axis": axis, "exclusive": True, "include_initial": True, "initial": 3, "reset": reset}
    check_call(name, Call(cuscan.scan, (numbers(shape),), call))


@pytest.mark.parametrize("name, kind, dtype", in_turn(*itertools.product(SOME_WAYS, FLOATS)))
def test_negative_zero_is_less_than_zero(name, kind, dtype):
    shape, axis = way(kind, dtype)
    for op, other in (("max", -1), ("min", 1)):
        x = np.random.default_rng(4).choice([0.0, -0.0, *[other] * 30], shape).astype(numpy_dtype(dtype))
        signs = np.signbit(check(name, x, op, axis=axis).astype("f8"))
        expected = np.minimum if op == "max" else np.maximum  # +0 or -0 lasts
        zero = np.maximum.accumulate(x == 0, axis)
        assert (signs == expected.accumulate(np.signbit(x.astype("f8")), axis))[zero].all()


# ---- results ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [*EXACT, *FLOATS, *COMPLEX])
def test_default_dtypes_are_those_of_the_library(dtype):
    x = need("cupy").device(numbers((5,), dtype))
    if dtype != "bfloat16":
        twin = np.ones(5, dtype)
        assert cuscan.cumsum(x).dtype == np.cumsum(twin).dtype
        assert cuscan.cumprod(x).dtype == np.cumprod(twin).dtype
    if dtype not in COMPLEX:
        assert cuscan.cummin(x).dtype == cuscan.cummax(x).dtype == x.dtype


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"])
def test_default_dtypes_are_those_of_torch(dtype):
    x = need("torch").device(numbers((5,), dtype))
    assert cuscan.cumsum(x).dtype == x.cumsum(0).dtype
    assert cuscan.cumprod(x).dtype == x.cumprod(0).dtype
    if dtype not in COMPLEX:
        assert cuscan.cummin(x).dtype == cuscan.cummax(x).dtype == x.dtype


@both_libraries
def test_the_dtype_is_given_in_the_words_of_the_library(name):
    x = need(name).device(numbers((9,), "int16"))
    for dtype in ("float32", np.float32, *([need(name).torch.float32] if name == "torch" else [cupy.float32])):
        assert values(cuscan.scan(x, dtype=dtype)).dtype == np.float32


# ---- errors -----------------------------------------------------------------------------------------------


def refused(kind: type[Exception], text: str, *args: Any, **call: Any) -> None:
    with pytest.raises(kind, match=text):
        cuscan.scan(*args, **call)


@both_libraries
def test_arguments_that_do_not_fit(name):
    library = need(name)
    x, mask = library.device(numbers((4, 50))), library.device(numbers((4, 50), "bool"))
    foreign, elsewhere = np.zeros((4, 50), np.float32), library.host(numbers((4, 50)))
    refused(ScanTypeError, "mask is of numpy and x of", x, mask=foreign != 0)
    refused(ScanTypeError, "out is of numpy and x of", x, out=foreign)
    if name == "torch":
        refused(ScanValueError, "mask is on cpu and x on cuda:0", x, mask=elsewhere != 0)
        refused(ScanValueError, "out is on cpu and x on cuda:0", x, out=elsewhere)
        refused(ScanTypeError, "out is of cupy and x of torch", x, out=need("cupy").device(numbers((4, 50))))
    refused(ScanTypeError, "mask must have dtype bool", x, mask=x)
    refused(ScanValueError, "mask of shape", x, mask=mask[:, :7])
    refused(ScanValueError, "out has shape", x, out=x[:3])
    refused(ScanTypeError, "out has dtype bool", x, out=mask, dtype="float32")
    refused(ScanValueError, "axis 2 is out of range", x, axis=2)
    refused(ScanTypeError, "'and' is defined on", x, "and")
    refused(ScanValueError, "initial=1000 does not fit", library.device(numbers((4,), "int8")), "max", initial=1000)
    memory = library.device(numbers((4, 51)))
    refused(ScanValueError, "out overlaps x in part", memory[:, :50], out=memory[:, 1:])
    check(name, numbers((4, 50)))  # the next call works


# ---- state between calls ------------------------------------------------------------------------------------


@both_libraries
@pytest.mark.parametrize("kind", ["rows", "cluster", "tiles-shared", "panels-shared"])
def test_a_second_call_is_a_lookup(name, kind, monkeypatch):
    def forbidden(*args, **kwargs):
        raise AssertionError("a second call compiles nothing")

    shape, axis = way(kind)
    library = need(name)
    first = cuscan.scan(library.device(numbers(shape)), axis=axis, reverse=True, initial=2)
    for module, step in ((cuda, "make_request"), (cuda, "make_plan"), (kernel, "Kernel")):
        monkeypatch.setattr(module, step, forbidden)
    second = cuscan.scan(library.device(numbers(shape, seed=1)), axis=axis, reverse=True, initial=3)
    expected = cuscan.scan(library.host(numbers(shape, seed=1)), axis=axis, reverse=True, initial=3)
    assert_same(second, expected)
    assert not same_bits(first, second).all()


@both_libraries
def test_one_workspace_serves_all_chains_in_turn(name):
    """Chains with different lengths, state sizes and tables, in one stream without a pause."""
    library = need(name)
    chains = [
        ((300_000,), 0, "float32"),
        ((40_000,), 0, "complex128"),
        ((9000, 7), 0, "uint8"),
        ((2, 140_000), 1, "int16"),
        ((1_500_000,), 0, "float64"),
        ((1300, 40), 0, "float16"),
    ]
    work = []
    for seed in range(3):
        for shape, axis, dtype in chains:
            x = numbers(shape, dtype, seed=seed)
            work.append((library.device(x), axis, cuscan.scan(library.host(x), axis=axis)))
    queued = [(cuscan.scan(x, axis=axis), expected) for x, axis, expected in work * 5]
    for got, expected in queued:
        assert_same(got, expected)


def test_the_tags_of_launches_wrap_around():
    """A workspace counts its launches in 32 bits, in the second word of its header."""
    x = numbers((300_000,))
    check("cupy", x)
    view = adopt(need("cupy").device(x))
    of_default_stream = view.library, view.device, 0, None, "states"
    states = workspace._workspaces[of_default_stream]
    memory = cupy.cuda.UnownedMemory(states.pointer, states.nbytes, states)
    header = cupy.ndarray(2, np.uint32, cupy.cuda.MemoryPointer(memory, 0))
    header[1] = np.uint32(2**32 - 4)
    for turn in range(8):
        check("cupy", numbers((300_000 - turn,), seed=turn))
    assert workspace._workspaces[of_default_stream] is states
    assert 0 < int(header[1]) < 8


@both_libraries
def test_too_large_a_result_is_the_librarys_own_error(name):
    library = need(name)
    x = broadcast(library.device(np.ones(1, np.float32)), (1 << 40,))
    error = cupy.cuda.memory.OutOfMemoryError if name == "cupy" else library.torch.cuda.OutOfMemoryError
    with pytest.raises(error):
        cuscan.scan(x)
    check(name, numbers((300_000,)))


@both_libraries
@pytest.mark.parametrize("step", ["results", "scratch"])
def test_a_failed_allocation_leaves_the_next_call_right(name, step, monkeypatch):
    def full(*args, **kwargs):
        raise MemoryError

    failing = {"scratch": full} if step == "scratch" else {"maker": lambda *args: full}
    x = need(name).device(numbers((300_000,)))
    with monkeypatch.context() as patch:
        patch.setattr(workspace, "_workspaces", {})
        patch.setattr(repeats, "launches", Table())
        patch.setattr(repeats, "latest", Table())
        if step == "scratch":
            patch.setattr(workspace.cupy.cuda.runtime, "mallocAsync", full)
        for method, broken in failing.items():
            patch.setattr(type(adopt(x).library), method, broken)
        with pytest.raises(MemoryError):
            cuscan.scan(x)
    for _ in range(3):
        check(name, numbers((300_000,)))


def test_a_failed_compilation_leaves_the_next_call_right(monkeypatch):
    def broken(*args):
        raise cuscan.CompileError("no compiler")

    x = numbers((1234, 3), "int32")
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "load_kernel", broken)
        patch.setattr(kernel, "_kernels", Table())
        with pytest.raises(cuscan.CompileError):
            cuscan.scan(need("cupy").device(x), axis=0)
    check("cupy", x, axis=0)


# ---- the tests themselves --------------------------------------------------------------------------------


def test_the_comparison_sees_one_bit():
    x = numbers((1000,))
    y = x.copy()
    y[77] = np.nextafter(y[77], np.float32(np.inf))
    device = need("cupy").device
    assert_same(device(x), x)
    with pytest.raises(AssertionError, match="1 of 1000 differ, the first is number 77"):
        assert_same(device(y), x)
    with pytest.raises(AssertionError, match="float64"):
        assert_same(device(x).astype("f8"), x)
