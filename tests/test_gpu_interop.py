"""Arrays of several libraries on a GPU: adopted without a copy, and returned in the same library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu import assert_same, check, cupy, ml_dtypes, need, numbers, to_numpy

import cuscan
from cuscan import ScanTypeError, ScanValueError
from cuscan.interop import adopt

pytestmark = pytest.mark.gpu

N = 40_000  # a chain of several units


@pytest.fixture
def torch() -> Any:
    return need("torch").torch


@pytest.fixture
def jax() -> Any:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    return jax


@pytest.fixture
def numba() -> Any:
    numba = pytest.importorskip("numba.cuda", reason="Numba with CUDA is not installed")
    if not numba.is_available():
        pytest.skip("Numba sees no GPU")
    return numba


# ---- CuPy and torch ---------------------------------------------------------------------------------------


def test_cupy_arrays_are_seen_where_they_are():
    x = need("cupy").device(numbers((30, 40)))
    for array in (x, x[1:], x[:, 3:], x.T, x[::-1, ::2]):
        view = adopt(array)
        assert view.owner is array and (view.pointer, str(view.device)) == (array.data.ptr, "cuda:0")
        assert view.strides == tuple(s // 4 for s in array.strides)


def test_torch_tensors_are_seen_where_they_are(torch):
    x = need("torch").device(numbers((30, 40)))
    for tensor in (x, x[1:], x[:, 3:], x.T, x[::2, ::3], x[:1].expand(9, 40)):
        view = adopt(tensor)
        assert view.owner is tensor and (view.pointer, str(view.device)) == (tensor.data_ptr(), "cuda:0")
        assert view.strides == tensor.stride()


def test_both_libraries_work_on_one_memory(torch):
    host = numbers((N,))
    array = need("cupy").device(host)
    tensor = torch.from_dlpack(array)
    again = cupy.from_dlpack(tensor)
    assert array.data.ptr == tensor.data_ptr() == again.data.ptr
    assert adopt(array).pointer == adopt(tensor).pointer == adopt(again).pointer
    expected = cuscan.scan(host, reverse=True)
    assert isinstance(cuscan.scan(tensor, reverse=True), torch.Tensor)
    assert isinstance(cuscan.scan(array, reverse=True), cupy.ndarray)
    cupy.cuda.runtime.deviceSynchronize()
    assert cuscan.scan(tensor, reverse=True, out=tensor) is tensor  # all three share this memory
    torch.cuda.synchronize()
    assert_same(array, expected)
    assert_same(again, expected)


@pytest.mark.parametrize("name", ["cupy", "torch"])
def test_out_is_returned_as_it_is(name):
    library = need(name)
    x, out = library.device(numbers((N,))), library.device(np.zeros(N, np.float64))
    assert cuscan.scan(x, out=out) is out
    assert cuscan.scan(x, out=x) is x
    assert_same(out, cuscan.scan(library.host(numbers((N,))), dtype="float64"))


def test_results_are_new_arrays(torch):
    for name in ("cupy", "torch"):
        x = need(name).device(numbers((N,)))
        got = cuscan.scan(x)
        assert adopt(got).pointer != adopt(x).pointer
        assert_same(x, numbers((N,)) if name == "cupy" else torch.from_numpy(numbers((N,))))


def test_subclasses_and_parameters(torch):
    x = torch.nn.Parameter(need("torch").device(numbers((N,))))
    with torch.no_grad():
        got = cuscan.scan(x)
    assert type(got) is torch.Tensor and not got.requires_grad
    assert_same(got, cuscan.scan(torch.from_numpy(numbers((N,)))))


def test_tensors_that_require_grad(torch):
    x = need("torch").device(numbers((N,))).requires_grad_()
    assert cuscan.scan(x).requires_grad
    with pytest.raises(ScanTypeError, match="out= has no derivative"):
        cuscan.scan(x.detach(), out=torch.empty_like(x, requires_grad=True))
    expected = cuscan.scan(torch.from_numpy(numbers((N,))))
    with torch.no_grad():
        assert_same(cuscan.scan(x), expected)
    with torch.inference_mode():
        assert_same(cuscan.scan(x), expected)
    assert_same(cuscan.scan(x.detach()), expected)


@pytest.mark.parametrize("shape", [(N,), (300, 50)])
def test_conjugated_and_negative_tensors_are_resolved(torch, shape):
    host, x = need("torch").host(numbers(shape, "complex64")), need("torch").device(numbers(shape, "complex64"))
    for change in (torch.conj, lambda t: t.conj().imag, torch._neg_view, lambda t: torch._neg_view(t).conj()):
        lazy = change(x)
        assert lazy.is_conj() or lazy.is_neg()
        assert_same(cuscan.scan(lazy, axis=0), cuscan.scan(change(host).resolve_conj().resolve_neg(), axis=0))
    with pytest.raises(ScanTypeError, match="out has its conjugate or negative bit set"):
        cuscan.scan(x, out=x.clone().conj())


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_integers_of_torch(torch, dtype):
    x = numbers((3, N // 4), dtype)
    got = check("torch", x, axis=1)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, np.cumsum(x, 1, dtype=np.uint64).view(np.int64))
    got = check("torch", x, "max", axis=1, reverse=True)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1])
    check("torch", x, "xor", axis=0, out=numbers(x.shape, dtype, seed=1))


def test_bfloat16_arrays_of_cupy():
    host = numbers((N,), "bfloat16")
    try:
        x = cupy.asarray(host)
    except (TypeError, ValueError) as error:
        pytest.skip(f"CuPy {cupy.__version__} has no bfloat16: {error}")
    assert x.dtype == ml_dtypes.bfloat16
    assert_same(x, host)
    got = cuscan.scan(x)
    assert isinstance(got, cupy.ndarray) and got.dtype == ml_dtypes.bfloat16
    assert_same(got, cuscan.scan(host))
    assert_same(cuscan.scan(x, dtype="float32"), cuscan.scan(host, dtype="float32"))


def test_bfloat16_goes_both_ways_through_dlpack(torch):
    tensor = need("torch").device(numbers((N,), "bfloat16"))
    array = cupy.from_dlpack(tensor)
    assert array.data.ptr == tensor.data_ptr()
    one, other = cuscan.scan(tensor), cuscan.scan(array)
    np.testing.assert_array_equal(to_numpy(one), to_numpy(other))


# ---- unknown libraries --------------------------------------------------------------------------------------


class DLPackStranger:
    """An array with the two methods of DLPack, and nothing else."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class InterfaceStranger:
    """An array with the CUDA array interface, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__
        self._array = array


@pytest.mark.parametrize("stranger", [DLPackStranger, InterfaceStranger])
def test_strangers_give_cupy_arrays(stranger):
    host, kept = numbers((300, 200)), numbers((300, 200), "bool")
    x, mask, out = cupy.asarray(host), cupy.asarray(kept != 0), cupy.zeros((300, 200), np.float32)
    assert adopt(stranger(x)).pointer == x.data.ptr
    assert adopt(stranger(x.T)).strides == (1, 200)
    got = cuscan.scan(stranger(x), axis=0, mask=stranger(mask))
    assert isinstance(got, cupy.ndarray)
    assert_same(got, cuscan.scan(host, axis=0, mask=kept))
    cuscan.scan(stranger(x), axis=1, out=stranger(out))
    assert_same(out, cuscan.scan(host, axis=1))


class StandardStranger(DLPackStranger):
    """An array of a library with the array API standard; the array is its own namespace."""

    def __array_namespace__(self, **keywords: Any) -> Any:
        return StandardStranger

    @staticmethod
    def from_dlpack(array: Any) -> StandardStranger:
        return StandardStranger(array)


def test_arrays_of_the_standard_come_back_as_what_they_were():
    host = numbers((300, 200))
    x = StandardStranger(cupy.asarray(host))
    got, carry = cuscan.cumsum(x, 0, return_carry=True)
    assert isinstance(got, StandardStranger) and isinstance(carry, StandardStranger)
    assert_same(got._array, cuscan.cumsum(host, 0))
    for both in (cuscan.cummax(x, return_indices=True), cuscan.linear_recurrence(0.5, x, return_last=True)):
        assert all(isinstance(array, StandardStranger) for array in both)
    out = StandardStranger(cupy.empty((300, 200), np.float32))
    assert cuscan.cumsum(x, out=out) is out
    assert_same(out._array, cuscan.cumsum(host))
    assert isinstance(cuscan.cumulative_sum(x, axis=1), StandardStranger)


class SilentStranger(DLPackStranger):
    """An array from before DLPack said whether memory may be written."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return self._array.__dlpack__(stream=stream)


