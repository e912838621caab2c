"""What the GPU tests share: arrays on the GPU and their twins on the CPU, scans of both, comparisons to the bit.

A twin has the same elements in the same layout, and cuscan scans it in NumPy: the same order, so the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays of NumPy come from ml_dtypes")

import cuscan  # noqa: E402
from cuscan import tuning  # noqa: E402
from cuscan.backends import cuda  # noqa: E402
from cuscan.compile.module import load_kernel  # noqa: E402
from cuscan.interop import adopt  # noqa: E402
from cuscan.order import Order  # noqa: E402
from cuscan.plan import Config, Target, make_plan  # noqa: E402
from cuscan.request import make_request  # noqa: E402

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX takes most of the memory for itself

Array = Any
View = Callable[[Any], Any]

LIBRARIES = ("cupy", "torch")
H200 = Target(90, 132)

_HOLD = r"""
extern "C" __global__ void cuscan_test_hold(long long nanoseconds) {
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while ((long long)(now - start) < nanoseconds);
}
"""


# ---- libraries ---------------------------------------------------------------------------------------


class CuPy:
    """What the tests do with CuPy; `Torch` does the same with torch."""

    name = "cupy"

    def host(self, array: np.ndarray) -> Array:
        """A copy of a NumPy array, for the twin."""
        return array.copy()

    def device(self, array: np.ndarray) -> Array:
        """A copy of a contiguous NumPy array on the current GPU."""
        return cupy.asarray(_plain(array)).view(array.dtype)

    def owns(self, array: Array) -> bool:
        return isinstance(array, cupy.ndarray)

    def stream(self) -> Any:
        """A new stream that does not wait for the default stream."""
        return cupy.cuda.Stream(non_blocking=True)

    def default_stream(self) -> Any:
        return cupy.cuda.Stream.null

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        return stream

    def handle(self, stream: Any) -> int:
        return int(stream.ptr)

    def event(self, stream: Any) -> Any:
        return stream.record()

    def is_done(self, event: Any) -> bool:
        return bool(event.done)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def equal(self, one: Array, other: Array) -> bool:
        """Whether two float32 arrays have the same bits, found on the GPU."""
        return bool((one.view(np.int32) == other.view(np.int32)).all())

    def synchronize(self) -> None:
        cupy.cuda.runtime.deviceSynchronize()

    def memory(self) -> tuple[int, int]:
        """Bytes that arrays hold, and bytes that the library holds for them."""
        pool = cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    def capture(self, call: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
        """A graph of what `call` queues, and its result."""
        with stream:
            stream.begin_capture()
            try:
                result = call()
            finally:
                graph = stream.end_capture()
        return graph, result

    def replay(self, graph: Any, stream: Any) -> None:
        graph.launch(stream)


class Torch:
    """See `CuPy`."""

    name = "torch"

    def __init__(self) -> None:
        import torch

        self.torch = torch

    def host(self, array: np.ndarray) -> Array:
        bits = array.view(np.int16) if array.dtype.name == "bfloat16" else array
        tensor = self.torch.from_numpy(bits.copy())
        return tensor.view(self.torch.bfloat16) if array.dtype.name == "bfloat16" else tensor

    def device(self, array: np.ndarray) -> Array:
        return self.host(array).to("cuda")

    def owns(self, array: Array) -> bool:
        return isinstance(array, self.torch.Tensor)

    def stream(self) -> Any:
        return self.torch.cuda.Stream()

    def default_stream(self) -> Any:
        return self.torch.cuda.default_stream()

    def on(self, stream: Any) -> contextlib.AbstractContextManager[Any]:
        return self.torch.cuda.stream(stream)

    def handle(self, stream: Any) -> int:
        return int(stream.cuda_stream)

    def event(self, stream: Any) -> Any:
        return stream.record_event()

    def is_done(self, event: Any) -> bool:
        return bool(event.query())

    def copy(self, array: Array) -> Array:
        return array.clone()

    def equal(self, one: Array, other: Array) -> bool:
        return self.torch.equal(one.view(self.torch.int32), other.view(self.torch.int32))

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def memory(self) -> tuple[int, int]:
        return self.torch.cuda.memory_allocated(), self.torch.cuda.memory_reserved()

    def capture(self, call: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=stream):
            result = call()
        return graph, result

    def replay(self, graph: Any, stream: Any) -> None:
        with self.torch.cuda.stream(stream):
            graph.replay()


@functools.cache
def _torch() -> Torch | str:
    """torch, or why there is none."""
    try:
        library = Torch()
    except ImportError:
        return "torch is not installed"
    return library if library.torch.cuda.is_available() else "torch sees no GPU"


def available() -> list[str]:
    """The libraries that have GPU arrays here."""
    return [name for name in LIBRARIES if name == "cupy" or not isinstance(_torch(), str)]


def need(name: str) -> CuPy | Torch:
    """The library of that name; a skip that says what is missing where it has no GPU arrays."""
    if name == "cupy":
        return CuPy()
    library = _torch()
    if isinstance(library, str):
        pytest.skip(library)
    return library


def hold(milliseconds: float, handle: int) -> None:
    """Keep a stream busy: what is queued behind waits that long."""
    _hold_kernel()((1,), (1,), (int(milliseconds * 1e6),), stream=SimpleNamespace(ptr=handle))


@functools.cache
def _hold_kernel() -> Any:
    return cupy.RawKernel(_HOLD, "cuscan_test_hold")


# ---- elements ------------------------------------------------------------------------------------------


def numpy_dtype(name: str) -> np.dtype:
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def dtype_name(array: Array) -> str:
    name = getattr(array.dtype, "name", None) or str(array.dtype)
    return name.removeprefix("torch.")


def _plain(array: np.ndarray) -> np.ndarray:
    """The same bytes, in a dtype that every library copies as they are."""
    kinds = {"bool": np.uint8, "bfloat16": np.uint16}
    return array.view(kinds[array.dtype.name]) if array.dtype.name in kinds else array


def to_numpy(array: Array) -> np.ndarray:
    """The elements of any array in NumPy; bfloat16 as its bits (uint16)."""
    halves = dtype_name(array) == "bfloat16"
    if isinstance(array, np.ndarray | cupy.ndarray):
        # Dense memory is copied as it is: CuPy would compile a kernel for every other order of the axes.
        axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        dense = (array.view(np.uint16) if halves else array).transpose(axes)
        return cupy.asnumpy(dense).transpose([int(axis) for axis in np.argsort(axes)])
    tensor = array.detach().resolve_conj().resolve_neg()
    if halves:
        import torch

        return tensor.view(torch.int16).cpu().numpy().view(np.uint16)
    return tensor.cpu().numpy()


def values(array: Array) -> np.ndarray:
    """`to_numpy`, with bfloat16 as the dtype of ml_dtypes."""
    elements = to_numpy(array)
    return elements.view(ml_dtypes.bfloat16) if dtype_name(array) == "bfloat16" else elements


def same_bits(one: Array, other: Array) -> np.ndarray:
    """Where two arrays of one dtype and shape agree to the bit, flat; a NaN agrees with every NaN.

    Complex numbers count as two elements.
    """
    name = dtype_name(one)
    assert name == dtype_name(other), f"{name} and {dtype_name(other)}"
    assert tuple(one.shape) == tuple(other.shape), f"{one.shape} and {other.shape}"
    part = {"complex64": "float32", "complex128": "float64"}.get(name)
    flat = [np.ascontiguousarray(to_numpy(array)).reshape(-1) for array in (one, other)]
    first, second = (array.view(part) if part else array for array in flat)
    raw = np.dtype(f"u{first.itemsize}")
    same = first.view(raw) == second.view(raw)
    if name == "bfloat16":
        same |= ((first & 0x7FFF) > 0x7F80) & ((second & 0x7FFF) > 0x7F80)
    elif first.dtype.kind == "f":
        same |= (first != first) & (second != second)
    return same


def assert_same(got: Array, expected: Array, what: str = "the result") -> None:
    """Both arrays agree to the bit (`same_bits`)."""
    same = same_bits(got, expected)
    if not same.all():
        first = int(np.argmin(same))
        pair = [np.ascontiguousarray(values(array)).reshape(-1) for array in (got, expected)]
        place = first * pair[0].size // same.size
        raise AssertionError(
            f"{what}: {np.count_nonzero(~same)} of {same.size} differ, the first is number {first}: "
            f"{pair[0][place]!r}, not {pair[1][place]!r}"
        )


# ---- views ----------------------------------------------------------------------------------------------


def whole(base: Array) -> Array:
    return base


def permuted(array: Array, axes: Any) -> Array:
    axes = tuple(int(axis) for axis in axes)
    return array.permute(axes) if hasattr(array, "permute") else array.transpose(axes)


def broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    if hasattr(array, "expand"):
        return array.expand(shape)
    return (np if isinstance(array, np.ndarray) else cupy).broadcast_to(array, shape)


# ---- plans ----------------------------------------------------------------------------------------------


def config_of(x: Array, op: Any = "add", *, target: Target = H200, **call: Any) -> Config:
    """What a call of `cuscan.scan` is compiled to. Nothing runs, and the arrays may be on the CPU."""
    arrays = {name: call.pop(name, None) for name in ("mask", "out")}
    initial = call.pop("initial", None)
    keywords = {"axis": -1, "reverse": False, "exclusive": False, "dtype": None, **call}
    views = {name: None if array is None else adopt(array, name) for name, array in arrays.items()}
    request = make_request(op=op, value=adopt(x, "x"), has_initial=initial is not None, **views, **keywords)
    return make_plan(request, target).config


def compile_ahead(request: pytest.FixtureRequest, calls: dict[str, Callable[[], Iterable[tuple[Any, ...]]]]) -> None:
    """Compile the kernels of the tests that were chosen side by side, by test: arguments of `config_of`."""
    chosen = {getattr(item, "originalname", None) for item in request.session.items}
    target = cuda._target(0)
    configs = {
        config_of(x, op, target=target, **call) for test in chosen & calls.keys() for x, op, call in calls[test]()
    }
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda config: load_kernel(config, target.arch), configs))


def way_of(config: Config) -> str:
    """The kernel family, and how its blocks share the work out."""
    return config.family + ("-shared" if config.grid else "-own" if config.levels else "")


class Way(NamedTuple):
    """A shape and an axis that lead to one kernel family, and to one way to share the work out."""

    shape: tuple[int, ...]
    axis: int


# Each begins with what `way_of` says of it. Rows of "-own" are so many that each is one block's own.
WAYS = {
    "rows": lambda order, columns: Way((37, order.warp_tile * 3 // 4 + 1), 1),
    "rows short": lambda order, columns: Way((1000, 7), 1),
    "tiles one": lambda order, columns: Way((5, order.warp_tile + 9), 1),
    "tiles-shared": lambda order, columns: Way((3, 3 * order.unit + 77), 1),
    "tiles-shared bulk": lambda order, columns: Way((2, 3 * order.unit + 64), 1),
    "tiles-own": lambda order, columns: Way((H200.sm_count, order.unit + 48), 1),
    "columns one": lambda order, columns: Way((4, columns.unit // 5, 9), 1),
    "columns wide": lambda order, columns: Way((4, columns.unit // 5, 64), 1),
    "columns-shared": lambda order, columns: Way((2, 3 * columns.unit + 5, 41), 1),
    "columns-shared wide": lambda order, columns: Way((3 * columns.unit + 5, 64), 0),
    "columns-own": lambda order, columns: Way((H200.sm_count, columns.unit + 3, 3), 1),
    "narrow-shared": lambda order, columns: Way((3, 9 * columns.unit + 5, 3), 1),
    "narrow-shared bulk": lambda order, columns: Way((37 * columns.unit + 8, 2), 0),
    "narrow-shared wide": lambda order, columns: Way((2, 9 * columns.unit + 8, 16), 1),
}


def way(name: str, dtype: str = "float32", result: str | None = None) -> Way:
    """A way of `WAYS`, for elements and results of a type in the orders that are in force."""
    result = result or dtype
    order = tuning.CONTIGUOUS[max(numpy_dtype(name).itemsize for name in (dtype, result))]
    found = WAYS[name](order, tuning.COLUMNS)
    for _ in range(40):  # times the SMs, so that the rows divide evenly among them
        x = np.empty(found.shape, numpy_dtype(dtype))
        if "-own" not in name or way_of(config_of(x, axis=found.axis, dtype=result)).endswith("-own"):
            return found
        found = Way((found.shape[0] + H200.sm_count, *found.shape[1:]), found.axis)
    raise AssertionError("no number of rows is enough")


@contextlib.contextmanager
def small_units(warps: int = 2, vectors: int = 1) -> Iterator[None]:
    """Units of few elements on contiguous axes, so that short rows make long chains, on the GPU and in the twin."""
    smaller = {size: Order(order.items, vectors, warps) for size, order in tuning.CONTIGUOUS.items()}
    with mock.patch.dict(tuning.CONTIGUOUS, smaller):
        cuda._launches.clear()  # made for other orders
        try:
            yield
        finally:
            cuda._launches.clear()


# ---- scans of both ---------------------------------------------------------------------------------------


def numbers(shape: tuple[int, ...], dtype: str = "float32", op: str = "add", seed: int = 0) -> np.ndarray:
    """All bits of integers, all bytes of bools; floats of both signs, and of any size where products stay finite."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.choice(np.array([0, 0, 1, 2, 255], np.uint8), shape).view(bool)
    if dtype.startswith(("int", "uint")):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    x = rng.choice([-1.0, 1.0], shape) * (2 ** rng.uniform(-0.01, 0.01, shape) if op == "mul" else 1)
    x *= 1 if op == "mul" else 10.0 ** rng.uniform(-2, 1, shape)
    return (x * np.exp(1j * rng.random(shape)) if dtype.startswith("complex") else x).astype(numpy_dtype(dtype))


