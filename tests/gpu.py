"""Helpers of the GPU tests: arrays on the GPU and their twins on the CPU, scans of both, bitwise comparisons.

A twin has the same elements in the same layout, and cuscan scans it in NumPy in the same order, so the bits are equal.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="bfloat16 arrays of NumPy come from ml_dtypes")

import cuscan  # noqa: E402
from cuscan import backends, kept  # noqa: E402
from cuscan.backends import cuda, repeats  # noqa: E402
from cuscan.compile.module import load_kernel  # noqa: E402
from cuscan.order import COLUMNS, CONTIGUOUS, Order  # noqa: E402
from cuscan.planning import make_plan  # noqa: E402
from cuscan.planning.config import AnyConfig, Config, Target  # noqa: E402
from cuscan.planning.preparations import preparations  # noqa: E402
from cuscan.request import ScanRequest, make_request  # noqa: E402
from cuscan.request.call import Flags, Operands  # noqa: E402
from cuscan.request.layout import order_of  # noqa: E402

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise JAX takes most of the memory

Array = Any
View = Callable[[Any], Any]
Configs = set[AnyConfig]
Table = tuple[Callable[..., Configs], Iterable[tuple[Any, ...]]]  # see `compile_ahead`

LIBRARIES = ("cupy", "torch")
H200 = Target(90, 132)
MOST_ELEMENTS = 2**25  # in a shape that is searched for

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
    """Everything that the tests do with CuPy; `Torch` does the same with torch."""

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
        """Whether two arrays of words have the same bits; they are compared on the GPU."""
        one, other = (array.reshape(-1).view(np.int32) for array in (one, other))
        return bool((one == other).all())

    def synchronize(self) -> None:
        cupy.cuda.runtime.deviceSynchronize()

    def memory(self) -> tuple[int, int]:
        """Bytes that arrays use, and bytes that the library has allocated for them."""
        pool = cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    def capture(self, call: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
        """A graph of the work that `call` queues, and its result."""
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
        one, other = (tensor.reshape(-1).view(self.torch.int32) for tensor in (one, other))
        return bool(self.torch.equal(one, other))

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    def memory(self) -> tuple[int, int]:
        return self.torch.cuda.memory_allocated(), self.torch.cuda.memory_reserved()

    def capture(self, call: Callable[[], Any], stream: Any) -> tuple[Any, Any]:
        graph = self.torch.cuda.CUDAGraph()
        gc.collect()
        gc.disable()  # collecting a graph or a stream now would end the capture
        try:
            with self.torch.cuda.graph(graph, stream=stream):
                result = call()
        finally:
            gc.enable()
        return graph, result

    def replay(self, graph: Any, stream: Any) -> None:
        with self.torch.cuda.stream(stream):
            graph.replay()


@functools.cache
def _torch() -> Torch | str:
    """torch, or why it is not available."""
    try:
        library = Torch()
    except ImportError:
        return "torch is not installed"
    return library if library.torch.cuda.is_available() else "torch sees no GPU"


def available() -> list[str]:
    """The libraries that can create GPU arrays here."""
    return [name for name in LIBRARIES if name == "cupy" or not isinstance(_torch(), str)]


def need(name: str) -> CuPy | Torch:
    """The library of that name. Skips the test, and says what is missing, if it has no GPU arrays."""
    if name == "cupy":
        return CuPy()
    library = _torch()
    if isinstance(library, str):
        pytest.skip(library)
    return library


def hold(milliseconds: float, handle: int) -> None:
    """Keep a stream busy: later work in it waits that long."""
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
        # Copy dense memory as it is: CuPy would compile a kernel for every other order of the axes.
        axes = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
        dense = (array.view(np.uint16) if halves else array).transpose(axes)
        return cupy.asnumpy(dense).transpose([int(axis) for axis in np.argsort(axes)])
    if hasattr(array, "__array_namespace__"):
        elements = np.asarray(array)
        return elements.view(np.uint16) if halves else elements
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
    """Where two arrays of one dtype and shape agree bit for bit, as a flat array; a NaN agrees with every NaN.

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
    """Both arrays agree bit for bit (`same_bits`)."""
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


class _Asked(Exception):
    """Raised in place of the backends."""


