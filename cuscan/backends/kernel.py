"""Loaded kernels, one per configuration. A call writes grid, stream and arguments in the driver's own format.

CuPy converts every argument again in every call, and lacks launches that begin while the previous kernel ends.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import cupy

from cuscan.compile.module import load_kernel
from cuscan.kept import Table, keep
from cuscan.planning.config import AnyConfig

OVERLAPPING_ARCH = 90  # the first whose kernels can begin early and wait for the previous kernel (target.cuh)
OVERLAPPING_DRIVER = 12030  # the first whose graphs support such launches
_WORD = 8  # bytes of an address
_ALIGNMENT = 16  # alignment in bytes of arguments passed by value
_SHAPE = struct.Struct("7I4x")  # CUlaunchConfig: grid, block, shared bytes
_STREAM = "QQI4x"  # the rest of CUlaunchConfig: stream, attributes, number of attributes
_ATTRIBUTE = struct.Struct("i4xi60x")  # CUlaunchAttribute
_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
Argument = int | bytes  # an address, or the bytes of an argument passed by value


class Driver(NamedTuple):
    """The driver's launch function, and whether the driver supports overlapping launches, in graphs, too.

    `launch` takes the addresses of the configuration, the function and the table of arguments, and None.
    """

    launch: Callable[[int, int, int, None], int]
    overlaps: bool


@functools.cache
def load_driver() -> Driver:
    """Load the driver of this machine."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    launch = library.cuLaunchKernelEx
    launch.argtypes = [ctypes.c_void_p] * 4
    launch.restype = ctypes.c_int
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return Driver(launch, version.value >= OVERLAPPING_DRIVER)


@dataclass(slots=True, eq=False)
class _Memory:
    """Memory for the arguments of one call at a time; the driver has read it when the launch function returns.

    `config`, `table` and `attribute` are addresses in it. `geometry` is the geometry that the last call wrote there.
    """

    buffer: bytearray
    config: int
    table: int
    attribute: int
    geometry: bytes | None = None


class Kernel:
    """A loaded kernel. Any number of threads may use it.

    Args:
        config: the configuration to compile.
        arch: the architecture, for example 90.
        arguments: sample arguments; those of all calls have the same number and sizes. The last one is the geometry.

    Attributes:
        idle: the memory that no call is using.
    """

    def __init__(self, config: AnyConfig, arch: int, arguments: Sequence[Argument]) -> None:
        self._function = load_kernel(config, arch)  # keeps its module loaded
        self._pointer = self._function.ptr
        self._launch, overlaps = load_driver()
        self._block = 1, 1, config.block, 1, 1, config.shared_bytes
        self._overlaps = int(overlaps and arch >= OVERLAPPING_ARCH)
        form, self._places = _STREAM, list[int]()
        for argument in arguments:
            self._write = struct.Struct(form).pack_into  # writes all arguments but the last
            end, code = struct.calcsize(form), f"{len(argument)}s" if isinstance(argument, bytes) else "Q"
            place = _rounded(_SHAPE.size + end, _WORD if code == "Q" else _ALIGNMENT)
            form += f"{place - _SHAPE.size - end}x{code}"
            self._places.append(place)
        self._nbytes = _SHAPE.size + struct.calcsize(form)
        self.idle: list[_Memory] = []

    def queue(self, stream: int, grid: int, arguments: Iterable[Argument], geometry: bytes) -> None:
        """Queue the kernel on a stream of the current device. `arguments` are all but the geometry.

        A geometry object implies its grid: if the memory already holds this object, neither is written again.
        """
        try:
            memory = self.idle.pop()
        except IndexError:
            memory = self._allocate()
        if memory.geometry is not geometry:
            self._shape(memory, grid, geometry)
        self._write(memory.buffer, _SHAPE.size, stream, memory.attribute, self._overlaps, *arguments)
        status = self._launch(memory.config, self._pointer, memory.table, None)
        if status:
            raise cupy.cuda.driver.CUDADriverError(status)
        self.idle.append(memory)

    def bind(self, grid: int, geometry: bytes) -> Callable[..., None]:
        """Return a function that queues the kernel with a fixed grid and geometry, given the stream and the arguments.

        Its memory is not shared with other calls.
        """
        write, launch, pointer, overlaps = self._write, self._launch, self._pointer, self._overlaps
        idle: list[tuple[bytearray, int, int, int]] = []

        def queue(stream: int, *arguments: Argument) -> None:
            try:
                memory = idle.pop()
            except IndexError:
                memory = self._made(grid, geometry)
            buffer, config, table, attribute = memory
            write(buffer, _SHAPE.size, stream, attribute, overlaps, *arguments)
            status = launch(config, pointer, table, None)
            if status:
                raise cupy.cuda.driver.CUDADriverError(status)
            idle.append(memory)

        return queue

    def _made(self, grid: int, geometry: bytes) -> tuple[bytearray, int, int, int]:
        """Allocate memory for calls with a fixed grid."""
        memory = self._allocate()
        self._shape(memory, grid, geometry)
        return memory.buffer, memory.config, memory.table, memory.attribute

    def _shape(self, memory: _Memory, grid: int, geometry: bytes) -> None:
        _SHAPE.pack_into(memory.buffer, 0, grid, *self._block)
        memory.buffer[self._places[-1] : self._nbytes] = memory.geometry = geometry

    def _allocate(self) -> _Memory:
        """Allocate memory for a launch configuration, the arguments, a table of their addresses, and an attribute."""
        table = _rounded(self._nbytes, _WORD)
        attribute = table + _WORD * len(self._places)
        buffer = bytearray(attribute + _ATTRIBUTE.size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
        struct.pack_into(f"{len(self._places)}Q", buffer, table, *(start + place for place in self._places))
        _ATTRIBUTE.pack_into(buffer, attribute, _STREAM_SERIALIZATION, 1)
        return _Memory(buffer, start, start + table, start + attribute)


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


_kernels: Table[tuple[AnyConfig, int, int], Kernel] = Table()


def get_kernel(config: AnyConfig, arch: int, device: int) -> Kernel | None:
    """Return the kernel of a configuration if it is loaded."""
    return _kernels.get((config, arch, device))


def find_kernel(config: AnyConfig, arch: int, device: int, sample: Callable[[], Sequence[Argument]]) -> Kernel:
    """Return the kernel of a configuration on the current device, loaded once; `sample` returns arguments of a call."""
    key = config, arch, device
    return _kernels.get(key) or keep(_kernels, key, Kernel(config, arch, sample()))
