"""Every wrong call raises an error that names the argument, what was passed and what is allowed."""

from __future__ import annotations

import builtins
import itertools
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from views import of_another_kind

import cuscan
from cuscan import MissingDependencyError, ScanError, ScanTypeError, ScanValueError, backends, interop
from cuscan.interop.dlpack import Overheard, is_readonly
from cuscan.interop.view import Device
from cuscan.request.checks import Elements, check_place
from cuscan.versions import OLDEST, check_version

ROOT = Path(__file__).resolve().parent.parent


def refused(kind, *texts, **call):
    """The call raises `kind`, a ScanError, and the message contains every text."""
    x = call.pop("x", np.arange(6.0))
    with pytest.raises(kind) as caught:
        cuscan.scan(x, **call)
    message = str(caught.value)
    for text in texts:
        assert re.search(text, message), f"{text!r} is not in {message!r}"


def test_the_errors_are_the_built_in_ones_too():
    assert issubclass(ScanValueError, ValueError) and issubclass(ScanTypeError, TypeError)
    assert issubclass(MissingDependencyError, ImportError) and issubclass(cuscan.CompileError, RuntimeError)
    for error in (ScanValueError, ScanTypeError, MissingDependencyError, cuscan.CompileError):
        assert issubclass(error, ScanError)


# ---- x -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [[1, 2, 3], 5, None, "abc", (1.0,), range(4)], ids=repr)
def test_x_is_no_array(x):
    refused(ScanTypeError, "^x must be", "CuPy", "NumPy", "torch", "__dlpack__", f"got {type(x).__name__}", x=x)