def check(
    name: str,
    base: np.ndarray,
    op: Any = "add",
    *,
    view: View = whole,
    mask: np.ndarray | None = None,
    mask_view: View = whole,
    out: np.ndarray | None = None,
    out_view: View = whole,
    in_place: bool = False,
    **call: Any,
) -> np.ndarray:
    """Scan on the GPU and in the twin. What comes out must agree to the bit, and so must all memory around it.

    `base`, `mask` and `out` are contiguous NumPy arrays; the arrays of the call are views of copies of them.
    Returns the GPU's result (`values`).
    """
    library = need(name)

    def scan(place: Callable[[np.ndarray], Array]) -> tuple[Array, Array, dict[str, Array]]:
        memory = {key: place(b) for key, b in (("x", base), ("mask", mask), ("out", out)) if b is not None}
        x = view(memory["x"])
        arrays: dict[str, Array] = {}
        if mask is not None:
            arrays["mask"] = mask_view(memory["mask"])
        if out is not None:
            arrays["out"] = out_view(memory["out"])
        elif in_place:
            arrays["out"] = x
        result = cuscan.scan(x, op, **arrays, **call)
        assert "out" not in arrays or result is arrays["out"]
        return x, result, memory

    _, expected, expected_memory = scan(library.host)
    x, got, memory = scan(library.device)
    for key, array in memory.items():
        assert_same(array, expected_memory[key], f"the memory of {key}")
    if out is not None or in_place:
        return out_view(values(memory["out"])) if out is not None else view(values(memory["x"]))
    assert library.owns(got) and got.device == x.device
    assert 0 in tuple(got.shape) or _strides(got) == _strides(expected)
    assert_same(got, expected)
    return values(got)


def _strides(array: Array) -> list[int]:
    """In elements; axes of size 1 have no say."""
    strides = array.stride() if hasattr(array, "stride") else [s // array.itemsize for s in array.strides]
    return [int(stride) for stride, size in zip(strides, array.shape, strict=True) if size > 1]


def free_bytes() -> int:
    """Free memory of the current GPU, once the libraries have given back what they do not use."""
    cupy.get_default_memory_pool().free_all_blocks()
    library = _torch()
    if not isinstance(library, str):
        library.torch.cuda.empty_cache()
    return int(cupy.cuda.runtime.memGetInfo()[0])
