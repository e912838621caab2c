"""Random calls for scans of NumPy and other arrays, and a plain sequential scan that gives the expected results."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from cuscan.dtypes import DTYPES

BOOLS, SIGNED, UNSIGNED = ["bool"], ["int8", "int16", "int32", "int64"], ["uint8", "uint16", "uint32", "uint64"]
EXACT = BOOLS + SIGNED + UNSIGNED
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
ALL = EXACT + FLOATS + COMPLEX
BITWISE = ["and", "or", "xor"]
SIZES = [1, 2, 3, 5, 8, 31, 33, 70, 129, 257, 300, 1030]
MOST_ELEMENTS = 20_000

# The most roundings that an element goes through in rows of less than 32 units: at most 16 items twice, 5 doublings
# twice, 8 vectors, 8 warps, the carry and the conversion.
DEPTH = 64


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def accumulator_eps(name):
    return np.finfo(DTYPES[name].accumulator).eps


def same_bits(a, b):
    """Whether two arrays are equal bit for bit. Every NaN equals every other; its payload depends on the processor."""
    assert a.dtype == b.dtype and a.shape == b.shape
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if a.dtype.kind == "c":
        part = a.real.dtype
        a, b = a.view(part), b.view(part)
    raw = np.dtype(f"u{a.itemsize}")
    equal = a.view(raw) == b.view(raw)
    if a.dtype.kind not in "biu":
        equal |= np.isnan(a) & np.isnan(b)
    return bool(equal.all())


# ---- the oracle: one element after the other, in the widest type


def smallest(a, b):
    return np.where((b < a) | ((b != b) & (a == a)) | ((b == a) & np.signbit(b)), b, a)


def largest(a, b):
    return np.where((b > a) | ((b != b) & (a == a)) | ((b == a) & np.signbit(a)), b, a)


STEPS = {
    "add": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "min": smallest,
    "max": largest,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def wide_type(result, op):
    if op in ("min", "max"):
        return np.dtype(np.float32) if result == "bfloat16" else numpy_dtype(result)
    if result in EXACT:
        return np.dtype(np.uint64)  # modulo 2**64, so modulo the width of every integer
    return np.dtype(np.clongdouble if result in COMPLEX else np.longdouble)


def to_wide(x, result, op):
    if result == "bool":
        return (x != 0).astype(wide_type(result, op))
    if result in EXACT:
        x = x.astype(result)
    if x.dtype == ml_dtypes.bfloat16:
        x = x.astype(np.float32)
    return x.astype(wide_type(result, op))


def identity_of(result, op):
    if op in ("min", "max"):
        if result in FLOATS:
            return math.inf if op == "min" else -math.inf
        if result == "bool":
            return op == "min"
        limits = np.iinfo(result)
        return limits.max if op == "min" else limits.min
    return {"add": 0, "mul": 1, "and": 2**64 - 1, "or": 0, "xor": 0}[op]


def sequential(x, op, axis, reverse, exclusive, mask, initial, result):
    """The scan of `x` in the wide type. For a bool result, a sum is `or` and a product is `and`."""
    if result == "bool":
        op = {"add": "or", "mul": "and"}.get(op, op)
    wide = wide_type(result, op)
    x = to_wide(x, result, op)
    neutral = np.array(identity_of(result, op)).astype(wide)
    if mask is not None:
        x = np.where(mask, x, neutral)
    x = np.moveaxis(x, axis, 0)
    if reverse:
        x = x[::-1]
    out = np.empty_like(x)
    running = neutral if initial is None else to_wide(np.array(initial), result, op)
    for i in range(len(x)):
        after = x[i] if i == 0 and initial is None else STEPS[op](running, x[i])
        out[i] = running if exclusive else after
        running = after
    if result == "bool":
        out = out & np.array(1, wide) if op == "and" else out
    return np.moveaxis(out[::-1] if reverse else out, 0, axis)


def assert_close(got, x, op, result, **call):
    """`got` is exact, or within the rounding errors of any sensible order."""
    with np.errstate(all="ignore"):
        exact = sequential(x, op, result=result, **call)
    assert got.dtype == numpy_dtype(result) and got.shape == x.shape
    if result in EXACT:
        np.testing.assert_array_equal(got, exact.astype(result))
        return
    if op in ("min", "max"):
        assert same_bits(got, exact.astype(got.dtype))
        return
    if op == "add":
        call["initial"] = None if call["initial"] is None else abs(call["initial"])
        magnitude = sequential(np.abs(x), op, result=result, **call).real
        bound = accumulator_eps(result) * DEPTH * magnitude
    else:  # each factor adds a rounding of the product and its own; twice that for complex numbers
        bound = accumulator_eps(result) * 2 * (x.shape[call["axis"]] + 1) * np.abs(exact)
    limits = ml_dtypes.finfo(numpy_dtype(result))
    bound = bound + float(limits.eps) * np.abs(exact) + float(limits.smallest_subnormal)
    error = np.abs(got.astype(exact.dtype) - exact)
    assert (error <= bound).all(), f"error {error.max()}, worst ratio {(error / bound).max()}"


# ---- cases ------------------------------------------------------------


def lay_out(draw, shape, dtype):
    """An array with any strides: permuted axes, steps of either sign."""
    order = draw(st.permutations(range(len(shape))))
    steps = [draw(st.sampled_from([1, 1, 1, -1, 2, -3])) for _ in shape]
    base = np.zeros([shape[a] * abs(s) for a, s in zip(order, steps, strict=True)], dtype)
    return base[tuple(slice(None, None, s) for s in steps)].transpose(np.argsort(order))


def draw_shape(draw):
    shape, room = [], MOST_ELEMENTS
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([n for n in SIZES if n <= room]))
        shape.append(size)
        room //= size
    if draw(st.integers(0, 9)) == 0:
        shape[draw(st.integers(0, len(shape) - 1))] = 0
    return tuple(draw(st.permutations(shape)))


def numbers_for(rng, op, value, result, shape):
    """Elements whose scan overflows no float and stays in the range where casts from floats are defined."""
    if value == "bool":
        return rng.random(shape) < 0.7
    if value in EXACT:
        limits = np.iinfo(value)
        if result in EXACT:
            return rng.integers(limits.min, limits.max, shape, value, endpoint=True)
        low, high = (1, 1) if op == "mul" else (-8, 8)
        return rng.integers(max(low, limits.min), min(high, limits.max), shape, value, endpoint=True)
    if result in EXACT:
        return rng.integers(0, 100, shape).astype(value)
    size = 2 ** rng.uniform(-0.01, 0.01, shape) if op == "mul" else rng.standard_normal(shape)
    turn = np.exp(2j * np.pi * rng.random(shape)) if value in COMPLEX else rng.choice([-1.0, 1.0], shape)
    return (size * turn).astype(numpy_dtype(value))


def initial_for(rng, op, result):
    if result == "bool":
        return bool(rng.integers(2))
    if result in EXACT:
        limits = np.iinfo(result)
        return int(rng.integers(limits.min, limits.max, dtype=result, endpoint=True))
    number = float(rng.uniform(0.5, 2.0))
    return complex(number, 0.5) if result in COMPLEX else number


@st.composite
def cases(draw):
    value = draw(st.sampled_from(ALL))
    op = draw(st.sampled_from(["add", "add", "mul", "min", "max", *BITWISE]))
    results = COMPLEX if value in COMPLEX else ALL
    if op in BITWISE:
        results = [r for r in results if r in EXACT]
    elif op in ("min", "max"):
        results = [r for r in results if r not in COMPLEX]
    if not results:
        value = draw(st.sampled_from(EXACT))
        results = EXACT
    result = value if value in results and draw(st.booleans()) else draw(st.sampled_from(results))
    return value, op, result, draw_shape(draw), draw(st.integers(0, 2**32 - 1))