def test_memory_that_may_not_be_written_is_not_written():
    x, interface = cupy.zeros(9), InterfaceStranger(cupy.zeros(9))
    interface.__cuda_array_interface__["data"] = (x.data.ptr, True)
    for out in (SilentStranger(x), interface):
        with pytest.raises(ScanValueError, match=r"^out is read-only"):
            cuscan.scan(x, out=out)
        assert adopt(out).readonly and not adopt(DLPackStranger(x)).readonly
    assert_same(cuscan.scan(SilentStranger(x)), np.zeros(9))


def test_a_torch_tensor_behind_dlpack_gives_a_cupy_array(torch):
    x = need("torch").device(numbers((N,)))
    view = adopt(DLPackStranger(x))
    assert view.pointer == x.data_ptr() and view.library.name == "cupy" and not view.readonly
    got = cuscan.scan(DLPackStranger(x))
    assert isinstance(got, cupy.ndarray)
    assert_same(got, cuscan.scan(numbers((N,))))


def test_jax_arrays(jax):
    host, kept = numbers((300, 200)), numbers((300, 200), "bool") != 0
    x, mask = jax.numpy.asarray(host), jax.numpy.asarray(kept)
    for axis in (0, 1):
        got = cuscan.scan(x, axis=axis, mask=mask, reverse=True)
        assert isinstance(got, jax.Array) and got.device == x.device
        assert_same(got, cuscan.scan(host, axis=axis, mask=kept, reverse=True))
    computed = cuscan.scan(x * 2 + 1)  # JAX may still be computing it
    assert_same(computed, cuscan.scan(host * np.float32(2) + 1))


