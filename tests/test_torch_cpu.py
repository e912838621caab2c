"""torch tensors on the CPU through the common entry point: dtypes, layouts, memory."""

from __future__ import annotations

import numpy as np
import pytest

import cuscan

torch = pytest.importorskip("torch", reason="torch is not installed")

EXACT = [torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]
HALVES = [torch.float16, torch.bfloat16]
INEXACT = [*HALVES, torch.float32, torch.float64, torch.complex64, torch.complex128]


def sample(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    if dtype in EXACT + UNSIGNED:
        return torch.from_numpy(rng.integers(0, 2 if dtype is torch.bool else 90, shape)).to(dtype)
    x = rng.standard_normal(shape)
    return torch.from_numpy(x + 1j * rng.standard_normal(shape) if dtype.is_complex else x).to(dtype)


def same_bits(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    raw = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a), torch.view_as_real(b)
    return torch.equal(a.contiguous().view(raw[a.itemsize]), b.contiguous().view(raw[b.itemsize]))


@pytest.mark.parametrize("dtype", EXACT + INEXACT, ids=str)
def test_default_result_dtypes_are_those_of_torch(dtype):
    x = sample(dtype, (5,))
    assert cuscan.scan(x).dtype == torch.cumsum(x, 0).dtype
    assert cuscan.scan(x, "mul").dtype == torch.cumprod(x, 0).dtype
    if not dtype.is_complex:
        assert cuscan.scan(x, "max").dtype == torch.cummax(x, 0).values.dtype
        assert cuscan.scan(x, "min").dtype == torch.cummin(x, 0).values.dtype


@pytest.mark.parametrize("dtype", EXACT + UNSIGNED, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_exact_sums_equal_those_of_torch(dtype, dim):
    x = sample(dtype, (300, 40))
    got = cuscan.scan(x, axis=dim)
    assert got.dtype == torch.int64 and torch.equal(got, torch.cumsum(x.to(torch.int64), dim))


@pytest.mark.parametrize("dtype", EXACT, ids=str)
def test_running_extremes_equal_those_of_torch(dtype):
    x = sample(dtype, (30, 400))
    for dim in (0, 1):
        assert torch.equal(cuscan.cummax(x, axis=dim), torch.cummax(x, dim).values)
        assert torch.equal(cuscan.cummin(x, axis=dim), torch.cummin(x, dim).values)


@pytest.mark.parametrize("dtype", INEXACT, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_float_sums_are_close_to_exact_ones(dtype, dim):
    x = sample(dtype, (300, 400))
    wide = torch.complex128 if dtype.is_complex else torch.float64
    exact, magnitude = torch.cumsum(x.to(wide), dim), torch.cumsum(x.abs().to(torch.float64), dim)
    accumulator = torch.float32 if dtype in HALVES else dtype
    bound = torch.finfo(dtype).eps * exact.abs() + 64 * torch.finfo(accumulator).eps * magnitude
    assert ((cuscan.scan(x, axis=dim).to(wide) - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("call", [{}, {"reverse": True}, {"exclusive": True, "initial": 1}, {"axis": 0}], ids=str)
def test_the_bits_are_those_of_numpy_arrays(dtype, call):
    x, mask = sample(dtype, (50, 900)), sample(torch.bool, (50, 900), 1)
    got = cuscan.scan(x, mask=mask, **call)
    assert same_bits(got, torch.from_numpy(cuscan.scan(x.numpy(), mask=mask.numpy(), **call)))


@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("call", [{}, {"reverse": True}, {"exclusive": True, "initial": 1}, {"axis": 0}], ids=str)
def test_halves_are_rounded_once_as_torch_rounds(dtype, call):
    x = sample(torch.int8, (300, 100)).to(dtype)  # whole numbers, so float32 sums are exact
    expected = cuscan.scan(x.to(torch.float32), **call)
    assert same_bits(cuscan.scan(x, **call), expected.to(dtype))
    assert not torch.equal(expected, expected.to(dtype).to(torch.float32))


def test_special_values_of_bfloat16():
    x = torch.tensor([float("inf"), 1.0, float("-inf"), 2.0], dtype=torch.bfloat16)
    assert cuscan.scan(x)[:2].tolist() == [float("inf")] * 2 and cuscan.scan(x)[2:].isnan().all()
    assert cuscan.scan(x, "min").tolist() == [float("inf"), 1, float("-inf"), float("-inf")]
    tiny = torch.tensor([1, 1, 1], dtype=torch.int16).view(torch.bfloat16)
    assert cuscan.scan(tiny).view(torch.int16).tolist() == [1, 2, 3]


@pytest.mark.parametrize("dtype", [torch.int32, torch.bfloat16, torch.float16, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1::3],
        lambda x: x[3:, 2:],
        lambda x: x[:1].expand(40, 60),
        lambda x: x[:, :1].expand(40, 60),
        lambda x: x.unfold(1, 5, 2),
        lambda x: x.reshape(4, 10, 60).permute(2, 0, 1),
    ],
    ids=["transposed", "steps", "offset", "rows", "columns", "windows", "permuted"],
)
def test_any_strides(dtype, view):
    x = sample(torch.int8, (40, 60)).to(dtype)  # whole numbers, so every order gives the same bits
    if dtype in HALVES:
        x = x % 3
    x = view(x)
    for axis in range(x.ndim):
        got = cuscan.scan(x, axis=axis)
        assert torch.equal(got.to(torch.complex128), torch.cumsum(x.to(torch.complex128), axis))


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_channels_last_is_kept(axis, dtype):
    x = sample(dtype, (2, 3, 4, 5)).to(memory_format=torch.channels_last)
    got = cuscan.scan(x, axis=axis)
    assert got.stride() == torch.empty_like(x).stride() == x.stride()
    assert got.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "x",
    [
        torch.ones(4, 5, 6),
        torch.ones(4, 5, 6).permute(2, 0, 1),
        torch.ones(4, 5, 6).transpose(0, 1),
        torch.ones(2, 3, 4, 5, 6).to(memory_format=torch.channels_last_3d),
        torch.ones(1, 7, 1, 3),
        torch.ones(0, 3).t(),
    ],
    ids=lambda x: str(x.stride()),
)
def test_dense_layouts_are_kept_as_torch_keeps_them(x):
    got = cuscan.scan(x, axis=-1)
    pairs = list(zip(got.stride(), torch.empty_like(x).stride(), x.shape, strict=True))
    assert all(mine == theirs for mine, theirs, size in pairs if size > 1 and x.numel())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_out_is_written_where_it_is(dtype):
    x = sample(torch.bool, (30, 40)).to(dtype)  # small whole numbers, so every order gives the same bits
    expected = cuscan.scan(x, dtype=dtype, axis=0)
    for out in (torch.empty_like(x), torch.zeros(40, 30, dtype=dtype).t(), torch.zeros(60, 120, dtype=dtype)[::2, ::3]):
        pointer = out.data_ptr()
        got = cuscan.scan(x, axis=0, out=out)
        assert got is out and out.data_ptr() == pointer and torch.equal(out, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_in_place(dtype, reverse):
    x = sample(dtype, (20, 300))
    expected, pointer, alias = cuscan.scan(x, reverse=reverse), x.data_ptr(), x.view(-1)
    got = cuscan.scan(x, reverse=reverse, out=x)
    assert got is x and x.data_ptr() == pointer
    assert same_bits(alias.view(20, 300), expected)


def test_the_memory_of_x_is_read_where_it_is():
    from cuscan.interop import adopt

    for dtype in (torch.float32, torch.bfloat16, torch.bool):
        x = sample(dtype, (4, 6)).t()
        view = adopt(x)
        array = view.library.as_numpy(view)
        assert view.pointer == x.data_ptr() == array.ctypes.data
        assert view.strides == x.stride() == tuple(s // array.itemsize for s in array.strides)
        assert array.dtype == (np.uint16 if dtype is torch.bfloat16 else np.dtype(str(dtype).removeprefix("torch.")))


def test_a_storage_offset_is_respected():
    base = torch.arange(10, dtype=torch.float32)
    got = cuscan.scan(base[3:7], out=base[7:10].new_empty(4))
    assert got.tolist() == [3, 7, 12, 18]
    cuscan.scan(base[:3], out=base[4:7])
    assert base.tolist() == [0, 1, 2, 3, 0, 1, 3, 7, 8, 9]


def test_conjugate_and_negative_views_are_resolved():
    x = torch.tensor([1 + 2j, 3 - 1j])
    assert x.conj().is_conj() and cuscan.scan(x.conj()).tolist() == [1 - 2j, 4 - 1j]
    negative = x.conj().imag
    assert negative.is_neg() and cuscan.scan(negative).tolist() == [-2, -1]
    assert x.tolist() == [1 + 2j, 3 - 1j]


def test_masks_of_torch():
    x = torch.tensor([1.0, float("nan"), 3.0, float("inf")])
    mask = torch.tensor([True, False, True, False])
    assert cuscan.scan(x, mask=mask).tolist() == [1, 1, 4, 4]
    assert cuscan.scan(x.expand(2, 4), mask=mask, axis=0, initial=1)[1].tolist() == [3, 1, 7, 1]
    rows = torch.tensor([[True], [False]])
    assert cuscan.scan(torch.ones(2, 3), mask=rows).tolist() == [[1, 2, 3], [0, 0, 0]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int16, torch.complex64, "float16"], ids=str)
def test_dtype_takes_torch_dtypes_and_names(dtype):
    got = cuscan.scan(torch.arange(5, dtype=torch.int32), dtype=dtype)
    assert got.dtype == (torch.float16 if isinstance(dtype, str) else dtype)
    assert got.real.tolist() == [0, 1, 3, 6, 10] if got.is_complex() else got.tolist() == [0, 1, 3, 6, 10]


def test_parameters_and_subclasses():
    x = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        assert cuscan.scan(x).tolist() == [1, 2, 3]
    if hasattr(torch.nn, "Buffer"):  # from torch 2.5 on
        assert cuscan.scan(torch.nn.Buffer(torch.ones(3))).tolist() == [1, 2, 3]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 3)])
def test_empty_tensors(shape):
    for axis in range(len(shape)):
        got = cuscan.scan(torch.ones(shape, dtype=torch.bfloat16), axis=axis)
        assert got.shape == shape and got.dtype == torch.bfloat16
    out = torch.ones(shape)
    assert cuscan.scan(torch.ones(shape), out=out) is out


def test_autograd_notices_what_out_overwrites():
    w = torch.ones(3, requires_grad=True)
    y = 2 * w
    loss = (y**2).sum()
    z = y.detach()
    cuscan.scan(z, out=z)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors_are_written_too():
    with torch.inference_mode():
        x = torch.ones(3)
        assert cuscan.scan(x, out=x).tolist() == [1, 2, 3]