@pytest.mark.parametrize(
    "x, advice",
    [
        ([1, 2], r"; pass np\.asarray\(x\)"),
        ((1, 2), r"; np\.asarray\(x\) makes one array"),
        (range(4), r"; pass np\.asarray\(x\)"),
        (5.0, r"; pass np\.asarray\(x\)"),
        (iter([1, 2]), r"; pass np\.array\(list\(x\)\)"),
        (SimpleNamespace(to_numpy=None), r"; pass x\.to_numpy\(\)"),  # a Series or a frame
        (SimpleNamespace(toarray=None), r"; pass x\.toarray\(\)"),  # a sparse matrix
        (SimpleNamespace(to_numpy=None, __dask_graph__=None), r"; pass x\.to_numpy\(\)"),  # an array of xarray
        (SimpleNamespace(__dask_graph__=None), r"; call cuscan\.dask\.scan, or pass x\.compute\(\)"),
        ({"a": 1}, r"; got dict \(cuscan.scan\)$"),
        (np.array(["2020-01-01"], "datetime64[D]"), r"; pass x\.view\(np\.int64\)"),
        (np.array([1], "timedelta64[s]"), r"; pass x\.view\(np\.int64\), and view the result as the dtype of x"),
        (np.array([1], ">f4"), r"; pass x\.astype\(x\.dtype\.newbyteorder\('='\)\)"),
        (np.array([1, None]), r"; pass x\.astype\(\) of a dtype"),
        (np.zeros(3, "i4,i4"), r"; pass a field of x, or an Operator whose state has these fields"),
        (np.array(3.0), r": pass x\.reshape\(1\)"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_errors_say_what_to_do(x, advice):
    refused(ScanError, advice, x=x)


def test_what_the_advice_says_works():
    days = np.array(["2020-01-03", "2020-01-01"], "datetime64[D]")
    assert cuscan.cummax(days.view(np.int64)).view(days.dtype).tolist() == [days[0], days[0]]
    swapped = np.array([1, 2], ">f4")
    assert cuscan.cumsum(swapped.astype(swapped.dtype.newbyteorder("="))).tolist() == [1, 3]
    assert cuscan.cumsum(np.array(3.0).reshape(1)).tolist() == [3]


@pytest.mark.parametrize("name", [name for name in cuscan.__all__ if name[0] in "cln" or name == "scan"])
def test_errors_name_the_function_that_was_called(name):
    function = getattr(cuscan, name)
    arrays = [0.5, [1.0]] if name == "linear_recurrence" else [[1.0]]
    with pytest.raises(ScanTypeError, match=rf"; got list; pass np\.asarray.* \(cuscan\.{name}\)$"):
        function(*arrays)
    with pytest.raises(ScanValueError, match=rf" \(cuscan\.{name}\)$"):
        function(*([0.5] * (len(arrays) - 1)), np.ones(2), axis=3)
    assert str(ScanValueError("of its own")) == "of its own"


@pytest.mark.parametrize(
    "function, call",
    [
        ("total", lambda: cuscan.total([1.0])),
        ("scan_chunks", lambda: list(cuscan.scan_chunks([[1.0]]))),
        ("scan_chunks", lambda: list(cuscan.scan_chunks([np.ones(3)], axis=1))),
        ("explain", lambda: cuscan.explain(cuscan.cumsum, [1.0], arch=90)),
        ("warm", lambda: cuscan.warm("plus", "float32", arch=90)),
        ("Operator", lambda: cuscan.Operator("two words", "earlier", 0)),
        ("Operator", lambda: cuscan.Operator("f", "earlier", (0,), state={"a": "float128"})),
        ("Operator.compile", lambda: cuscan.Operator("f", "earlier", 0).compile(arch=5)),
        ("Operator.check", lambda: cuscan.Operator("f", "earlier", 0).check(np.ones(3))),
    ],
)
def test_errors_of_other_functions_name_them_too(function, call):
    with pytest.raises(ScanError, match=rf" \(cuscan\.{function}\)$"):
        call()


@pytest.mark.parametrize(
    "text, call",
    [
        (r"^b has no dimensions.* b\.reshape\(1\)", dict(b=np.array(1.0))),
        (r"^axis 1 is out of range for b of shape \(6,\)", dict(axis=1)),
        (r"^reset of shape \(5,\) does not broadcast to b of shape \(6,\)", dict(reset=np.ones(5, bool))),
        (r"^out has dtype int64 and b float64", dict(out=np.empty(6, int))),
        (r"^out has shape", dict(out=np.empty(5))),
    ],
)
def test_errors_of_recurrences_speak_of_b(text, call):
    with pytest.raises(ScanError, match=text) as caught:
        cuscan.linear_recurrence(0.5, **{"b": np.ones(6)} | call)
    assert not re.search(r"\bx\b", str(caught.value))


def test_libraries_of_a_recurrence_do_not_mix(torch):
    with pytest.raises(ScanTypeError, match=r"^reset is of numpy and b of torch; they must"):
        cuscan.linear_recurrence(0.5, torch.ones(3), reset=np.ones(3, bool))


def test_initial_may_be_an_array_without_dimensions(torch):
    for initial in (torch.tensor(2), torch.tensor(2.0, dtype=torch.bfloat16), Stranger(np.array(2.0))):
        for x in (torch.ones(2), torch.ones(2, dtype=torch.int32)):
            assert cuscan.cumsum(x, initial=initial).tolist() == [3, 4]
    refused(ScanValueError, "^initial=1.5 does not fit", x=torch.ones(2).int(), initial=torch.tensor(1.5))
    for x in (torch.ones(2), torch.ones(2, requires_grad=True)):
        refused(ScanTypeError, "^initial requires grad", x=x, initial=torch.tensor(1.0, requires_grad=True))
    assert cuscan.cumsum(torch.ones(2, requires_grad=True), initial=torch.tensor(2)).tolist() == [3, 4]


@pytest.mark.parametrize(
    "x, name",
    [
        (np.array([object()]), "object|'O'"),
        (np.array(["a"]), "<U1"),
        (np.array([b"a"]), "S1"),
        (np.array(["2020-01-01"], "datetime64[D]"), "M8"),
        (np.array([1], "timedelta64[s]"), "m8"),
        (np.array([1], np.longdouble), "float128|longdouble|g"),
        (np.array([1], np.clongdouble), "complex256|clongdouble|G"),
        (np.array([(1, 2)], "i4,i4"), "i4"),
        (np.array([1], ">f4"), ">f4"),
        (np.array([1], ">i8"), ">i8"),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_x_has_a_dtype_that_is_not_supported(x, name):
    refused(ScanTypeError, "^x has dtype", name, "supported: bool, int8, .*complex128", x=x)


def test_x_is_a_masked_array():
    x = np.ma.masked_array([1.0, 2.0], [True, False])
    refused(ScanTypeError, "^x is a masked array", r"x\.data", r"~x\.mask", x=x)


def test_x_has_strides_between_elements():
    x = np.zeros(4, [("a", "i1"), ("b", "f4")])["b"]
    refused(ScanValueError, "^x has strides", r"\(5,\)", "item size \\(4\\)", x=x)


# ---- op, axis, flags -----------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["plus", "ADD", "", None, 3, np.subtract, ["add"], np.add.reduce])
def test_op_is_unknown(op):
    names = "^op must be one of 'add', 'mul', 'min', 'max', 'and', 'or', 'xor'.*np.add.*cuscan.Operator"
    refused(ScanValueError, names, re.escape(repr(op)), op=op)


@pytest.mark.parametrize("op", ["min", "max"])
def test_complex_numbers_have_no_order(op):
    refused(ScanTypeError, f"op='{op}'", "floating point", "complex64", x=np.ones(3, "complex64"), op=op)


@pytest.mark.parametrize("op", ["and", "or", "xor"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex128"])
def test_bitwise_operators_want_integers(op, dtype):
    refused(ScanTypeError, f"op='{op}'", "bool, signed integer, unsigned integer", dtype, x=np.ones(3, dtype), op=op)
    refused(ScanTypeError, f"op='{op}'", dtype, x=np.ones(3, "int8"), op=op, dtype=dtype)


@pytest.mark.parametrize("axis", [2, -3, 100])
def test_axis_is_out_of_range(axis):
    refused(ScanValueError, f"^axis {axis} is out of range", r"\(2, 3\)", "2 dimensions", x=np.ones((2, 3)), axis=axis)
    with pytest.raises(ScanValueError, match=f"^axis {axis} is out of range"):
        cuscan.cumsum(np.ones((2, 3)), dim=axis)


@pytest.mark.parametrize("axis", [1.0, "0", None, (0,), [0]], ids=repr)
def test_axis_is_no_integer(axis):
    refused(ScanTypeError, "^axis must be an integer", re.escape(repr(axis)), axis=axis)
    if axis is None:
        refused(ScanTypeError, r"; to scan all elements as one line pass x\.reshape\(-1\) \(", axis=axis)
    else:
        refused(ScanTypeError, "^dim must be an integer", re.escape(repr(axis)), dim=axis)


@pytest.mark.parametrize("flag", ["reverse", "exclusive"])
@pytest.mark.parametrize("value", [1, 0, None, "yes", 1.0], ids=repr)
def test_flags_are_true_or_false(flag, value):
    refused(ScanTypeError, f"^{flag} must be True or False", re.escape(repr(value)), **{flag: value})
    assert cuscan.scan(np.ones(2), **{flag: np.bool_(True)}).shape == (2,)


def test_the_options_are_keywords():
    with pytest.raises(TypeError):
        cuscan.scan(np.ones(3), "add", 0)
    with pytest.raises(TypeError):
        cuscan.scan(np.ones(3), keepdims=True)


# ---- dtype ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float128", "object", "nonsense", object, "datetime64[s]", 7, "U5", ">f4"], ids=repr)
def test_dtype_is_not_supported(dtype):
    refused(ScanTypeError, "^dtype must be one of bool, int8", re.escape(repr(dtype)), dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
def test_complex_numbers_do_not_become_real(dtype):
    refused(ScanTypeError, "^x has dtype complex64", dtype, "imaginary", x=np.ones(3, "complex64"), dtype=dtype)
    refused(ScanTypeError, "complex64", dtype, x=np.ones(3, "complex64"), out=np.empty(3, dtype))


# ---- mask ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_mask_is_not_bool(dtype):
    refused(ScanTypeError, "^mask must have dtype bool", dtype, "; pass mask != 0", mask=np.ones(6, dtype))


@pytest.mark.parametrize("shape", [(5,), (2, 6), (1, 6), (7, 1), (0,)])
def test_mask_does_not_broadcast(shape):
    texts = "^mask of shape", re.escape(str(shape)), "does not broadcast", r"x of shape \(6,\)"
    refused(ScanValueError, *texts, mask=np.ones(shape, bool))


def test_mask_is_no_array():
    refused(ScanTypeError, "^mask must be", "got list", mask=[True] * 6)
    refused(ScanTypeError, "^mask has dtype", mask=np.array([object()] * 6))


# ---- out -----------------------------------------------------------------------------------------------


def test_out_has_another_shape():
    for shape in [(5,), (1, 6), (6, 1), ()]:
        refused(ScanValueError, "^out has shape", re.escape(str(shape)), r"\(6,\)", out=np.empty(shape))


def test_out_has_another_dtype():
    refused(ScanTypeError, "^out has dtype float32", "float64", out=np.empty(6, "float32"), dtype="float64")


def test_out_is_no_array():
    refused(ScanTypeError, "^out must be", "got list", out=[0.0] * 6)


def test_out_is_read_only():
    out = np.empty(6)
    out.flags.writeable = False
    refused(ScanValueError, "^out is read-only", out=out)


def test_out_overlaps_itself():
    out = np.lib.stride_tricks.as_strided(np.empty(20), (2, 6), (8, 8))
    refused(ScanValueError, "^out overlaps itself", r"\(2, 6\)", x=np.ones((2, 6)), out=out)
    refused(ScanValueError, "^out", x=np.ones((2, 6)), out=np.lib.stride_tricks.as_strided(np.empty(6), (2, 6), (0, 8)))


def test_out_overlaps_x_in_part():
    base = np.arange(20.0)
    for out in (base[1:11], base[:20:2], base[9::-1], base[9:19]):
        refused(ScanValueError, "^out overlaps x in part", "x itself", x=base[:10], out=out)
    bytewise = np.arange(12, dtype="u1")
    refused(ScanValueError, "^out overlaps x in part", x=bytewise[:3], out=bytewise.view("i4"))
    square = np.arange(9.0).reshape(3, 3)
    refused(ScanValueError, "^out overlaps x in part", x=square, out=square.T)


def test_out_between_the_elements_of_x_is_no_overlap():
    base = np.arange(20.0)
    out = cuscan.scan(base[::2], out=base[1::2])
    assert out.tolist() == np.cumsum(np.arange(0, 20.0, 2)).tolist()
    words = np.arange(4, dtype="f4")
    bits = cuscan.scan(words, "max", out=words.view("i4"), dtype="int32")  # x's memory, in another dtype of its size
    assert bits.tolist() == [0, 1, 2, 3]


def test_out_overlaps_mask():
    x = np.ones(6, bool)
    mask = np.ones(6, bool)
    refused(ScanValueError, "^out overlaps mask", x=x, mask=mask, out=mask, dtype=bool)
    refused(ScanValueError, "^out overlaps mask", x=x, mask=x, out=x, dtype=bool)
    assert cuscan.scan(x, mask=x, dtype=bool).all()


# ---- initial -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "initial, dtype, low, high",
    [
        (300, "int8", -128, 127),
        (-1, "uint8", 0, 255),
        (2**63, "int64", -(2**63), 2**63 - 1),
        (2**64, "uint64", 0, 2**64 - 1),
        (1.5, "int32", -(2**31), 2**31 - 1),
        (float("nan"), "int32", -(2**31), 2**31 - 1),
        (float("inf"), "int64", -(2**63), 2**63 - 1),
        (2, "bool", 0, 1),
    ],
)
def test_initial_does_not_fit_an_integer(initial, dtype, low, high):
    texts = f"^initial={re.escape(repr(initial))}", dtype, f"{low} to {high}"
    refused(ScanValueError, *texts, x=np.ones(3, dtype), dtype=dtype, initial=initial)


@pytest.mark.parametrize(
    "initial, dtype",
    [(65520.0, "float16"), (1e39, "float32"), (-1e300, "float32"), (10**39, "float32"), (1e39 + 1j, "complex64"),
     (10**400, "float64")],
)  # fmt: skip
def test_initial_does_not_fit_a_float(initial, dtype):
    refused(ScanValueError, f"^initial={re.escape(repr(initial))}", dtype, x=np.ones(3, dtype), initial=initial)


def test_initial_may_be_the_largest_float_or_infinite():
    for dtype in ("float16", "float32", "float64"):
        for initial in (float(np.finfo(dtype).max), -np.inf):
            got = cuscan.scan(np.zeros(2, dtype), exclusive=True, initial=initial)
            assert got.tolist() == [initial, initial]


def test_initial_is_complex_and_the_result_is_not():
    for dtype in ("float32", "int8"):
        refused(ScanTypeError, "^initial is complex", dtype, x=np.ones(3, dtype), dtype=dtype, initial=1j)


@pytest.mark.parametrize(
    "initial", ["1", b"1", [1], (1,), np.ones(1), np.ones((2, 2)), object()], ids=lambda v: type(v).__name__
)
def test_initial_is_no_scalar(initial):
    refused(ScanTypeError, "^initial must be a scalar", type(initial).__name__, initial=initial)
    if isinstance(initial, np.ndarray):
        refused(ScanTypeError, r"; pass initial\.item\(\) if it is one number, or carry= if each", initial=initial)
    refused(ScanTypeError, "^initial must be a scalar", initial=initial, x=np.ones(2, int))


@pytest.mark.parametrize("initial", [np.str_("a"), np.datetime64("2020-01-01"), np.array("b")], ids=repr)
def test_initial_is_a_numpy_scalar_that_is_no_number(initial):
    for dtype in (float, int, complex):
        refused(ScanTypeError, "^initial must be a scalar", initial=initial, x=np.ones(2, dtype))


def test_initial_is_larger_than_any_float():
    refused(ScanValueError, "^initial", "float64", initial=10**400)
    refused(ScanValueError, "^initial", "complex128", initial=10**400, x=np.ones(2, complex))


@pytest.mark.parametrize("initial", [True, 2, 2.0, np.int8(2), np.float32(2), np.array(2), Decimal(2)], ids=repr)
def test_initial_is_any_number(initial):
    for dtype in (int, float, complex):
        assert cuscan.scan(np.ones(1, dtype), initial=initial).tolist() == [1 + int(initial)]


def test_an_error_leaves_out_as_it_was():
    out = np.full(3, 7, np.int8)
    refused(ScanValueError, "initial", x=np.ones(3, "int8"), out=out, initial=1000)
    assert out.tolist() == [7] * 3


# ---- libraries and devices -----------------------------------------------------------------------------


class Stranger:
    """An array of an unknown library."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **keywords):
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    @property
    def shape(self):
        return self.array.shape


class Elsewhere:
    """An array that claims a device in DLPack's terms; no code may ask for its memory."""

    def __init__(self, kind):
        self.kind = kind

    def __dlpack__(self, **keywords):
        raise AssertionError("the device came first")

    def __dlpack_device__(self):
        return self.kind, 0


class OnlyCuda:
    """An array that only has the CUDA array interface."""

    def __init__(self):
        self.__cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (0, False), "version": 3}


writes_to_strangers = pytest.mark.skipif(
    tuple(map(int, np.__version__.split(".")[:2])) < (2, 1), reason="what this NumPy takes over by DLPack is read-only"
)


@writes_to_strangers
def test_a_stranger_on_the_cpu_is_adopted_without_a_copy():
    array = np.arange(5, dtype="i4")
    got = cuscan.scan(Stranger(array), mask=Stranger(np.array([True, False] * 2 + [True])))
    assert type(got) is np.ndarray and got.tolist() == [0, 0, 2, 2, 6]
    out = np.empty(5, "i8")
    given = Stranger(out)
    assert cuscan.scan(Stranger(array), out=given) is given
    assert out.tolist() == [0, 1, 3, 6, 10]


@writes_to_strangers
def test_whether_memory_is_read_only_is_heard_from_its_capsule():
    free, bound = np.ones(3), np.ones(3)
    bound.flags.writeable = False
    for array, readonly in ((free, False), (bound, True)):
        heard = Overheard(Stranger(array))
        assert heard.__dlpack_device__() == (1, 0) and heard.readonly is None
        assert np.from_dlpack(heard).flags.writeable is not readonly and heard.readonly is readonly
        assert is_readonly(array.__dlpack__(max_version=(1, 0))) is readonly
    consumed = free.__dlpack__(max_version=(1, 0))
    np.from_dlpack(SimpleNamespace(__dlpack__=lambda **_: consumed, __dlpack_device__=lambda: (1, 0)))
    for silent in (free.__dlpack__(), consumed, None):
        assert is_readonly(silent) is None


class Unreadable(Stranger):
    """An array that refuses with an error of its own."""

    def __dlpack__(self, **keywords):
        raise BufferError("not today")


def test_what_a_stranger_refuses_is_our_error():
    refused(ScanTypeError, "^x, a Unreadable, cannot be taken over", "not today", x=Unreadable(np.ones(3)))
    refused(ScanTypeError, "^x must be an array", "class ndarray", x=np.ndarray)


@pytest.mark.parametrize("kind", [4, 7, 8, 10, 14])
def test_a_stranger_on_another_device_is_refused(kind):
    refused(ScanTypeError, f"^x is on a device of DLPack type {kind}", "CUDA", "CPU", x=Elsewhere(kind))


@pytest.fixture
def no_cupy(monkeypatch):
    """A Python without CuPy."""
    for name in [name for name in sys.modules if name.split(".")[0] == "cupy"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "cuscan.interop.cupy", raising=False)
    monkeypatch.delitem(sys.modules, "cuscan.backends.cuda", raising=False)
    monkeypatch.setitem(sys.modules, "cupy", None)


@pytest.mark.usefixtures("no_cupy")
@pytest.mark.parametrize("name", ["x", "mask", "out"])
@pytest.mark.parametrize("array", [Elsewhere(2), Elsewhere(13), OnlyCuda()], ids=["cuda", "managed", "interface"])
def test_an_array_on_a_gpu_needs_cupy(name, array):
    with pytest.raises(MissingDependencyError, match=rf"^{name} is on a GPU.*pip install 'cuscan\[cuda12\]'") as caught:
        cuscan.scan(**{"x": np.ones(3), name: array})
    assert isinstance(caught.value, ImportError) and "cuscan[cuda13]" in str(caught.value)


@pytest.mark.usefixtures("no_cupy")
def test_arrays_on_the_cpu_need_no_cupy(monkeypatch):
    real, asked = builtins.__import__, []

    def spy(name, *arguments):
        asked.append(name)
        return real(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", spy)
    assert cuscan.scan(np.ones(3)).tolist() == [1, 2, 3]
    assert not [name for name in asked if name.split(".")[0] in ("cupy", "torch")]


def test_a_mask_or_out_on_another_device_is_refused(monkeypatch):
    from cuscan.interop import numpy as door

    devices = itertools.cycle([Device("cpu", 0), Device("cpu", 1)])
    adopt = door.NumPyLibrary.adopt
    monkeypatch.setattr(door.NumPyLibrary, "adopt", lambda *a: of_another_kind(adopt(*a), device=next(devices)))
    refused(ScanValueError, "^mask is on", "x on", "one device", mask=np.ones(6, bool))
    refused(ScanValueError, "^out is on", "x on", "one device", out=np.ones(6))


# ---- torch ---------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


def test_libraries_do_not_mix(torch):
    x, mask = np.ones(3), np.ones(3, bool)
    refused(ScanTypeError, "^mask is of torch and x of numpy", x=x, mask=torch.ones(3, dtype=torch.bool))
    refused(ScanTypeError, "^out is of torch and x of numpy", x=x, out=torch.ones(3, dtype=torch.float64))
    refused(ScanTypeError, "^mask is of numpy and x of torch", x=torch.ones(3), mask=mask)
    refused(ScanTypeError, "^out is of numpy and x of torch", x=torch.ones(3), out=np.ones(3, "f4"))


MAKERS = {"numpy": "np.asarray", "torch": "torch.as_tensor", "jax.numpy": "jax.numpy.asarray"}


@pytest.mark.parametrize("library", MAKERS)
@pytest.mark.parametrize("other", ["list", *MAKERS])
@pytest.mark.parametrize("name", ["mask", "reset", "keys", "offsets", "a"])
def test_what_an_error_says_of_another_library_works(library, other, name):
    """Arrays beside those of a library: accepted as they are, or converted as the error says."""
    needed = {library, other} - {"list", "numpy"}
    modules = {key: pytest.importorskip(key, reason=f"{key} is not installed") for key in needed}
    names = {"np": np, "torch": modules.get("torch"), "jnp": modules.get("jax.numpy"), "jax": sys.modules.get("jax")}
    beside = {"keys": [1, 1, 2], "offsets": [0, 2, 3], "a": [0.5, 2.0, 1.0]}.get(name, [True, False, True])
    x = eval(f"{MAKERS[library]}([1.0, 2.0, 4.0])", names)
    names[name] = beside if other == "list" else eval(f"{MAKERS[other]}({beside})", names)

    def called(given, x):
        return cuscan.linear_recurrence(given, x) if name == "a" else cuscan.cumsum(x, **{name: given})

    expected = called(np.asarray(beside), np.array([1.0, 2.0, 4.0])).tolist()
    try:
        got = called(names[name], x)
    except ScanTypeError as error:
        assert "torch" in (library, other) or other == "list"
        advice = re.search(rf"[:;] pass (.*{name}.*) \(cuscan\.\w+\)$", str(error))
        assert advice, str(error)
        got = called(eval(advice[1], names), x)
    assert got.tolist() == expected and type(got) is type(x if library != "numpy" or other != "jax.numpy" else got)


def test_what_an_error_says_of_arrays_on_a_gpu():
    cpu, gpu = Device("cpu", 0), Device("cuda", 1)

    def told(library, device, other, where):
        view = SimpleNamespace(library=SimpleNamespace(name=library), device=device)
        main = SimpleNamespace(kind=SimpleNamespace(library=SimpleNamespace(name=other), device=where))
        with pytest.raises(ScanError) as caught:
            check_place("mask", SimpleNamespace(kind=view), Elements("x", main))
        return str(caught.value)

    assert told("numpy", cpu, "torch", gpu).endswith(": pass torch.as_tensor(mask, device='cuda:1')")
    assert told("torch", gpu, "numpy", cpu).endswith(": pass np.asarray(mask.cpu())")
    assert told("cupy", gpu, "numpy", cpu).endswith(": pass np.asarray(mask.get())")
    assert told("torch", cpu, "cupy", gpu).endswith(": pass cupy.asarray(mask)")


def test_what_an_error_says_of_tensors_elsewhere(torch):
    from cuscan.interop.torch import LIBRARY

    on = [SimpleNamespace(kind=SimpleNamespace(library=LIBRARY, device=Device("cuda", i))) for i in range(2)]
    for name, advice in (("mask", ": pass mask.to('cuda:0')"), ("out", "on one device")):
        with pytest.raises(ScanValueError, match=re.escape(advice) + "$"):
            check_place(name, on[1], Elements("x", on[0]))


def test_what_derivatives_do_not_go_with(torch):
    x, out = torch.ones(3, requires_grad=True), torch.ones(3)
    refused(ScanTypeError, "^out= has no derivative", "requires grad", x=x, out=out)
    refused(ScanTypeError, "^out= has no derivative", x=out, out=x)
    plain = cuscan.Operator("plain", "earlier * later", 1, numpy=np.multiply)
    refused(ScanTypeError, "^op='plain' has no derivative", "vjp=", x=x, op=plain)
    state = {"a": "float32", "b": "float32"}
    pair = cuscan.Operator(
        "pair", "return later;", (0, 0), state=state, numpy=lambda _, later: (later["a"], later["b"])
    )
    refused(ScanTypeError, "^op='pair' has no derivative", "several fields", x=(x, x), op=pair)
    assert not cuscan.scan(x, dtype=torch.int32).requires_grad
    for off in (torch.no_grad(), torch.inference_mode()):
        with off:
            assert cuscan.scan(x, plain, out=out) is out and not out.requires_grad


@pytest.mark.filterwarnings("ignore")
def test_nested_tensors_are_refused_by_name(torch):
    for layout in (torch.strided, torch.jagged):
        x = torch.nested.nested_tensor([torch.ones(3), torch.ones(2)], layout=layout)
        refused(ScanTypeError, "^x is a nested tensor", r"values\(\)", "offsets=", x=x)


def test_rocm_is_refused_by_name(torch, monkeypatch):
    from cuscan.interop.torch import LIBRARY

    monkeypatch.setattr(torch.version, "hip", "6.2")
    with pytest.raises(ScanTypeError, match=r"^x is on a ROCm GPU; cuscan works on CUDA GPUs"):
        LIBRARY.kind_of(SimpleNamespace(is_nested=False, dtype=torch.float32, layout=torch.strided, is_cuda=True), "x")


@pytest.mark.filterwarnings("ignore")
def test_torch_layouts_and_devices_that_are_not_supported(torch):
    dense = r"; pass x\.to_dense\(\) \("
    refused(ScanTypeError, "^x is a tensor", "sparse_coo", "strided", dense, x=torch.eye(3).to_sparse())
    refused(ScanTypeError, "^x is a tensor", "sparse_csr", "strided", dense, x=torch.eye(3).to_sparse_csr())
    refused(ScanTypeError, "^x is on device meta", "cuda and cpu", x=torch.ones(3, device="meta"))
    refused(ScanTypeError, "^x is a tensor of dtype torch.float8", "supported", x=torch.ones(3).to(torch.float8_e4m3fn))
    refused(ScanTypeError, "^x is a tensor of dtype torch.complex32", x=torch.ones(3, dtype=torch.complex32))


@pytest.mark.filterwarnings("ignore")
def test_quantized_tensors_are_refused(torch):
    x = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    refused(ScanTypeError, "^x is a tensor of dtype torch.qint8", "supported", x=x)


def test_an_out_with_a_conjugate_or_negative_bit_is_refused(torch):
    x = torch.ones(3, dtype=torch.complex64)
    refused(ScanTypeError, "^out has its conjugate or negative bit set", x=x, out=x.clone().conj())


def test_torch_errors_name_torch_dtypes(torch):
    refused(ScanTypeError, "^dtype must be one of", "torch.complex32", x=torch.ones(3), dtype=torch.complex32)
    mask = torch.ones(3, dtype=torch.uint8)
    refused(ScanTypeError, "^mask must have dtype bool", "uint8", x=torch.ones(3), mask=mask)
    refused(ScanTypeError, "^initial must be a scalar", "Tensor", x=torch.ones(3), initial=torch.ones(3))
    refused(ScanValueError, "^out overlaps itself", x=torch.ones(2, 3), out=torch.ones(3).expand(2, 3))


def test_integers_where_floating_point_is_needed():
    for call in (cuscan.logcumsumexp, lambda x: cuscan.linear_recurrence(0.5, x)):
        with pytest.raises(ScanTypeError, match="; pass dtype='float64'"):
            call(np.arange(3))
    assert cuscan.linear_recurrence(0.5, np.arange(3), dtype="float64").tolist() == [0, 1, 2.5]
    with pytest.raises(ScanTypeError, match="result here has dtype complex64 "):
        cuscan.logcumsumexp(np.ones(3, "complex64"))


# ---- versions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", ["1.24.4", "1.9", "0.99.0rc1"])
def test_numpy_is_too_old(monkeypatch, found):
    monkeypatch.setattr(np, "__version__", found)
    monkeypatch.setattr(interop, "_libraries", {})
    with pytest.raises(
        MissingDependencyError, match=rf"need numpy 1.25 or later, and version {found} is installed: pip"
    ):
        cuscan.scan(np.ones(3))


def test_torch_is_too_old(monkeypatch, torch):
    monkeypatch.setattr(torch, "__version__", "1.13.1+cpu")
    monkeypatch.setattr(interop, "_libraries", {})
    with pytest.raises(
        MissingDependencyError, match=r"need torch 2\.4 or later, and version 1\.13\.1\+cpu is installed"
    ):
        cuscan.scan(torch.ones(3))


def test_cupy_is_too_old(monkeypatch):
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    for module in ("cuscan.interop.cupy", "cuscan.backends.cuda"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(cupy, "__version__", "12.3.0")
    with pytest.raises(MissingDependencyError, match=r"need cupy 13\.0 or later, and version 12\.3\.0 is installed"):
        cuscan.scan(Elsewhere(2))
    with pytest.raises(MissingDependencyError, match=r"need cupy 13\.0 or later"):
        backends._load("cuda")


@pytest.mark.parametrize("found", ["1.25.0", "1.26.4", "2.0.0", "10.1", "2.1.0a0+git123", "of a fork"])
def test_versions_that_are_new_enough(found):
    check_version("numpy", found)


def test_packages_ask_for_the_same_versions():
    project = (ROOT / "pyproject.toml").read_text()
    assert f'"numpy>={OLDEST["numpy"][0]}.{OLDEST["numpy"][1]}"' in project
    assert f'"cupy-cuda12x>={OLDEST["cupy"][0]}"' in project
    names = {"numpy": "NumPy", "cupy": "CuPy", "torch": "torch", "jax": "JAX"}
    stated = [f"{names[library]} {'.'.join(map(str, oldest))}".removesuffix(".0") for library, oldest in OLDEST.items()]
    versions = f"Python 3.10, {', '.join(stated[:-1])} and {stated[-1]}, on a GPU of sm_75"
    assert versions in " ".join((ROOT / "README.md").read_text().split())
    assert 'requires-python = ">=3.10"' in project


def test_ci_runs_what_is_installed_there_alone():
    """Type checkers read a user's file; NVRTC 13 is installed beside CuPy for CUDA 12."""
    script = (ROOT / ".ci" / "run").read_text()
    for package, test in (
        ("'.[lint]'", "pytest tests/test_typing.py"),
        ("torch==", "pytest tests/test_typing.py"),
        ("nvidia-cuda-nvrtc>=13", "pytest tests/test_two_cudas.py"),
    ):
        assert script.index(package) < script.index(test)


def test_ci_installs_the_oldest_versions_of_all():
    """The sed command of `.ci/run` selects the table's packages; only JAX's oldest version needs a later NumPy."""
    script = (ROOT / ".ci" / "run").read_text()
    command = re.search(r"^oldest\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    assert command and "mapfile -t packages < <(oldest)" in script
    installed = r'pip install .*"\$\{packages\[@\]\}".*'
    assert re.search(installed + r"\n(#.*\n|nvrtc=.*\n)*.* pytest .*tests/test_errors.py", script)
    listing = ["bash", "-c", f"{command.group()}\noldest"]
    shown = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True)
    names = {"cupy": "cupy-cuda12x"}
    versions = {names.get(name, name): ".".join(map(str, v)) for name, v in OLDEST.items() if name != "jax"}
    assert shown.stdout.split() == [f"{name}=={version}.*" for name, version in versions.items()]


# ---- out selects the dtype, within limits --------------------------------------------------------------


def test_out_does_not_lose_the_kind_of_x_without_a_word():
    refused(
        ScanTypeError, "^out has dtype int8 and x float32", "pass dtype=", x=np.ones(3, "f4"), out=np.empty(3, "i1")
    )
    refused(ScanTypeError, "^out has dtype bool and x int8", x=np.ones(3, "i1"), out=np.empty(3, "?"))
    refused(ScanTypeError, "^out has dtype float64 and x complex128", x=np.ones(3, "c16"), out=np.empty(3))
    for out in (np.empty(3, "i4"), np.empty(3, "u1"), np.empty(3, "f4")):
        assert cuscan.scan(np.array([1, 2, 3], "i8"), out=out).tolist() == [1, 3, 6]
    out = np.empty(3, "i1")
    assert cuscan.scan(np.array([1.5, 2, 3]), dtype="int8", out=out).tolist() == [1, 3, 6]


def test_axes_of_size_one_do_not_make_an_overlap():
    x = np.arange(6.0).reshape(6, 1)
    out = np.lib.stride_tricks.as_strided(x, strides=(8, 48))
    assert cuscan.scan(x, axis=0, out=out) is out and x.ravel().tolist() == [0, 1, 3, 6, 10, 15]
