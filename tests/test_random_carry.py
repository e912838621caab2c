"""Random calls cut anywhere, compared with uncut calls: equal, or within the bound of `scan`'s docstring."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from chunks import Array, along, cuts_of, in_chunks

import cuscan

EXACT = [
    ("add", "int16"),
    ("add", "uint8"),
    ("mul", "int64"),
    ("max", "float16"),
    ("min", "float64"),
    ("xor", "uint32"),
]
EXACT += [("and", "int8"), ("or", "bool"), ("max with indices", "int32"), ("min with indices", "float32")]
ROUNDED = [("add", "float32"), ("add", "float16"), ("add", "float64"), ("add", "complex64")]


def function_of(op: str) -> Any:
    name, _, indexed = op.partition(" with ")
    if indexed:
        extremum = {"max": cuscan.cummax, "min": cuscan.cummin}[name]
        return lambda x, **call: extremum(x, return_indices=True, **call)
    return lambda x, **call: cuscan.scan(x, op, **call)


def drawn_call(seed: int, dtype: str) -> tuple[Array, int, dict[str, Any]]:
    """An array, which may be a view, the axis, and the keywords of a call."""
    rng = np.random.default_rng([seed, 7])
    ndim = int(rng.integers(1, 4))
    axis = int(rng.integers(ndim))
    shape = [int(n) for n in rng.integers(1, 5, ndim)]
    shape[axis] = n = int(2 ** rng.uniform(0, 11))
    wide = (*shape[:-1], 2 * shape[-1])
    x = rng.integers(0, 3, wide).astype(dtype) if dtype != "complex64" else rng.normal(size=wide).astype(dtype)
    if np.dtype(dtype).kind == "f":
        x = rng.normal(size=wide).astype(dtype)
    x = x[..., ::2] if rng.random() < 0.3 else x[..., : shape[-1]]
    call: dict[str, Any] = {name: True for name in ("reverse", "exclusive", "skipna") if rng.random() < 0.4}
    if rng.random() < 0.3:
        call["mask"] = rng.random(tuple(shape)) < 0.7
    if rng.random() < 0.3:
        call["initial"] = 1
    kind = rng.choice(["", "", "reset", "offsets", "keys"])
    count = int(rng.integers(0, 9))
    call |= {
        "reset": {"reset": rng.random(tuple(shape)) < count / n},
        "offsets": {"offsets": np.sort([0, *rng.integers(0, n + 1, count), n])},
        "keys": {"keys": rng.integers(0, 2, n).repeat(3)[:n].astype(rng.choice(["int8", "float32", "int64"]))},
    }.get(str(kind), {})
    return x, axis, call


@pytest.mark.parametrize("seed", range(60))
def test_cuts_change_nothing(seed: int) -> None:
    op, dtype = EXACT[seed % len(EXACT)]
    x, axis, call = drawn_call(seed, dtype)
    if dtype == "bool" and "initial" in call:
        call["initial"] = True
    function = function_of(op)
    *whole, behind = function(x, axis=axis, return_carry=True, **call)
    cuts = cuts_of(np.random.default_rng(seed), x.shape[axis])
    joined, carry = in_chunks(function, (x,), cuts, axis, **call)
    # In reverse, later chunks shift positions: only the first chunk has those of the whole.
    kept = 1 if "indices" in op and call.get("reverse") else len(whole)
    for one, other in zip(joined[:kept], whole[:kept], strict=True):
        np.testing.assert_array_equal(one, other)
    fields = [part if isinstance(part, tuple) else (part,) for part in (carry, behind)]
    for one, other in zip(*fields, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("seed", range(40))
def test_cuts_round_within_the_bound(seed: int) -> None:
    op, dtype = ROUNDED[seed % len(ROUNDED)]
    x, axis, call = drawn_call(seed, dtype)
    call.pop("initial", None)
    cuts = cuts_of(np.random.default_rng(seed), x.shape[axis])
    joined, _ = in_chunks(function_of(op), (x,), cuts, axis, **call)
    wide = "complex128" if dtype == "complex64" else "float64"
    whole, absolute = (cuscan.scan(each.astype(wide), axis=axis, **call) for each in (x, abs(x)))
    eps, places = np.finfo(np.float32 if dtype == "float16" else dtype).eps, x.shape[axis]
    rounding = np.finfo(dtype).eps / 2 * abs(whole) + np.finfo(dtype).smallest_subnormal
    assert (abs(joined[0] - whole) <= eps * (32 + places / 2**20) * abs(absolute) + rounding).all()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_pieces_side_by_side_are_the_whole(library: str, reverse: bool) -> None:
    """A scan of the totals of pieces gives what precedes each piece, as on the ranks of a sharded sequence."""
    rng = np.random.default_rng(3)
    x, cuts = rng.integers(-9, 9, (3, 700)), cuts_of(rng, 700)
    made = np.asarray if library == "numpy" else pytest.importorskip("torch", reason="no torch").from_numpy
    pieces = [made(np.ascontiguousarray(x[along(1, *cut, 2)])) for cut in cuts]
    totals = np.stack([np.asarray(cuscan.total(piece, reverse=reverse)) for piece in pieces], 1)
    before = cuscan.scan(totals, exclusive=True, reverse=reverse)
    parts = [cuscan.scan(piece, carry=made(before[:, i].copy()), reverse=reverse) for i, piece in enumerate(pieces)]
    np.testing.assert_array_equal(np.concatenate(parts, 1), cuscan.scan(x, reverse=reverse))


def test_a_stream_of_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    stream = torch.linspace(-1, 1, 2400).reshape(2, 1200)
    keys = torch.arange(1200) // 350
    carry, joined = None, []
    for chunk, key in zip(stream.split(500, 1), keys.split(500), strict=True):
        result, carry = cuscan.cumsum(chunk, 1, keys=key, carry=carry, return_carry=True)
        joined.append(result)
    whole, behind = cuscan.cumsum(stream, 1, keys=keys, return_carry=True)
    assert torch.allclose(torch.cat(joined, 1), whole, rtol=1e-5, atol=1e-5)
    assert [field.dtype for field in carry] == [torch.float64, torch.int64]
    assert torch.allclose(carry[0], behind[0]) and torch.equal(carry[1], behind[1])
