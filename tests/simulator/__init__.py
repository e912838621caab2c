"""The kernels without a GPU: the real device headers, compiled by g++ against a simulated `target.cuh`.

`simulate` follows the path of `cuscan.scan` down to the launch (request, plan, source), runs the kernel's threads under
a random scheduler (runtime.hpp), and checks the memory around every array. `prepare` stops before the launch. Compiled
kernels are stored by content (kept.py). `run_overlapping` runs overlapping launches of a kernel. `WATCHED` is the same
code, but plain stores reach other threads late, and misaligned accesses are errors.

The simulator does not cover `target.cuh` itself; the code that nvcc generates; loads that the hardware moves ahead of
others; fences of barriers in shared memory (fence_after_init); bulk loads that overlap plain reads; and, in code that
is not watched, misaligned plain accesses, and reads less than 16 bytes beyond an array, or between its rows.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import itertools
import mmap
import random
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from kept import FOLDER, included, kept, one_at_a_time, version_of

from cuscan.compile.source import entry_name, headers, make_source, types_before
from cuscan.interop.numpy import LIBRARY, numpy_dtype
from cuscan.kept import Table
from cuscan.operators import Monoid
from cuscan.order import CONTIGUOUS, Order
from cuscan.planning import make_plan, strip_tile, strips, walks
from cuscan.planning.config import HEADER_BYTES, AnyConfig, Config, Preparation, ScanPlan, Target
from cuscan.planning.preparations import preparations
from cuscan.planning.staged_flags import NO_FLAGS
from cuscan.planning.tuning import LINE_BYTES
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import CARRY, SEGMENTS, Flags, Operands
from cuscan.request.initial import initial_argument
from cuscan.specs import ALIGNMENT, ArraySpec

Array = np.ndarray[Any, Any]
Kernel = Callable[..., "bytes | None"]  # returns an error message, or None

HAS_COMPILER = shutil.which("g++") is not None
SMALL_GPU = Target(arch=90, sm_count=4, cluster=0)
CANARY = 0xC5
POISON = 0xA5
OVERLAPPING_ARCH = 90  # the first architecture whose launches overlap

HERE = Path(__file__).resolve().parent
_SPARSE, _HUGE = 1 << 26, 1 << 30  # bytes
_MAP_NORESERVE, _PROT_NONE = 0x4000, 0  # Linux
_protect = ctypes.CDLL(None).mprotect
_protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_HEADER_WORDS, _EPOCH = HEADER_BYTES // 4, 1  # 32-bit words of struct Workspace; the number of the one with the epoch

# Fused multiply-adds would change bits. Variables that a kernel has not set contain a pattern.
_FLAGS = ["-Og", "-std=c++17", "-fPIC", "-w", "-U_FORTIFY_SOURCE"]
_FLAGS += ["-ffp-contract=off", "-ftrivial-auto-var-init=pattern"]
_TOOLS = (_FLAGS, version_of("g++") if HAS_COMPILER else "")  # what a compiled library depends on, beside its source

# The compiler inserts calls before plain accesses. runtime.cpp defines them, in place of the compiler's own library.
_WATCHING = ["-fsanitize=thread,alignment", "-nodefaultlibs"]

_LAUNCHER = """
extern "C" const char* launch(const simulator::Schedule* schedule, unsigned blocks, int threads, char* const* tables,
                              cuscan::Workspace* workspace, const void* initial, const void* geometry) {{
    cuscan::Elements<cuscan::Config>::Initial number;
    cuscan::{geometry}<cuscan::Config> words;
    memcpy(&number, initial, sizeof(number));
    memcpy(&words, geometry, sizeof(words));
    return simulator::launch(*schedule, blocks, threads, {cluster}, [&](unsigned launch) {{
        char* const* const arrays = tables + launch * {count};
        {entry}({arrays}, workspace, number, words);
    }});
}}
"""

_BEFORE_LAUNCHER = """
extern "C" const char* launch(const simulator::Schedule* schedule, unsigned blocks, int threads, const char* given,
                              void* written, const void* words) {{
    cuscan::{sizes} sizes;
    memcpy(&sizes, words, sizeof(sizes));
    return simulator::launch(*schedule, blocks, threads, 1, [&](unsigned) {{
        {entry}(given, ({written}*)written, sizes);
    }});
}}
"""


def launcher(config: AnyConfig) -> str:
    """C++ that launches a configuration's kernel. A scan gets its arrays as a table of addresses for each launch."""
    if not isinstance(config, Config):
        return _BEFORE_LAUNCHER.format(entry=entry_name(config), **types_before(config))
    places = [(f"arrays[{i}]", operand) for i, operand in enumerate(config.operands) if operand.present]
    arrays = ", ".join(f"*(const cuscan::{operand.type}*){at}" if operand.by_value else at for at, operand in places)
    return _LAUNCHER.format(
        entry=entry_name(config),
        geometry=config.geometry,
        cluster=config.cluster,
        arrays=arrays,
        count=len(tuple(config.operands)),
    )