def request_of(function: Callable[..., Any], *arguments: Any, **keywords: Any) -> ScanRequest:
    """The request that a call of a public function makes. Nothing runs, and the arrays may be on the CPU."""

    asked: list[ScanRequest] = []

    def run(flags: Flags, operands: Operands, initial: Any) -> Any:
        asked.append(make_request(flags, operands, has_initial=initial is not None))
        raise _Asked

    # A stored exception would keep the frames of all callers, with the graphs and streams in them.
    with contextlib.ExitStack() as patches, contextlib.suppress(_Asked):
        patches.enter_context(mock.patch.object(backends, "run", run))
        for table in ("launches", "calls", "latest"):  # they would run a call that is like an earlier one
            patches.enter_context(mock.patch.object(repeats, table, kept.Table()))
        function(*arguments, **keywords)
    (request,) = asked
    return request


def config_of(x: Any, op: Any = "add", *, target: Target | None = None, **call: Any) -> Config:
    """The kernel configuration of a call of `cuscan.scan`; see `request_of`."""
    return make_plan(request_of(cuscan.scan, x, op, **call), target or H200).config


def configs_of(*requests: ScanRequest) -> Configs:
    """The kernel configurations of some requests on the present GPU."""
    target = cuda._target(0)
    return {plan.config for r in requests for plan in (*preparations(r, target), make_plan(r, target))}


