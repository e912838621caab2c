"""The array API standard: cumulative_sum and cumulative_prod clause by clause, and arrays of any library with it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cuscan
from cuscan import ScanValueError

SIGNED, UNSIGNED = ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
INEXACT = ["float32", "float64", "complex64", "complex128"]
NUMERIC = SIGNED + UNSIGNED + INEXACT
FUNCTIONS = {"cumulative_sum": (np.cumsum, 0), "cumulative_prod": (np.cumprod, 1)}
SHAPES = st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)


class NumPy:
    """NumPy with int64 as its default integer."""

    array = staticmethod(np.asarray)

    def __init__(self) -> None:
        self.kind = np.ndarray

    def numpy(self, array):
        return array

    def dtype(self, name):
        return np.dtype(name)

    def device(self, array):
        return "cpu"


class CuPy(NumPy):
    """CuPy, with NumPy's dtypes."""

    def __init__(self) -> None:
        self.cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
        self.kind = self.cupy.ndarray

    def array(self, array):
        return self.cupy.asarray(array)

    def numpy(self, array):
        return array.get()

    def device(self, array):
        return array.device


class Torch:
    """torch, on the CPU."""

    where = "cpu"

    def __init__(self) -> None:
        self.torch = pytest.importorskip("torch", reason="torch is not installed")
        self.kind = self.torch.Tensor

    def array(self, array):
        return self.torch.from_numpy(np.array(array)).to(self.where)

    def numpy(self, array):
        return array.cpu().numpy()

    def dtype(self, name):
        return getattr(self.torch, name)

    def device(self, array):
        return array.device


class TorchOnGPU(Torch):
    """torch, on a GPU."""

    where = "cuda"

    def __init__(self) -> None:
        super().__init__()
        if not self.torch.cuda.is_available():
            pytest.skip("torch sees no GPU")


class Strict:
    """The standard, and nothing else."""

    def __init__(self) -> None:
        self.xp = pytest.importorskip("array_api_strict", reason="array-api-strict is not installed")
        self.kind = type(self.xp.asarray(1))

    def array(self, array):
        return self.xp.asarray(np.array(array))

    def numpy(self, array):
        return np.from_dlpack(array)

    def dtype(self, name):
        return getattr(self.xp, name)

    def device(self, array):
        return array.device


ON_CPU = [pytest.param(library, id=library.__name__) for library in (NumPy, Torch, Strict)]
ON_GPU = [pytest.param(library, id=library.__name__, marks=pytest.mark.gpu) for library in (CuPy, TorchOnGPU)]


@pytest.fixture(params=ON_CPU, scope="module")
def library_on_cpu(request):
    """A library with arrays on the CPU."""
    return request.param()


@pytest.fixture(params=ON_GPU, scope="module")
def library_on_gpu(request):
    """A library with arrays on a GPU."""
    return request.param()


@pytest.fixture(params=ON_CPU + ON_GPU, scope="module")
def library(request):
    """A library of arrays, on the CPU or on a GPU."""
    return request.param()


def drawn(data, dtype):
    """An array of numbers whose sums and products are exact in every association."""
    shape = data.draw(SHAPES)
    top = 2 if math.prod(shape[-1:]) > 2 else 3
    low = 0 if dtype in UNSIGNED else -top
    numbers = data.draw(st.lists(st.integers(low, top), min_size=math.prod(shape), max_size=math.prod(shape)))
    x = np.array(numbers, dtype).reshape(shape)
    return x * np.array(1j, dtype) if dtype in ("complex64", "complex128") else x


def resolved(dtype):
    """The default dtype of a result: at least the default integer, which is int64, or uint64 for unsigned ones."""
    return "int64" if dtype in SIGNED else "uint64" if dtype in UNSIGNED else dtype


