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
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from cuscan import plan, tuning
from cuscan.compile.source import entry_name, headers, make_source
from cuscan.dtypes import DTYPES
from cuscan.interop.numpy import LIBRARY, numpy_dtype
from cuscan.operators import Operator
from cuscan.order import Order
from cuscan.plan import Config, ScanPlan, Target, make_plan
from cuscan.request import ALIGNMENT, ScanRequest, check_initial, make_request

Array = np.ndarray[Any, Any]
Kernel = Callable[..., "bytes | None"]  # returns what went wrong

HAS_COMPILER = shutil.which("g++") is not None
SMALL_GPU = Target(arch=90, sm_count=4)
NARROW_ELEMENTS = 128  # of a warp, with small units: a tile is four units of one column, or one of four
CANARY = 0xC5
POISON = 0xA5

HERE = Path(__file__).resolve().parent
_MARGIN = 256  # bytes of canaries before and after an array
_HEADER_WORDS, _EPOCH = 4, 2  # 32-bit words of struct Workspace, and which of them is the epoch

# Fused multiply-adds would change bits. The pattern is what a kernel finds in registers that it has not set.
_FLAGS = ["-O1", "-std=c++17", "-fPIC", "-w", "-U_FORTIFY_SOURCE"]
_FLAGS += ["-ffp-contract=off", "-ftrivial-auto-var-init=pattern"]

_LAUNCHER = """
extern "C" const char* launch(const simulator::Schedule* schedule, unsigned blocks, int threads,
                              const cuscan::Config::Value* value, cuscan::Config::Result* result,
                              const cuscan::boolean* mask, cuscan::Workspace* workspace, const void* initial,
                              const void* geometry) {{
    cuscan::Config::Carry carry;
    cuscan::Geometry<cuscan::Config::kBatchDims> words;
    memcpy(&carry, initial, sizeof(carry));
    memcpy(&words, geometry, sizeof(words));
    return simulator::launch(*schedule, blocks, threads,
                             [&] {{ {entry}(value, result, mask, workspace, carry, words); }});
}}
"""


class SimulationError(AssertionError):
    """A kernel hung, misused a collective, or wrote where it must not."""


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
        self._kernels: dict[tuple[Config, int], Kernel] = {}
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

    def kernel(self, config: Config, arch: int) -> Kernel:
        """The launcher of a configuration on a GPU architecture."""
        key = config, arch
        if key not in self._kernels:
            self._kernels[key] = self._compile(make_source(config) + _LAUNCHER.format(entry=entry_name(config)), arch)
        return self._kernels[key]

    def build(self, simulations: Iterable[Simulation]) -> None:
        """Compile many kernels, two at a time, from headers that are compiled first."""
        keys = {(s.plan.config, s.arch) for s in simulations} - self._kernels.keys()
        _runtime()
        for arch in {arch for _, arch in keys}:
            self._precompile(arch)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda key: self.kernel(*key), keys))

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

    def _compile(self, text: str, arch: int) -> Kernel:
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
    """A call of `cuscan.scan`, planned; `run` it as often as you like."""

    request: ScanRequest
    plan: ScanPlan
    arch: int
    value: Array
    mask: Array | None
    initial: Array
    out: Array | None

    def run(
        self,
        seed: int = 0,
        *,
        launches: int = 1,
        workspace: Memory | None = None,
        code: DeviceCode | None = None,
        **chosen: Any,
    ) -> Array:
        """The result of the kernel, of `launches` launches one after the other in one workspace.

        `chosen` goes to `Schedule.of`. Raises `SimulationError` for what a GPU would answer with a hang, or not at all.
        """
        if workspace is None:
            workspace = new_workspace(self.plan.workspace_bytes)
        kernel = (code or CODE).kernel(self.plan.config, self.arch)
        shared = self.plan.config.shared_bytes
        schedules = [Schedule.of(seed + i, workspace, shared_bytes=shared, **chosen) for i in range(launches)]
        results = [self._launch(kernel, workspace, schedule) for schedule in schedules]
        if any(result.tobytes() != results[0].tobytes() for result in results):
            raise SimulationError("two launches gave different bits")
        return results[0]

    def _launch(self, kernel: Kernel, workspace: Memory, schedule: Schedule) -> Array:
        value = Memory.like(self.value)
        mask = None if self.mask is None else Memory.like(self.mask)
        result = value if self.out is self.value else self._room_for_result()
        named = {"x": value, "mask": mask, "the result": result, "the workspace": workspace}
        before = [(name, memory, memory.raw.copy()) for name, memory in named.items() if memory is not None]
        plan = self.plan
        message = kernel(
            ctypes.byref(schedule),
            plan.grid,
            plan.config.block,
            _pointer(value, plan.value_offset),
            _pointer(result, plan.result_offset),
            _pointer(mask, plan.mask_offset),
            _pointer(workspace),
            self.initial.tobytes(),
            np.array(plan.geometry, np.int64).tobytes(),
        )
        if message is not None:
            raise SimulationError(message.decode())
        for name, memory, was in before:
            memory.check(name, was, written=memory is result or memory is workspace)
        return result.array

    def _room_for_result(self) -> Memory:
        spec = self.request.result
        size = spec.dtype.itemsize
        memory = Memory.empty(spec.shape, tuple(s * size for s in spec.strides), numpy_dtype(spec.dtype), spec.address)
        memory.array.view()[...] = np.frombuffer(bytes([POISON] * size), memory.array.dtype)
        return memory