def compile_ahead(request: pytest.FixtureRequest, tables: dict[str, Table]) -> None:
    """Compile the kernels of the selected tests side by side; a function of a test's parameters gives its kernels.

    Each process plans and compiles a share, and finds the others' kernels in the folder. Errors are ignored here: they
    occur again in the test itself, and in that test alone.
    """
    chosen = {getattr(item, "originalname", None) for item in request.session.items}
    cases = [(configs, case) for test, (configs, table) in tables.items() if test in chosen for case in table]
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    share = cases[worker :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    arch, found = cuda._target(0).arch, Configs()
    for configs, case in share:
        with contextlib.suppress(Exception):
            found |= configs(*case)

    def compile_one(config: AnyConfig) -> None:
        with contextlib.suppress(Exception):
            load_kernel(config, arch)

    with ThreadPoolExecutor() as pool:
        list(pool.map(compile_one, found))


def way_of(config: Config) -> str:
    """The kernel family, and how its blocks share the work."""
    own = config.family == "strips"
    kept = dict(config.constants).get("Kept")
    return config.family + ("-shared" if config.grid else "-own" if own else "-kept" if kept else "")


class Way(NamedTuple):
    """A shape and an axis that lead to one kernel family, and to one way to share the work."""

    shape: tuple[int, ...]
    axis: int


# Each name begins with the result of `way_of`, but 16-byte items are always aligned. "-own": so many strips that each
# belongs to one block. "-kept": so many panels, with several tiles each. Tiles: too many rows, or too long ones,
# for clusters. "cluster in turn": more clusters than fit at once.
WAYS = {
    "rows": lambda order, columns: Way((37, order.warp_tile * 3 // 4), 1),
    "rows short": lambda order, columns: Way((1000, 3 * order.items), 1),
    "rows long": lambda order, columns: Way((1100, order.unit // 4 - 2 * order.items), 1),
    "thread_rows": lambda order, columns: Way((2000, 5 * order.items + 3), 1),
    "thread_rows long": lambda order, columns: Way((2000, 17 * order.items + 3), 1),
    "staged_rows": lambda order, columns: Way((37, order.warp_tile * 3 // 4 + 1), 1),
    "staged_rows long": lambda order, columns: Way((1100, order.unit // 4 - 1), 1),
    "cluster one": lambda order, columns: Way((5, order.warp_tile + 9), 1),
    "cluster": lambda order, columns: Way((3, 3 * order.unit + 77), 1),
    "cluster aligned": lambda order, columns: Way((2, 5 * order.unit + 64), 1),
    "cluster pairs": lambda order, columns: Way((1, 25 * order.unit + 64), 1),
    "cluster in turn": lambda order, columns: Way((5 * H200.sm_count, order.unit + 48), 1),
    "tiles-shared one": lambda order, columns: Way((5, max(order.unit // 4, order.warp_tile) + 9), 1),
    "tiles-shared short": lambda order, columns: Way((650, max(order.unit // 4, order.warp_tile) + 9), 1),
    "tiles-shared": lambda order, columns: Way((2, 32 * order.unit + 77), 1),
    "tiles-shared bulk": lambda order, columns: Way((2, 32 * order.unit + 64), 1),
    "tiles-shared rows": lambda order, columns: Way((40, 4 * order.unit + 48), 1),
    "panels one": lambda order, columns: Way((4, columns.unit // 5, 9), 1),
    "panels wide": lambda order, columns: Way((4, columns.unit // 5, 64), 1),
    "panels-shared": lambda order, columns: Way((2, 3 * columns.unit + 5, 331), 1),
    "panels-shared few": lambda order, columns: Way((2, 40 * columns.unit + 5, 3), 1),
    "panels-kept": lambda order, columns: Way((2 * H200.sm_count, columns.unit + 3, 3), 1),
    "strips-shared": lambda order, columns: Way((3, 9 * columns.unit + 8, 4), 1),
    "strips-shared pairs": lambda order, columns: Way((37 * columns.unit + 8, 2), 0),
    "strips-shared wide": lambda order, columns: Way((2, 9 * columns.unit + 8, 336), 1),
    "whole_rows-shared": lambda order, columns: Way((3, 5 * columns.unit + 5, 41), 1),
    "whole_rows-shared narrow": lambda order, columns: Way(  # parts of several units, of small elements
        (290 * columns.unit + 5, 5 * order.items + 1 if order.items > 2 else 35), 0
    ),
    "whole_rows-shared long": lambda order, columns: Way((147 * columns.unit + 5, 37), 0),
    "strips-own": lambda order, columns: Way((H200.sm_count, columns.unit + 8, 256), 1),
}


def way(name: str, dtype: str = "float32", result: str | None = None) -> Way:
    """A way of `WAYS`, for elements and results of given types, with the present orders."""

    def ask(shape: tuple[int, ...], axis: int) -> ScanRequest:
        x = np.empty(shape, numpy_dtype(dtype))
        return request_of(cuscan.scan, x, axis=axis, dtype=result or dtype)

    return way_for(name, ask)


def way_for(name: str, ask: Callable[[tuple[int, ...], int], ScanRequest]) -> Way:
    """A way of `WAYS` for the requests that `ask` makes: its own shape, or the next one that leads to it."""
    for found in _sizes_of(name, WAYS[name](order_of(ask((8,), 0)), COLUMNS)):
        if leads_to(name, make_plan(ask(*found), H200).config):
            return found
    raise AssertionError(f"no size leads to {name}")


def leads_to(name: str, config: Config) -> bool:
    """Whether a call goes the way of that name, as far as possible: not all kernels take a mask, or segments."""
    taken, wanted = way_of(config), name.split(maxsplit=1)[0]
    if wanted == "strips-own":  # panels, or strips that blocks share, take what these cannot do
        return taken in (wanted, "panels-kept", "strips-shared")
    if wanted.startswith(("panels", "tiles")) and wanted != "panels-shared":
        return taken == wanted
    return taken.endswith("-shared") or "-shared" not in wanted


def _sizes_of(name: str, way: Way) -> Iterator[Way]:
    """A way, then the same with more rows, which divide evenly among the SMs, and with other lengths."""
    lengths = {"panels": (1, 1 / 2, 1 / 4), "panels-shared": (1, 2, 4, 8), "panels-kept": (1, 2, 4)}
    wanted = name.split(maxsplit=1)[0]
    for times in lengths.get(wanted, (1,)):
        for more in (0,) if wanted in ("panels", "panels-shared") else (0, 1, 2, 4, 8, 16, 32):
            shape = [int(size * times) if axis == way.axis else size for axis, size in enumerate(way.shape)]
            shape[0] += more * H200.sm_count
            if not more or np.prod(shape) <= MOST_ELEMENTS:
                yield Way(tuple(shape), way.axis)


@contextlib.contextmanager
def small_units(warps: int = 2, vectors: int = 1) -> Iterator[None]:
    """Units of few elements on contiguous axes, so that short rows make long chains, on the GPU and in the twin."""
    smaller = {size: Order(order.items, vectors, warps) for size, order in CONTIGUOUS.items()}
    with (
        mock.patch.dict(CONTIGUOUS, smaller),
        mock.patch("cuscan.request.layout.BYTES_TO_WORDS", smaller[8]),
        mock.patch.object(repeats, "calls", kept.Table()),  # the twin's calls in other orders
    ):
        repeats.launches.clear()  # launches for other orders
        try:
            yield
        finally:
            repeats.launches.clear()


# ---- scans on both sides --------------------------------------------------------------------------------------------


def numbers(shape: tuple[int, ...], dtype: str = "float32", op: str = "add", seed: int = 0) -> np.ndarray:
    """Integers of any bits, bools of any byte, floats of both signs; their sizes vary unless `op` is "mul"."""
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
    """Scan on the GPU and in the twin. The results must agree bit for bit, and so must all memory around them.

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


@dataclass(frozen=True, eq=False)
class Seen:
    """An array argument that is a view, taken of copies of `base`, a contiguous NumPy array."""

    base: np.ndarray
    view: View


class Placement:
    """Copies of the NumPy arrays of a call, in one library: one copy of each array, wherever it occurs."""

    def __init__(self, place: Callable[[np.ndarray], Array]) -> None:
        self.place = place
        self.memory: dict[int, Array] = {}  # keyed by the identity of the array, in the order of the arguments
        self._seen: dict[int, Array] = {}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self, value))
        if isinstance(value, Seen):
            if id(value) not in self._seen:
                self._seen[id(value)] = value.view(self(value.base))
            return self._seen[id(value)]
        if isinstance(value, np.ndarray):
            if id(value) not in self.memory:
                self.memory[id(value)] = self.place(value)
            return self.memory[id(value)]
        return value


@dataclass(frozen=True, eq=False)
class Call:
    """A call of a public function. Its arrays are contiguous NumPy arrays or `Seen`, in tuples too."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    keywords: dict[str, Any] = field(default_factory=dict)

    def placed(self, placement: Placement) -> Callable[[], tuple[Array, ...]]:
        """The call on copies of its arrays; it can run any number of times."""
        arguments = placement(self.arguments)
        keywords = {key: placement(value) for key, value in self.keywords.items()}

        def run() -> tuple[Array, ...]:
            results = self.function(*arguments, **keywords)
            out = keywords.get("out")
            if out is not None:
                outs, given = _as_tuple(out), _as_tuple(results)
                assert all(one is other for one, other in zip(outs, given, strict=False))
            return _as_tuple(results)

        return run

    def request(self) -> ScanRequest:
        return request_of(self.placed(Placement(whole)))

    def expected(self, library: CuPy | Torch) -> tuple[Array, ...]:
        """The results of the twin."""
        return self.placed(Placement(library.host))()


def rows_anywhere() -> dict[str, Call]:
    """Scans down rows that begin anywhere, which blocks share as strips; tiles beside each other overlap in some."""

    def call(dtype: str, columns: int, gap: int, result: str, out_gap: int, in_place: bool, **keywords: Any) -> Call:
        def seen(base: np.ndarray, gap: int) -> Seen:
            return Seen(base, lambda memory: memory[:, gap // 2 : gap // 2 + columns])

        x = seen(numbers((2000, columns + gap), dtype), gap)
        out = x if in_place else seen(numbers((2000, columns + out_gap), result), out_gap)
        return Call(cuscan.scan, (x,), {"axis": 0, "dtype": result, "out": out, **keywords})

    found = {}
    for dtype, result, columns, gap, out_gap in (
        ("float32", "float32", 2049, 0, 0),
        ("float32", "float32", 2052, 0, 4),
        ("float32", "float32", 1001, 6, 3),
        ("float16", "float16", 3215, 0, 0),
        ("int16", "int16", 1303, 4, 3),
        ("uint8", "int64", 1027, 0, 1),
        ("bool", "int32", 771, 3, 0),
        ("float64", "float64", 2049, 3, 0),
        ("complex64", "complex64", 1025, 1, 3),
    ):
        for reverse in (False, True):
            name = f"{dtype} to {result}, {columns} columns, gaps {gap} and {out_gap}{', reverse' * reverse}"
            found[name] = call(dtype, columns, gap, result, out_gap, False, reverse=reverse, exclusive=reverse)
        if dtype == result:
            found[f"{dtype} in place, {columns} columns, gap {gap}"] = call(dtype, columns, gap, result, gap, True)
    return found


def _lacking_columns(dtype: str, shape: tuple[int, ...], before: int, behind: int, flags: str, backwards: bool) -> Call:
    """A scan along axis 1 of rows that lack so many columns at either end; flags lack as many."""

    def seen(dtype: str) -> Seen:
        wide = (*shape[:-1], before + shape[-1] + behind)
        return Seen(numbers(wide, dtype), lambda memory: memory[..., before : before + shape[-1]])

    given = {flags: seen("bool")} if flags else {}
    return Call(cuscan.scan, (seen(dtype),), {"axis": 1, "reverse": backwards, "exclusive": backwards, **given})


def _to_another_order(dtype: str, shape: tuple[int, ...], axis: int, order: tuple[int, ...], flags: str) -> Call:
    """A scan to results whose axes have this order in memory. Flags are in the order of the values."""
    base = numbers(tuple(shape[a] for a in order), dtype, seed=1)
    out = Seen(base, lambda memory: permuted(memory, np.argsort(order)))
    given = {flags: numbers(shape, "bool")} if flags else {}
    return Call(cuscan.scan, (numbers(shape, dtype),), {"axis": axis, "dtype": dtype, "out": out, **given})


# Panels whose columns are those of several rows: rows with gaps, and tiles of three axes beside the steps. Of both,
# tiles of a whole axis, tiles of a block, and chunks that blocks share.
COLUMNS_OF_ROWS: dict[str, Callable[[], Call]] = {
    f"{dtype} {shape}, {before} and {behind} more{', ' * bool(flags)}{flags}": functools.partial(
        _lacking_columns, dtype, shape, before, behind, flags, before > 0
    )
    for shape, dtype, before, behind in (
        ((9000, 5, 6, 6), "float32", 0, 1),
        ((9000, 9, 7, 2), "bfloat16", 0, 1),
        ((300, 700, 4, 7), "float16", 2, 0),
        ((300, 700, 4, 7), "float64", 1, 1),
        ((2, 70_001, 3, 5), "uint8", 0, 3),
        ((10, 9001, 8, 10), "float16", 0, 1),
    )
    for flags in ("", "mask", "reset")
} | {
    f"{dtype} {shape} along {axis} to {order}{', ' * bool(flags)}{flags}": functools.partial(
        _to_another_order, dtype, shape, axis, order, flags
    )
    for dtype, shape, axis, order, all_flags in (
        ("float32", (19, 19, 3, 900), 1, (1, 3, 2, 0), ("",)),
        ("uint8", (19, 19, 3, 900), 1, (3, 0, 1, 2), ("", "mask")),
        ("float32", (22, 4000, 2, 6), 0, (1, 3, 0, 2), ("", "mask", "reset")),
        ("float32", (600, 3, 10, 300), 0, (3, 0, 2, 1), ("", "mask", "reset")),
        ("float32", (40_001, 3, 5, 9), 0, (0, 3, 2, 1), ("", "mask", "reset")),
        ("uint8", (20_000, 2, 7, 33), 0, (2, 0, 3, 1), ("", "mask", "reset")),
    )
    for flags in all_flags
}


TURNED = {
    f"{dtype} to {result}, {shape}, gaps {gap}, {'values' if along else 'results'} along": (
        dtype,
        result,
        shape,
        gap,
        along,
    )
    for (dtype, result), shape, gap, along in itertools.product(
        (("float32", "float32"), ("float16", "float16"), ("uint8", "int64")),
        ((33, 9327, 26), (9, 6740, 7), (1, 9001, 131), (2, 9000, 128), (68, 4974, 10)),
        (0, 4),
        (False, True),
    )
}


def turned(dtype: str, result: str, shape: tuple[int, int, int], gap: int, along: bool) -> Call:
    """A scan along axis 1 of values that lie along it to results that lie across; without `along`, the other way round.

    Blocks share it as strips.
    """
    batch, steps, columns = shape

    def seen(dtype: str, along: bool) -> Seen:
        if along:
            base = numbers((batch, columns, steps + gap), dtype)
            return Seen(base, lambda memory: memory[:, :, :steps].swapaxes(1, 2))
        return Seen(numbers((batch, steps + gap, columns), dtype), lambda memory: memory[:, :steps])

    x, out = seen(dtype, along), seen(result, not along)
    return Call(cuscan.scan, (x,), {"axis": 1, "dtype": result, "out": out})


def _as_tuple(results: Any) -> tuple[Array, ...]:
    """All arrays of a result: a carry can be a tuple in it."""
    return tuple(array for part in results for array in _as_tuple(part)) if isinstance(results, tuple) else (results,)


def check_call(name: str, call: Call) -> list[np.ndarray]:
    """`check` for any public function, bit for bit. Returns the GPU's results (`values`)."""
    library = need(name)
    on_host, on_gpu = Placement(library.host), Placement(library.device)
    expected, got = call.placed(on_host)(), call.placed(on_gpu)()
    for number, (array, twin) in enumerate(zip(on_gpu.memory.values(), on_host.memory.values(), strict=True)):
        assert_same(array, twin, f"the memory of array {number}")
    assert len(got) == len(expected)
    for number, (array, twin) in enumerate(zip(got, expected, strict=True)):
        assert library.owns(array)
        assert 0 in tuple(array.shape) or _strides(array) == _strides(twin)
        assert_same(array, twin, f"result {number}")
    return [values(array) for array in got]


def _strides(array: Array) -> list[int]:
    """Strides in elements, without those of axes of size 1."""
    strides = array.stride() if hasattr(array, "stride") else [s // array.itemsize for s in array.strides]
    return [int(stride) for stride, size in zip(strides, array.shape, strict=True) if size > 1]


def free_bytes() -> int:
    """Free memory of the current GPU, after the libraries have released memory that they do not use."""
    cupy.get_default_memory_pool().free_all_blocks()
    library = _torch()
    if not isinstance(library, str):
        library.torch.cuda.empty_cache()
    return int(cupy.cuda.runtime.memGetInfo()[0])