class SimulationError(AssertionError):
    """A kernel hung, misused a collective, or accessed memory that it must not access."""


class Span(ctypes.Structure):
    """The first and the end address of an array; its launch; whether the previous launch writes it until its end."""

    _fields_ = (
        ("first", ctypes.c_uint64),
        ("end", ctypes.c_uint64),
        ("launch", ctypes.c_uint32),
        ("late", ctypes.c_uint32),
    )


class Schedule(ctypes.Structure):
    """How launches are scheduled: `Schedule` in runtime.hpp, where the fields are explained."""

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
        ("launches", ctypes.c_uint32),
        ("first_turn", ctypes.c_uint64),
        ("workspace_from", ctypes.c_uint64),
        ("workspace_to", ctypes.c_uint64),
        ("first_block", ctypes.c_uint32),
    )

    @classmethod
    def of(cls, seed: int, workspace: Memory, hold: tuple[int, int] | None = None, **chosen: int) -> Schedule:
        """The schedule of a seed; fields that are not `chosen` are random.

        Threads that write tile-state words in the range `hold` are delayed; by default it is a random eighth of all.
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
            "launches": 1,
            "first_turn": random.Random(f"first turn {seed}").choice((0, 0, 20, 200)),
            "workspace_from": workspace.array.ctypes.data,
            "workspace_to": workspace.array.ctypes.data + workspace.array.nbytes,
            "first_block": 0,
        }
        return cls(**{**drawn, **chosen})


# ---- device code ---------------------------------------------------------------------------------


class DeviceCode:
    """A copy of the device headers on the simulated target, and the kernels compiled from it.

    `watched`: the simulator sees plain accesses; it makes stores visible late, and misaligned accesses fail
    (runtime.hpp).
    """

    def __init__(self, texts: Mapping[str, str], *, watched: bool = False) -> None:
        self._texts, self._watched = texts, watched
        self._kernels: dict[tuple[AnyConfig, int], Kernel] = {}
        self._compiling = threading.Lock()  # several threads may need the same kernel
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def broken(self, header: str, old: str, new: str) -> DeviceCode:
        """A copy with `new` in the place of `old`, which must occur exactly once."""
        found = self._texts[header].count(old)
        assert found == 1, f"{old!r} is {found} times in {header}"
        return DeviceCode({**self._texts, header: self._texts[header].replace(old, new)}, watched=self._watched)

    def kernel(self, config: AnyConfig, arch: int) -> Kernel:
        """The launcher of a configuration on a GPU architecture."""
        key = config, arch
        with self._compiling:
            if key not in self._kernels:
                self._kernels[key] = self._load(*key)
            return self._kernels[key]

    def _load(self, config: AnyConfig, arch: int) -> Kernel:
        text = make_source(config).split("\n", 1)[1] + launcher(config)  # the first line has the digest of all headers
        runtime = _runtime()
        key = text, arch, included(self._texts, f"kernels/{config.family}.cuh"), runtime.name, _TOOLS, self._watched
        library = kept(key, ".so", lambda made: self._compile(text, arch, made, runtime))
        launch = ctypes.CDLL(str(library)).launch
        launch.restype = ctypes.c_char_p
        return launch

    def _compile(self, text: str, arch: int, library: Path, runtime: Path) -> None:
        source = library.with_suffix(".cpp")
        source.write_text(text)
        watching = _WATCHING if self._watched else []
        prelude = _precompiled(arch, *watching)
        where = (f"-I{self.folder}", "-include", prelude)
        _compile("-shared", f"-DSIMULATED_ARCH={arch}", *watching, *where, source, runtime, "-o", library)

    @property
    def folder(self) -> Path:
        """The folder that contains the headers as files."""
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="cuscan-simulator-")
            _write(Path(self._folder.name), self._texts)
        return Path(self._folder.name)


@functools.cache
def _runtime() -> Path:
    """The compiled runtime.cpp, which all kernels are linked with."""
    key = [(HERE / name).read_text() for name in ("runtime.cpp", "runtime.hpp")]
    with one_at_a_time("runtime"):
        return kept((key, _TOOLS), ".so", lambda made: _compile("-shared", HERE / "runtime.cpp", "-o", made))


@functools.cache
def _precompiled(arch: int, *options: str) -> Path:
    """A header that includes the simulated target; the compiler uses its precompiled form, which lies beside it.

    It includes no other header, so it serves all copies of the device code, with mistakes or without.
    """
    texts = {name: HEADERS[name] for name in SIMULATED}
    digest = hashlib.sha256(repr((texts, arch, options, _TOOLS)).encode()).hexdigest()[:32]
    prelude = FOLDER / f"target-{digest}" / "prelude.hpp"
    with one_at_a_time(f"target-{arch}"):
        if not prelude.with_suffix(".hpp.gch").exists():
            _write(prelude.parent, {**texts, prelude.name: '#include "target.cuh"\n'})
            where = ("-x", "c++-header", f"-DSIMULATED_ARCH={arch}", *options, prelude)
            _compile(*where, "-o", prelude.with_suffix(".hpp.gch"))
    return prelude


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _compile(*arguments: str | Path) -> None:
    done = subprocess.run(["g++", *_FLAGS, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SIMULATED = ("target.cuh", "runtime.hpp")
HEADERS = {**headers(), **{name: (HERE / name).read_text() for name in SIMULATED}}
CODE, WATCHED = DeviceCode(HEADERS), DeviceCode(HEADERS, watched=True)


# ---- memory --------------------------------------------------------------------------------------


class Memory(NamedTuple):
    """An array in pages of its own, between two inaccessible pages. All bytes outside its elements are canaries.

    A very large array is sparse: only pages that are accessed take memory, and there are no canaries.
    """

    raw: Array
    array: Array

    @classmethod
    def empty(
        cls,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: Any,
        address: int = 0,
        *,
        at_end: bool = True,
        alignment: int = ALIGNMENT,
    ) -> Memory:
        """Memory for an array: strides in bytes, the address modulo `alignment`.

        It lies as close as possible to the page after it or, without `at_end`, to the page before it.
        """
        reach = [(n - 1) * stride for n, stride in zip(shape, strides, strict=True)]
        before = -sum(r for r in reach if r < 0)
        span = before + sum(r for r in reach if r > 0) + np.dtype(dtype).itemsize
        lowest = (address - before) % alignment
        if at_end:
            lowest += -(lowest + span) % mmap.PAGESIZE // alignment * alignment
        raw = _guarded_pages(lowest + span)
        if raw.size < _SPARSE:
            raw[...] = CANARY
        return cls(raw, np.ndarray(shape, dtype, raw, lowest + before, strides))

    @classmethod
    def like(cls, array: Array, *, at_end: bool = True) -> Memory:
        """A copy of an array with the same layout. A huge array is neither copied nor checked."""
        if array.nbytes >= _HUGE:
            return cls(np.broadcast_to(np.uint8(CANARY), array.nbytes), array)
        memory = cls.empty(array.shape, array.strides, array.dtype, array.ctypes.data, at_end=at_end)
        memory.array[...] = array
        return memory

    @property
    def is_sparse(self) -> bool:
        return self.raw.size >= _SPARSE

    def check(self, name: str, before: Array, *, written: bool) -> None:
        """Checks that nothing outside the elements has changed since `before`, and no element unless `written`."""
        changed = self.raw != before
        if written:
            element = np.dtype(f"V{self.array.itemsize}")
            elements = np.ndarray(self.array.shape, element, changed, self._offset(), self.array.strides)
            elements[...] = np.zeros((), element)
        if changed.any():
            first = int(np.argmax(changed)) - self._offset()
            raise SimulationError(f"{name}: byte {first} from its first element was overwritten")

    def span(self, launch: int = 0, *, late: bool = False) -> Span:
        """From the lowest address of the elements to the end of the highest element."""
        reach = [(n - 1) * stride for n, stride in zip(self.array.shape, self.array.strides, strict=True)]
        first, end = (self.array.ctypes.data + n for n in (0, self.array.itemsize))
        return Span(first + sum(r for r in reach if r < 0), end + sum(r for r in reach if r > 0), launch, late)

    def _offset(self) -> int:
        return int(self.array.ctypes.data - self.raw.ctypes.data)


def misaligned(array: Array, nbytes: int) -> Array:
    """A copy that begins so many bytes beyond a multiple of `ALIGNMENT`."""
    copy = Memory.empty(array.shape, array.strides, array.dtype, nbytes).array
    copy[...] = array
    return copy


def _guarded_pages(nbytes: int) -> Array:
    """New pages that hold `nbytes` bytes, between two inaccessible ones."""
    size = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + 2 * mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
    raw = np.frombuffer(pages, np.uint8)
    for first in (0, size + mmap.PAGESIZE):
        _protect(raw.ctypes.data + first, mmap.PAGESIZE, _PROT_NONE)
    return raw[mmap.PAGESIZE : -mmap.PAGESIZE]


def new_workspace(nbytes: int, *, epoch: int = 0) -> Memory:
    """A workspace that has seen `epoch` launches."""
    workspace = Memory.empty((nbytes // 4,), (4,), np.uint32, alignment=LINE_BYTES)
    workspace.array[...] = 0
    workspace.array[_EPOCH : _EPOCH + 1] = epoch
    return workspace


# ---- simulation ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Simulation:
    """A planned call of `cuscan.scan`; it can `run` any number of times.

    `arrays` are the arrays that the kernel reads, or None, in the order of its arguments without those that it writes.
    Value number `in_place` shares its memory with the first result.
    """

    request: ScanRequest
    plan: ScanPlan
    preparations: list[Preparation]
    arch: int
    arrays: tuple[Array | None, ...]
    initial: Array
    in_place: int | None

    def run(self, seed: int = 0, **chosen: Any) -> Any:
        """The result of the kernel, or a tuple if there are several. See `run_all`."""
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
        """The results of the kernel, after `launches` launches one after the other in one workspace.

        `chosen` goes to `Schedule.of`. Raises `SimulationError` where a GPU would hang or go wrong in silence.
        """
        if workspace is None:
            workspace = new_workspace(self.plan.workspace_bytes)
        launched = [
            _launch([self], seed + i, self._flags(code or CODE, seed), workspace, code or CODE, chosen)[0]
            for i in range(launches)
        ]
        if launches > 1 and len({tuple(result.tobytes() for result in results) for results in launched}) > 1:
            raise SimulationError("two launches gave different bits")
        return launched[0]

    def _flags(self, code: DeviceCode, seed: int) -> dict[int, Memory]:
        """What launches before the scan write, by the number of the array that they read."""
        written = {}
        for before in self.preparations:
            number = len(self.request.values) + (before.role != "mask")
            given = self.arrays[number]
            assert given is not None
            written[number] = run_before(before, Memory.like(given), self.arch, seed, code)
        return written

    def place(self, seed: int, flags: Mapping[int, Memory]) -> Placed:
        """The arrays of a launch, in memory of their own."""
        count = len(self.request.values)
        ends = itertools.cycle((seed % 2 == 0, seed % 2 == 1))
        read = [None if array is None else Memory.like(array, at_end=next(ends)) for array in self.arrays]
        for number, memory in flags.items():
            read[number] = memory
        made = () if self.request.only_carry else self.request.results
        results = [_room_for(spec, at_end=next(ends)) for spec in made]
        if self.in_place is not None:
            shared = read[self.in_place]
            assert shared is not None
            results[0] = shared
        last = [] if self.request.last is None else [_room_for(self.request.last, at_end=next(ends))]
        carry_out = [_room_for(spec, at_end=next(ends)) for spec in self.request.carry_out]
        carried = count + 3  # values, mask, segments and initial values precede the carry
        memories = [
            *read[:count],
            *(results or [None] * len(self.request.results)),
            *read[count:carried],
            *(last or [None]),
            *read[carried:],
            *carry_out,
        ]
        return Placed(memories, results, [*last, *carry_out])


class Placed(NamedTuple):
    """The arrays of a launch, in the order of the kernel's arguments; among them the results, and one state per row."""

    memories: list[Memory | None]
    results: list[Memory]
    behind: list[Memory]

    def given(self, axis: int) -> tuple[Array, ...]:
        """The arrays that the call returns."""
        return (*(memory.array for memory in self.results), *(memory.array.squeeze(axis) for memory in self.behind))