def _pointer(memory: Memory | None, offset: int = 0) -> ctypes.c_void_p:
    if memory is None:
        return ctypes.c_void_p(None)
    return ctypes.c_void_p(memory.array.ctypes.data + offset * memory.array.itemsize)


def prepare(
    value: Array,
    op: str | Operator = "add",
    *,
    axis: int = -1,
    reverse: bool = False,
    exclusive: bool = False,
    mask: Array | None = None,
    initial: complex | None = None,
    dtype: Any = None,
    out: Array | None = None,
    target: Target = SMALL_GPU,
) -> Simulation:
    """Plan a call of `cuscan.scan` on NumPy arrays, for a small GPU. `out` says how the result is laid out.

    With `out=value` the scan works in place, on a copy of `value`; no argument is ever written.
    """
    adopted = LIBRARY.adopt(value, "x")
    out_view = None if out is None else LIBRARY.adopt(out, "out")
    request = make_request(
        op=op,
        axis=axis,
        reverse=reverse,
        exclusive=exclusive,
        dtype=dtype,
        has_initial=initial is not None,
        value=adopted,
        mask=None if mask is None else LIBRARY.adopt(mask, "mask"),
        out=out_view,
    )
    number = 0 if initial is None else check_initial(initial, request.result.dtype)
    carry = np.array(number).astype(numpy_dtype(DTYPES[request.carry]))
    if mask is not None:
        mask = np.broadcast_to(mask, value.shape)
    return Simulation(request, make_plan(request, target), target.arch, value, mask, carry, out)


def simulate(value: Array, op: str | Operator = "add", *, seed: int = 0, launches: int = 1, **call: Any) -> Array:
    """`cuscan.scan` on NumPy arrays, by the kernels; see `prepare` and `Simulation.run`."""
    return prepare(value, op, **call).run(seed, launches=launches)


@contextlib.contextmanager
def small_units(warps: int = 2, vectors: int = 2) -> Iterator[None]:
    """Smaller units on contiguous axes, and smaller tiles of narrow arrays, so that few elements make a long chain."""
    smaller = {size: Order(order.items, vectors, warps) for size, order in tuning.CONTIGUOUS.items()}
    with mock.patch.dict(tuning.CONTIGUOUS, smaller), mock.patch.object(plan, "NARROW_ELEMENTS", NARROW_ELEMENTS):
        yield