def expected_of(name, x, axis, dtype, include_initial):
    """The result by the standard: x is cast first, then accumulated; the identity comes before all."""
    accumulate, identity = FUNCTIONS[name]
    with np.errstate(all="ignore"):
        result = accumulate(x.astype(dtype), axis=axis, dtype=dtype)
    first = np.full([1 if i == axis % x.ndim else n for i, n in enumerate(x.shape)], identity, dtype)
    return np.concatenate([first, result], axis) if include_initial else result


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_every_clause(library_on_cpu, name, data):
    check_every_clause(library_on_cpu, name, data)


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=20, deadline=None)  # each example compiles a kernel
@given(data=st.data())
def test_every_clause_on_a_gpu(library_on_gpu, name, data):
    check_every_clause(library_on_gpu, name, data)


def check_every_clause(library, name, data):
    """x has one dimension or more, and a numeric dtype. A negative axis counts from the end; with one dimension it may
    be left out. x is cast to dtype, given or resolved, before anything is combined. include_initial adds one element
    along the axis, and the identity comes first. The result is a new array of this dtype and shape on the device of x;
    x does not change.
    """
    dtype = data.draw(st.sampled_from(NUMERIC))
    x = drawn(data, dtype)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    wider = [other for other in NUMERIC if NUMERIC.index(other) >= 8 or dtype not in INEXACT]
    result_dtype = data.draw(st.sampled_from([None, *(o for o in wider if "complex" in o or "complex" not in dtype)]))
    include_initial = data.draw(st.booleans())
    given_array = library.array(x)
    keywords = {"include_initial": include_initial} if include_initial or data.draw(st.booleans()) else {}
    if x.ndim > 1 or data.draw(st.booleans()):
        keywords["axis"] = axis
    if result_dtype is not None:
        keywords["dtype"] = library.dtype(result_dtype)

    got = getattr(cuscan, name)(given_array, **keywords)

    expected = expected_of(name, x, axis, result_dtype or resolved(dtype), include_initial)
    assert isinstance(got, library.kind) and got is not given_array
    assert got.dtype == library.dtype(result_dtype or resolved(dtype))
    assert tuple(got.shape) == expected.shape
    assert library.device(got) == library.device(given_array)
    np.testing.assert_array_equal(library.numpy(got), expected)
    np.testing.assert_array_equal(library.numpy(given_array), x)


@pytest.mark.parametrize(
    "name, x, dtype, expected",
    [
        ("cumulative_sum", np.array([1 + 2.0**-30, -1]), "float32", [1, 0]),
        ("cumulative_sum", np.array([2**24 + 1, -(2**24)], "int32"), "float32", [2**24, 0]),
        ("cumulative_sum", np.array([1.75, 1.75]), "int16", [1, 2]),
        ("cumulative_prod", np.array([1 + 2.0**-24, 1 + 2.0**-23]), "float32", [1, 1 + 2.0**-23]),
        ("cumulative_prod", np.array([1.75, 1.75], "float32"), "int64", [1, 1]),
        ("cumulative_prod", np.array([1 + 2.0**-24, 1 + 2.0**-23]), "complex64", [1, 1 + 2.0**-23]),
    ],
)
def test_elements_are_cast_before_they_are_combined(library, name, x, dtype, expected):
    got = getattr(cuscan, name)(library.array(x), dtype=library.dtype(dtype))
    assert library.numpy(got).tolist() == expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_the_standard_asks_to_refuse(library, name):
    function = getattr(cuscan, name)
    square = library.array(np.ones((2, 2)))
    with pytest.raises(ScanValueError, match="axis must be given for x of 2 dimensions"):
        function(square)
    for keywords in ({}, {"axis": 0}, {"axis": -1}):
        with pytest.raises(ScanValueError, match=r"^x has no dimensions; .* pass x\.reshape\(1\)"):
            function(library.array(np.array(3.0)), **keywords)
    for axis in (2, -3):
        with pytest.raises(ScanValueError, match="out of range"):
            function(square, axis=axis)
    with pytest.raises(TypeError):
        function(x=square, axis=0)  # only by position
    with pytest.raises(TypeError):
        function(square, 0)  # only by keyword


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", INEXACT)
def test_infinities_and_nan_behave_as_plus_and_times_do(library, name, dtype):
    special = [1, math.inf, 2, -math.inf, 1, math.nan, 3]
    x = np.array(special, dtype)
    got = library.numpy(getattr(cuscan, name)(library.array(x)))
    combine = np.add if name == "cumulative_sum" else np.multiply
    running = x[:1].copy()
    with np.errstate(all="ignore"):
        for i, value in enumerate(x):
            running = running if i == 0 else combine(running, value)
            np.testing.assert_array_equal(np.isnan(got[i]), np.isnan(running[0]))
            if not np.isnan(running[0]) and "complex" not in dtype:
                assert got[i] == running[0]