def test_jax_arrays_of_other_dtypes(jax):
    for dtype in ("int32", "uint8", "float16", "bfloat16", "complex64"):
        host = numbers((N,), dtype)
        assert_same(cuscan.scan(jax.numpy.asarray(host), dtype=dtype), cuscan.scan(host, dtype=dtype))


def test_numba_arrays(numba):
    host, kept = numbers((300, 200)), numbers((300, 200), "bool") != 0
    x, out = numba.to_device(host), numba.to_device(np.zeros((300, 200), np.float32))
    assert adopt(x).pointer == x.__cuda_array_interface__["data"][0]
    got = cuscan.scan(x, axis=0, mask=numba.to_device(kept))
    assert isinstance(got, cupy.ndarray)
    assert_same(got, cuscan.scan(host, axis=0, mask=kept))
    cuscan.scan(x, out=out)
    cupy.cuda.runtime.deviceSynchronize()
    assert_same(out.copy_to_host(), cuscan.scan(host))


def test_two_libraries_do_not_mix(torch):
    x = need("cupy").device(numbers((9,)))
    with pytest.raises(ScanTypeError, match="mask is of torch and x of cupy"):
        cuscan.scan(x, mask=torch.ones(9, dtype=torch.bool, device="cuda"))
    with pytest.raises(ScanTypeError, match="out is of torch and x of cupy"):
        cuscan.scan(x, out=torch.ones(9, device="cuda"))
