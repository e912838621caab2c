"""The kernels without a GPU: the real device headers, compiled by g++ against a simulated `target.cuh`.

`simulate` takes the way of `cuscan.scan` down to the launch (request, plan, source), runs the kernel's threads under a
random scheduler (runtime.hpp), and watches the memory around every array. `prepare` stops before the launch, so that
many kernels can be compiled at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from cuscan import tuning
from cuscan.call import CARRY, SEGMENTS, Flags, Operands
from cuscan.compile.source import entry_name, headers, make_source
from cuscan.config import HEADER_BYTES, Config, ScanPlan, StartsConfig, Target
from cuscan.initial import initial_argument
from cuscan.interop.numpy import LIBRARY, numpy_dtype
from cuscan.operators import Monoid
from cuscan.order import Order
from cuscan.plan import make_plan
from cuscan.request import ScanRequest, make_request
from cuscan.segment_starts import StartsPlan, plan_starts
from cuscan.specs import ALIGNMENT, ArraySpec

Array = np.ndarray[Any, Any]
Kernel = Callable[..., "bytes | None"]  # returns what went wrong

HAS_COMPILER = shutil.which("g++") is not None
SMALL_GPU = Target(arch=90, sm_count=4, cluster=0)
CANARY = 0xC5
POISON = 0xA5

HERE = Path(__file__).resolve().parent
_MARGIN = 256  # bytes of canaries before and after an array
_HEADER_WORDS, _EPOCH = HEADER_BYTES // 4, 1  # 32-bit words of struct Workspace, and which of them is the epoch

# Fused multiply-adds would change bits. The pattern is what a kernel finds in registers that it has not set.
_FLAGS = ["-O1", "-std=c++17", "-fPIC", "-w", "-U_FORTIFY_SOURCE"]
_FLAGS += ["-ffp-contract=off", "-ftrivial-auto-var-init=pattern"]

_LAUNCHER = """
extern "C" const char* launch(const simulator::Schedule* schedule, unsigned blocks, int threads, char* const* arrays,
                              cuscan::Workspace* workspace, const void* initial, const void* geometry) {{
    cuscan::Elements<cuscan::Config>::Initial number;
    cuscan::Geometry<cuscan::Config> words;
    memcpy(&number, initial, sizeof(number));
    memcpy(&words, geometry, sizeof(words));
    return simulator::launch(*schedule, blocks, threads, {cluster},
                             [&] {{ {entry}({arrays}, workspace, number, words); }});
}}
"""

_STARTS_LAUNCHER = """
extern "C" const char* launch(const simulator::Schedule* schedule, unsigned blocks, int threads, const char* offsets,
                              unsigned* bits, const void* words) {{
    cuscan::Segmentation segmentation;
    memcpy(&segmentation, words, sizeof(segmentation));
    return simulator::launch(*schedule, blocks, threads, 1, [&] {{ {entry}(offsets, bits, segmentation); }});
}}
"""


def launcher(config: Config | StartsConfig) -> str:
    """C++ that launches a configuration's kernel, a scan's with its arrays as a table of addresses."""
    if isinstance(config, StartsConfig):
        return _STARTS_LAUNCHER.format(entry=entry_name(config))
    places = [(f"arrays[{i}]", port) for i, port in enumerate(config.ports) if port.present]
    arrays = ", ".join(f"*(const cuscan::{port.type}*){at}" if port.by_value else at for at, port in places)
    return _LAUNCHER.format(entry=entry_name(config), cluster=config.cluster, arrays=arrays)


class SimulationError(AssertionError):
    """A kernel hung, misused a collective, or wrote where it must not."""


class Span(ctypes.Structure):
    """The addresses of an array, from and to."""

    _fields_ = (("first", ctypes.c_uint64), ("end", ctypes.c_uint64))


class Schedule(ctypes.Structure):
    """How a launch is scheduled: `Schedule` in runtime.hpp, where the fields are explained."""

    _fields_ = (
        ("seed", ctypes.c_uint64),
        ("patience", ctypes.c_uint64),
        ("resident", ctypes.c_uint32),
        ("shuffled", ctypes.c_uint32),
        ("stall_odds", ctypes.c_uint32),
        ("stall_turns", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint32),
        ("hold_from", ctypes.c_uint64),
        ("hold_to", ctypes.c_uint64),
        ("arrays", ctypes.POINTER(Span)),
        ("array_count", ctypes.c_uint32),
    )

    @classmethod
    def of(cls, seed: int, workspace: Memory, hold: tuple[int, int] | None = None, **chosen: int) -> Schedule:
        """The schedule of a seed: what is not `chosen` is drawn.

        `hold` are the tile-state words, from and to, whose writers are held up; by default a random eighth of all.
        """
        draw = random.Random(seed)
        words = max(workspace.array.size - _HEADER_WORDS, 0) // 2
        first = draw.randrange(words + 1)
        first, last = hold or (first, first + words // 8)
        start = workspace.array.ctypes.data + 4 * _HEADER_WORDS
        drawn = {
            "seed": seed,
            "patience": 200_000,
            "resident": draw.choice((1, 2, 3, 8, 24)),
            "shuffled": draw.randrange(2),
            "stall_odds": draw.choice((0, 20, 100, 500)),
            "stall_turns": draw.choice((20, 300, 3000)),
            "hold_from": start + 8 * first,
            "hold_to": start + 8 * last,
        }
        return cls(**{**drawn, **chosen})


# ---- device code ---------------------------------------------------------------------------------


class DeviceCode:
    """A copy of the device headers on the simulated target, and the kernels compiled from it."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._kernels: dict[tuple[Config | StartsConfig, int], Kernel] = {}
        self._compiling = threading.Lock()  # calls of several threads may want the same kernel
        self._folder = tempfile.TemporaryDirectory(prefix="cuscan-simulator-")
        for name, text in texts.items():
            path = self._path(name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    def broken(self, header: str, old: str, new: str) -> DeviceCode:
        """A copy with `new` in the place of `old`, which must be there exactly once."""
        found = self._texts[header].count(old)
        assert found == 1, f"{old!r} is {found} times in {header}"
        return DeviceCode({**self._texts, header: self._texts[header].replace(old, new)})

    def kernel(self, config: Config | StartsConfig, arch: int) -> Kernel:
        """The launcher of a configuration on a GPU architecture."""
        key = config, arch
        with self._compiling:
            if key not in self._kernels:
                self._kernels[key] = self._compile(*key)
            return self._kernels[key]

    def build(self, simulations: Iterable[Simulation]) -> None:
        """Compile many kernels, two at a time, from headers that are compiled first."""
        plans = {(plan, s.arch) for s in simulations for plan in (s.starts, s.plan) if plan}
        with self._compiling:
            keys = {(plan.config, arch) for plan, arch in plans} - self._kernels.keys()
            _runtime()
            for arch in {arch for _, arch in keys}:
                self._precompile(arch)
            with ThreadPoolExecutor(2) as pool:
                self._kernels.update(zip(keys, pool.map(lambda key: self._compile(*key), keys), strict=True))

    def _path(self, name: str) -> Path:
        return Path(self._folder.name, name)

    def _prelude(self, arch: int) -> Path:
        """A header that includes all kernels; the compiler takes its precompiled form if there is one."""
        prelude = self._path(f"prelude_{arch}.hpp")
        if not prelude.exists():
            prelude.write_text("".join(f'#include "{name}"\n' for name in self._texts if name.startswith("kernels/")))
        return prelude

    def _precompile(self, arch: int) -> None:
        prelude = self._prelude(arch)
        _compile("-x", "c++-header", f"-DSIMULATED_ARCH={arch}", prelude, "-o", prelude.with_suffix(".hpp.gch"))

    def _compile(self, config: Config | StartsConfig, arch: int) -> Kernel:
        text = make_source(config) + launcher(config)
        source = self._path(hashlib.sha256(f"{arch} {text}".encode()).hexdigest()[:16] + ".cpp")
        source.write_text(text)
        library = source.with_suffix(".so")
        include = ("-include", self._prelude(arch))
        _compile("-shared", f"-DSIMULATED_ARCH={arch}", *include, source, _runtime(), "-o", library)
        launch = ctypes.CDLL(str(library)).launch
        launch.restype = ctypes.c_char_p
        return launch


@functools.cache
def _runtime() -> Path:
    """The compiled runtime.cpp, which all kernels link to."""
    library = CODE._path("runtime.so")
    _compile("-shared", HERE / "runtime.cpp", "-o", library)
    return library


def _compile(*arguments: str | Path) -> None:
    done = subprocess.run(["g++", *_FLAGS, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


HEADERS = {**headers(), **{name: (HERE / name).read_text() for name in ("target.cuh", "runtime.hpp")}}
CODE = DeviceCode(HEADERS)


# ---- memory --------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """An array in memory of its own. All bytes that are no elements are canaries."""

    raw: Array
    array: Array

    @classmethod
    def empty(cls, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any, address: int = 0) -> Memory:
        """Room for an array: strides in bytes, the address modulo `ALIGNMENT`."""
        reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        before = -sum(r for r in reach if r < 0)
        span = before + sum(r for r in reach if r > 0) + np.dtype(dtype).itemsize
        raw = np.full(span + 2 * _MARGIN + ALIGNMENT, CANARY, np.uint8)
        first = _MARGIN + before
        first += (address - raw.ctypes.data - first) % ALIGNMENT
        return cls(raw, np.ndarray(shape, dtype, raw, first, strides))

    @classmethod
    def like(cls, array: Array) -> Memory:
        """A copy of an array, laid out as it is."""
        memory = cls.empty(array.shape, array.strides, array.dtype, array.ctypes.data)
        memory.array[...] = array
        return memory

    def check(self, name: str, before: Array, *, written: bool) -> None:
        """Nothing but the elements has changed since `before`; neither have they, unless they were `written`."""
        changed = self.raw != before
        if written:
            element = np.dtype(f"V{self.array.itemsize}")
            elements = np.ndarray(self.array.shape, element, changed, self._offset(), self.array.strides)
            elements[...] = np.zeros((), element)
        if changed.any():
            first = int(np.argmax(changed)) - self._offset()
            raise SimulationError(f"{name}: byte {first} from its first element was overwritten")

    @property
    def span(self) -> Span:
        """From the lowest address of an element to the end of the highest."""
        reach = [(n - 1) * stride for n, stride in zip(self.array.shape, self.array.strides, strict=True)]
        first, end = (self.array.ctypes.data + n for n in (0, self.array.itemsize))
        return Span(first + sum(r for r in reach if r < 0), end + sum(r for r in reach if r > 0))

    def _offset(self) -> int:
        return int(self.array.ctypes.data - self.raw.ctypes.data)


def new_workspace(nbytes: int, *, epoch: int = 0) -> Memory:
    """A workspace that has seen `epoch` launches."""
    workspace = Memory.empty((nbytes // 4,), (4,), np.uint32)
    workspace.array[...] = 0
    workspace.array[_EPOCH : _EPOCH + 1] = epoch
    return workspace


# ---- simulation ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulation:
    """A call of `cuscan.scan`, planned; `run` it as often as you like.

    `arrays` are those that are read, or None, in the order of the kernel's arguments without those written. The
    memory of value number `in_place` is also the first result's.
    """

    request: ScanRequest
    plan: ScanPlan
    starts: StartsPlan | None
    arch: int
    arrays: tuple[Array | None, ...]
    initial: Array
    in_place: int | None

    def run(self, seed: int = 0, **chosen: Any) -> Any:
        """The result of the kernel; a tuple if there are several. See `run_all`."""
        results = self.run_all(seed, **chosen)
        return results if len(results) > 1 else results[0]

    def run_all(
        self,
        seed: int = 0,
        *,
        launches: int = 1,
        workspace: Memory | None = None,
        code: DeviceCode | None = None,
        **chosen: Any,
    ) -> tuple[Array, ...]:
        """The results of the kernel, of `launches` launches one after the other in one workspace.

        `chosen` goes to `Schedule.of`. Raises `SimulationError` for what a GPU would answer with a hang, or not at all.
        """
        if workspace is None:
            workspace = new_workspace(self.plan.workspace_bytes)
        code = code or CODE
        kernel = code.kernel(self.plan.config, self.arch)
        shared = self.plan.config.shared_bytes
        schedules = [Schedule.of(seed + i, workspace, shared_bytes=shared, **chosen) for i in range(launches)]
        launched = [self._launch(kernel, workspace, schedule, self._bits(code, seed)) for schedule in schedules]
        first = [result.tobytes() for result in launched[0]]
        if any([result.tobytes() for result in results] != first for results in launched):
            raise SimulationError("two launches gave different bits")
        return launched[0]

    def _bits(self, code: DeviceCode, seed: int) -> Memory | None:
        """Where segments start, if offsets give it."""
        if self.starts is None:
            return None
        offsets = self.arrays[self._segments]
        assert offsets is not None
        return find_starts(self.starts, Memory.like(offsets), self.arch, seed, code)

    def _launch(self, kernel: Kernel, workspace: Memory, schedule: Schedule, bits: Memory | None) -> tuple[Array, ...]:
        plan, count = self.plan, len(self.request.values)
        read = [None if array is None else Memory.like(array) for array in self.arrays]
        if bits is not None:
            read[self._segments] = bits  # in the place of the offsets
        results = [None if self.request.only_carry else _room_for(spec) for spec in self.request.results]
        if self.in_place is not None:
            shared = read[self.in_place]
            assert shared is not None
            results[0] = shared
        last = None if self.request.last is None else _room_for(self.request.last)
        carry_out = [_room_for(spec) for spec in self.request.carry_out]
        carried = count + 3
        memories = [*read[:count], *results, *read[count:carried], last, *read[carried:], *carry_out]
        written = [id(memory) for memory in (*results, last, *carry_out, workspace)]
        before = [(memory, memory.raw.copy()) for memory in (*memories, workspace) if memory is not None]
        spans = [memory.span for memory in memories if memory is not None]
        schedule.arrays, schedule.array_count = (Span * len(spans))(*spans), len(spans)
        addresses = [_pointer(memory, offset) for memory, offset in zip(memories, plan.offsets, strict=True)]
        message = kernel(
            ctypes.byref(schedule),
            plan.grid,
            plan.config.block,
            (ctypes.c_void_p * len(addresses))(*addresses),
            _pointer(workspace),
            self.initial.tobytes(),
            np.array(plan.geometry, np.int64).tobytes(),
        )
        if message is not None:
            raise SimulationError(message.decode())
        for number, (memory, was) in enumerate(before):
            memory.check(f"array {number}", was, written=id(memory) in written)
        given = [result.array for result in results if result is not None]
        behind = [memory for memory in (last, *carry_out) if memory is not None]
        return (*given, *(memory.array.squeeze(self.request.axis) for memory in behind))

    @property
    def _segments(self) -> int:
        """The number of the array that says where segments start."""
        return len(self.request.values) + 1


def find_starts(plan: StartsPlan, offsets: Memory, arch: int, seed: int, code: DeviceCode = CODE) -> Memory:
    """The bits that the kernel for them makes of offsets."""
    bits = Memory.empty((plan.nbytes // 4,), (4,), np.uint32)
    before = [(memory, memory.raw.copy()) for memory in (offsets, bits)]
    message = code.kernel(plan.config, arch)(
        ctypes.byref(Schedule.of(seed, new_workspace(0), shared_bytes=plan.config.shared_bytes)),
        plan.grid,
        plan.config.block,
        _pointer(offsets),
        _pointer(bits),
        np.array(plan.words, np.int64).tobytes(),
    )
    if message is not None:
        raise SimulationError(message.decode())
    for name, (memory, was) in zip(("offsets", "bits"), before, strict=True):
        memory.check(name, was, written=memory is bits)
    return bits


def _room_for(spec: ArraySpec) -> Memory:
    size = spec.dtype.itemsize
    memory = Memory.empty(spec.shape, tuple(s * size for s in spec.strides), numpy_dtype(spec.dtype), spec.address)
    memory.array.view()[...] = np.frombuffer(bytes([POISON] * size), memory.array.dtype)
    return memory


def _pointer(memory: Memory | None, offset: int = 0) -> ctypes.c_void_p:
    if memory is None:
        return ctypes.c_void_p(None)
    return ctypes.c_void_p(memory.array.ctypes.data + offset)


def prepare(
    value: Array | tuple[Array, ...],
    op: str | Monoid = "add",
    *,
    mask: Array | None = None,
    initial: Any = None,
    reset: Array | None = None,
    offsets: Array | None = None,
    keys: Array | None = None,
    carry: Array | tuple[Array, ...] = (),
    out: Array | None = None,
    target: Target = SMALL_GPU,
    **flags: Any,
) -> Simulation:
    """Plan a call of `cuscan.scan` on NumPy arrays, for a small GPU. `out` says how the result is laid out.

    With `out=value`, or one of the values, the scan works in place, on a copy; no argument is ever written. An array as
    `initial` is that of a linear recurrence; `flags` are those of `Flags`.
    """
    values = value if isinstance(value, tuple) else (value,)
    row_initial = initial if isinstance(initial, np.ndarray) else None
    number = None if row_initial is not None else initial
    beside = {"mask": mask, "reset": reset, "offsets": offsets, "keys": keys, "initial": row_initial}
    fields = carry if isinstance(carry, tuple) else (carry,)
    beside |= dict(zip(CARRY[1:], fields, strict=False))
    given = {name: array for name, array in beside.items() if array is not None}
    operands = Operands(
        tuple(LIBRARY.adopt(array, "x") for array in (*values, *given.values())),
        ("x",) * len(values) + tuple(given),
        None if out is None else (LIBRARY.adopt(out, "out"),),
    )
    request = make_request(Flags(op, **flags), operands, has_initial=number is not None)
    boundaries = next((given[name] for name in SEGMENTS if name in given), None)
    arrays = (*values, mask, boundaries, row_initial, *fields)
    beside_specs = (request.mask, request.segments and request.segments.array, request.row_initial)
    specs = (*request.values, *beside_specs, *request.carry_in)
    seen = tuple(None if s is None or a is None else _as_seen(a, s) for a, s in zip(arrays, specs, strict=True))
    in_place = next((i for i, array in enumerate(values) if array is out), None)
    return Simulation(
        request,
        make_plan(request, target),
        plan_starts(request, target),
        target.arch,
        seen,
        initial_argument(request, number),
        in_place,
    )


def _as_seen(array: Array, spec: ArraySpec) -> Array:
    """An array as the request sees it, broadcast."""
    return np.lib.stride_tricks.as_strided(array, spec.shape, tuple(s * array.itemsize for s in spec.strides))


def simulate(value: Any, op: str | Monoid = "add", *, seed: int = 0, launches: int = 1, **call: Any) -> Any:
    """`cuscan.scan` on NumPy arrays, by the kernels; see `prepare` and `Simulation.run`."""
    return prepare(value, op, **call).run(seed, launches=launches)


def assert_same(result: Array, expected: Array) -> None:
    """All bits agree, but those of a NaN."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    part = {"complex64": np.float32, "complex128": np.float64}.get(result.dtype.name, result.dtype)
    one, other = (np.ascontiguousarray(array).reshape(-1).view(part) for array in (result, expected))
    bits = np.dtype(f"u{one.itemsize}")
    same = (one.view(bits) == other.view(bits)) | ((one != one) & (other != other))
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} differ, the first is number {int(np.argmin(same))}"


@contextlib.contextmanager
def small_units(warps: int = 2, vectors: int = 2) -> Iterator[None]:
    """Smaller units on contiguous axes, so that few elements make a long chain."""
    smaller = {size: Order(order.items, vectors, warps) for size, order in tuning.CONTIGUOUS.items()}
    with mock.patch.dict(tuning.CONTIGUOUS, smaller), mock.patch("cuscan.plan.BYTES_TO_WORDS", smaller[8]):
        yield