def run_overlapping(
    simulations: Sequence[Simulation],
    seed: int = 0,
    *,
    workspace: Memory | None = None,
    code: DeviceCode | None = None,
    **chosen: Any,
) -> list[tuple[Array, ...]]:
    """The results of calls that differ only in their data: launches of one kernel, each of which begins early."""
    if workspace is None:
        workspace = new_workspace(simulations[0].plan.workspace_bytes)
    return _launch(simulations, seed, simulations[0]._flags(code or CODE, seed), workspace, code or CODE, chosen)


def _launch(
    simulations: Sequence[Simulation],
    seed: int,
    flags: Mapping[int, Memory],
    workspace: Memory,
    code: DeviceCode,
    chosen: dict[str, Any],
) -> list[tuple[Array, ...]]:
    simulation = simulations[0]
    plan, operands = simulation.plan, simulation.plan.config.operands
    assert all((s.plan, s.initial.tobytes()) == (plan, simulation.initial.tobytes()) for s in simulations)
    schedule = Schedule.of(seed, workspace, shared_bytes=plan.config.shared_bytes, launches=len(simulations), **chosen)
    launches = [s.place(seed + i, flags) for i, s in enumerate(simulations)]
    spans: dict[int, Span] = {}
    for number, placed in enumerate(launches):
        may_be_late = simulation.arch >= OVERLAPPING_ARCH and (number > 0 or schedule.first_turn > 0)
        for memory, operand in zip(placed.memories, operands, strict=True):
            if memory is not None and id(memory) not in spans:
                late = may_be_late and not operand.by_value and not memory.is_sparse
                spans[id(memory)] = memory.span(number, late=late)
    schedule.arrays, schedule.array_count = (Span * len(spans))(*spans.values()), len(spans)
    named = {id(m): m for placed in launches for m in placed.memories if m is not None} | {id(workspace): workspace}
    before = [(memory, memory.raw.copy()) for memory in named.values() if not memory.is_sparse]
    addresses = [
        _pointer(memory, offset)
        for placed in launches
        for memory, offset in zip(placed.memories, plan.offsets, strict=True)
    ]
    message = code.kernel(plan.config, simulation.arch)(
        ctypes.byref(schedule),
        plan.grid,
        plan.config.block,
        (ctypes.c_void_p * len(addresses))(*addresses),
        _pointer(workspace),
        simulation.initial.tobytes(),
        np.array(plan.geometry, np.int64).tobytes(),
    )
    if message is not None:
        raise SimulationError(message.decode())
    written = {id(m) for placed in launches for m in (*placed.results, *placed.behind, workspace)}
    for number, (memory, was) in enumerate(before):
        memory.check(f"array {number}", was, written=id(memory) in written)
    return [placed.given(simulation.request.axis) for placed in launches]