# ---- arrays come back in their own library --------------------------------------------------------------


def test_arrays_of_any_library_come_back_as_what_they_were():
    strict = Strict()
    x, mask = strict.array([[3.0, 1.0], [4.0, 1.0]]), strict.array([[True, False], [True, True]])
    out = strict.array(np.empty((2, 2)))
    for got in (
        cuscan.cumsum(x),
        cuscan.cumsum(x, 0, mask=mask, reset=mask),
        cuscan.scan(x, "max", dtype="float32"),
        cuscan.linear_recurrence(0.5, x),
        cuscan.linear_recurrence(x, x, initial=strict.array([1.0, 2.0])),
        cuscan.logcumsumexp(x, keys=x),
        *cuscan.cummax(x, return_indices=True),
        *cuscan.linear_recurrence(0.5, x, return_last=True),
        cuscan.cumsum(x, None),
    ):
        assert isinstance(got, strict.kind)
    assert np.from_dlpack(cuscan.cumsum(x)).tolist() == [[3, 4], [4, 5]]
    assert np.from_dlpack(cuscan.cumsum(x, None)).tolist() == [3, 4, 8, 9]
    assert cuscan.cumsum(x, out=out) is out and np.from_dlpack(out).tolist() == [[3, 4], [4, 5]]


@pytest.mark.filterwarnings("error")
def test_dtypes_of_two_libraries_are_not_compared():
    """array-api-strict warns if a dtype of its own is compared with NumPy's, as keys of a table may be."""
    strict, x = Strict(), np.ones((3, 5, 7))
    for dtype in ("float32", "complex128"):
        for library in (NumPy(), strict, NumPy()):
            got = cuscan.cumulative_sum(library.array(x), axis=1, dtype=library.dtype(dtype))
            assert got.dtype == library.dtype(dtype)


def test_the_library_of_x_decides_among_several():
    strict = Strict()
    mask = np.array([True, False])
    assert isinstance(cuscan.cumsum(strict.array([1.0, 2.0]), mask=mask), strict.kind)
    assert isinstance(cuscan.cumsum(np.ones(2), mask=strict.array(mask)), np.ndarray)
    assert isinstance(cuscan.linear_recurrence(np.ones(2), strict.array([1.0, 2.0])), strict.kind)
    assert isinstance(cuscan.linear_recurrence(strict.array([1.0, 2.0]), np.ones(2)), np.ndarray)


def test_carries_are_arrays_of_the_library_too() -> None:
    strict = Strict()
    x = strict.array([[3.0, 1.0], [4.0, 1.0]])
    _, indices, carry = cuscan.cummax(x, return_indices=True, return_carry=True)
    assert all(isinstance(array, strict.kind) for array in (indices, *carry))
    assert isinstance(cuscan.total(x), strict.kind)
    again = cuscan.cumsum(x, carry=cuscan.total(x))
    assert isinstance(again, strict.kind) and np.from_dlpack(again).tolist() == [[7, 8], [9, 10]]


def test_operators_over_fields_give_back_tuples_of_them():
    strict = Strict()
    op = cuscan.Operator(
        "pairs",
        "State{earlier.a + later.a, earlier.b + later.b}",
        (0, 0),
        state={"a": "int32", "b": "float32"},
        numpy=lambda earlier, later: (earlier["a"] + later["a"], earlier["b"] + later["b"]),
    )
    x = strict.array(np.ones(3, "int32")), strict.array(np.ones(3, "float32"))
    got = cuscan.scan(x, op)
    assert isinstance(got, tuple) and all(isinstance(part, strict.kind) for part in got)