def run_before(plan: Preparation, given: Memory, arch: int, seed: int, code: DeviceCode = CODE) -> Memory:
    """What a launch before the scan writes: offsets, flags or keys as bits, or a copy of flags."""
    item = np.dtype(np.uint8 if plan.config.family == "flag_copies" else np.uint32)
    written = Memory.empty((plan.nbytes // item.itemsize,), (item.itemsize,), item)
    before = [(memory, memory.raw.copy()) for memory in (given, written)]
    schedule = Schedule.of(seed, new_workspace(0), shared_bytes=plan.config.shared_bytes)
    late = arch >= OVERLAPPING_ARCH and schedule.first_turn > 0
    spans = [memory.span(late=late) for memory in (given, written)]
    schedule.arrays, schedule.array_count = (Span * len(spans))(*spans), len(spans)
    message = code.kernel(plan.config, arch)(
        ctypes.byref(schedule),
        plan.grid,
        plan.config.block,
        _pointer(given),
        _pointer(written),
        np.array(plan.words, np.int64).tobytes(),
    )
    if message is not None:
        raise SimulationError(message.decode())
    for name, (memory, was) in zip((plan.role, "written"), before, strict=True):
        memory.check(name, was, written=memory is written)
    return written


def _room_for(spec: ArraySpec, *, at_end: bool) -> Memory:
    size, dtype = spec.dtype.itemsize, numpy_dtype(spec.dtype)
    memory = Memory.empty(spec.shape, tuple(s * size for s in spec.strides), dtype, spec.address, at_end=at_end)
    if memory.array.nbytes < _HUGE:
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
    out: Array | tuple[Array, ...] | None = None,
    target: Target = SMALL_GPU,
    general: bool = False,
    **flags: Any,
) -> Simulation:
    """Plan a call of `cuscan.scan` on NumPy arrays, for a small GPU. `out` gives the layout of the results.

    `general`: for the general kernel.

    With `out=value`, or one of the values, the scan works in place, on a copy; no argument is ever written. An array
    `initial` holds the initial states of a linear recurrence. `flags` are fields of `Flags`.
    """
    values = value if isinstance(value, tuple) else (value,)
    row_initial = initial if isinstance(initial, np.ndarray) else None
    number = None if row_initial is not None else initial
    beside = {"mask": mask, "reset": reset, "offsets": offsets, "keys": keys, "initial": row_initial}
    fields = carry if isinstance(carry, tuple) else (carry,)
    outs = out if isinstance(out, tuple) else (out,)
    beside |= dict(zip(CARRY[1:], fields, strict=False))
    given = {name: array for name, array in beside.items() if array is not None}
    operands = Operands(
        tuple(LIBRARY.adopt(array, "x") for array in (*values, *given.values())),
        ("x",) * len(values) + tuple(given),
        None if out is None else tuple(LIBRARY.adopt(array, "out") for array in outs),
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
        make_plan(request, target, general=general),
        preparations(request, target),
        target.arch,
        seen,
        initial_argument(request.kind, number),
        in_place,
    )


def _as_seen(array: Array, spec: ArraySpec) -> Array:
    """The array with the shape and strides of the request, which may broadcast it."""
    return np.lib.stride_tricks.as_strided(array, spec.shape, tuple(s * array.itemsize for s in spec.strides))


def simulate(value: Any, op: str | Monoid = "add", *, seed: int = 0, launches: int = 1, **call: Any) -> Any:
    """`cuscan.scan` on NumPy arrays by the simulated kernels; see `prepare` and `Simulation.run`."""
    return prepare(value, op, **call).run(seed, launches=launches)


def assert_same(result: Array, expected: Array) -> None:
    """Checks that all bits agree, except those of NaNs."""
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    part = {"complex64": np.float32, "complex128": np.float64}.get(result.dtype.name, result.dtype)
    one, other = (np.ascontiguousarray(array).reshape(-1).view(part) for array in (result, expected))
    bits = np.dtype(f"u{one.itemsize}")
    same = (one.view(bits) == other.view(bits)) | ((one != one) & (other != other))
    assert same.all(), f"{np.count_nonzero(~same)} of {same.size} differ, the first is number {int(np.argmin(same))}"


LARGEST_CHUNKS = {"TILES": 0, "FEWEST": 0, "CHUNK_TIME": 100, "END_TIME": 0}  # of planning/panel_shapes.py


def _no_flags(request: ScanRequest, *_: Any, flat: bool) -> Any:
    """As `staged_flags`, if flags cannot lie beside values."""
    return NO_FLAGS if request.mask is None and request.segments is None else None


@contextlib.contextmanager
def panels_of_unaligned_rows() -> Iterator[None]:
    """Rows that are not aligned are panels, and so are flags; otherwise they are strips or whole rows."""
    with (
        mock.patch("cuscan.planning.strips.FLAT_ALIGNED", (16,)),
        mock.patch("cuscan.planning.strips.ALIGNED", (16,)),
        mock.patch("cuscan.planning.strips.staged_flags", _no_flags),
        mock.patch("cuscan.planning.whole_rows.staged_flags", _no_flags),
        mock.patch("cuscan.planning.whole_rows.LEAST_ROW_BYTES", 1 << 20),
    ):
        yield


@contextlib.contextmanager
def small_spans(most_warps: int = 4) -> Iterator[None]:
    """Spans of four batches in strips of 17 to 32 columns, so that few batches make several spans of spans.

    With one warp, in strips of 9 to 16 columns.
    """
    with (
        mock.patch.multiple(walks, LOOK_BACK_WARPS=most_warps, SPAN_LOOKS=2),
        mock.patch("cuscan.planning.LOOKS", 2),
    ):
        strip_tile.block_of_strips.cache_clear()
        try:
            yield
        finally:
            strip_tile.block_of_strips.cache_clear()


@contextlib.contextmanager
def most_walks(number: int) -> Iterator[None]:
    """At most so many walks take turns in a block of strips."""
    with mock.patch.object(strips, "WALKS", number):
        strip_tile.block_of_strips.cache_clear()
        try:
            yield
        finally:
            strip_tile.block_of_strips.cache_clear()


@contextlib.contextmanager
def small_sections(code: DeviceCode = CODE, units: int = 64) -> Iterator[DeviceCode]:
    """Sections of columns of so few units, on the GPU and on the CPU; yields the device code."""
    places = ("planning.walks", "backends.lines", "backends.tree")
    with contextlib.ExitStack() as stack:
        for place in places:
            stack.enter_context(mock.patch(f"cuscan.{place}.PAIRED_SECTION", units))
        stack.callback(strip_tile.block_of_strips.cache_clear)
        strip_tile.block_of_strips.cache_clear()
        yield code.broken("column_chain.cuh", "kSectionUnits = 4096", f"kSectionUnits = {units}")


@contextlib.contextmanager
def small_units(warps: int = 2, vectors: int = 2) -> Iterator[None]:
    """Smaller units on contiguous axes, so that few elements make a long chain, and larger chunks of panels.

    Unaligned rows and flags are panels. Calls that the NumPy backend has recorded use other units;
    they are set aside.
    """
    smaller = {size: Order(order.items, vectors, warps) for size, order in CONTIGUOUS.items()}
    with (
        mock.patch.dict(CONTIGUOUS, smaller),
        mock.patch("cuscan.request.layout.BYTES_TO_WORDS", smaller[8]),
        mock.patch.multiple("cuscan.planning.panel_shapes", **LARGEST_CHUNKS),
        panels_of_unaligned_rows(),
        mock.patch("cuscan.backends.repeats.calls", Table()),
    ):
        yield
