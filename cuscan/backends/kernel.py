"""A kernel that is ready to be queued: what stays from call to call is written once, as the driver takes it.

CuPy converts every argument anew in every call, and has no launches that begin while the kernel before them ends.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import cupy

from cuscan.compile.module import load_kernel
from cuscan.config import Config, StartsConfig

OVERLAPPING_ARCH = 90  # the first whose kernels can begin early, and wait for those before them (target.cuh)
OVERLAPPING_DRIVER = 12030  # the first whose graphs keep such launches
_WORD = 8  # bytes of an address
_ALIGNMENT = 16  # of what is passed by value
_CONFIG = struct.Struct("7I4xQQI4x")  # CUlaunchConfig: grid, block, shared bytes; stream, attributes, how many
_STREAM = struct.Struct("Q")
_STREAM_PLACE = 32  # in it
_ATTRIBUTE = struct.Struct("i4xi60x")  # CUlaunchAttribute
_STREAM_SERIALIZATION = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class Driver(NamedTuple):
    """What is asked of the driver: its launch, and whether it knows launches that overlap, in graphs, too.

    `launch` takes the addresses of the configuration, the function and the table of arguments, and None.
    """

    launch: Callable[[int, int, int, None], int]
    overlaps: bool


@functools.cache
def load_driver() -> Driver:
    """The driver of this machine."""
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    launch = library.cuLaunchKernelEx
    launch.argtypes = [ctypes.c_void_p] * 4
    launch.restype = ctypes.c_int
    version = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(version))
    return Driver(launch, version.value >= OVERLAPPING_DRIVER)


class Kernel:
    """A loaded kernel with its grid and arguments, for any number of threads.

    Args:
        config: what it is compiled for.
        arch: the architecture, for example 90.
        grid: blocks.
        parts: the arguments: bytes are passed by value, and a number is the place of an address among those of a call.

    Attributes:
        idle: the memory of calls that is not in use.
    """

    def __init__(self, config: Config | StartsConfig, arch: int, grid: int, parts: Sequence[int | bytes]) -> None:
        self._function = load_kernel(config, arch)  # its module stays loaded as long as it is there
        self._pointer = self._function.ptr
        driver = load_driver()
        self._launch = driver.launch
        self._parts = parts
        self._sizes = (grid, 1, 1, config.block, 1, 1, config.shared_bytes)
        self._overlaps = driver.overlaps and arch >= OVERLAPPING_ARCH
        places = [part for part in parts if isinstance(part, int)]
        self._fill = struct.Struct(f"{1 + max(places)}Q").pack_into
        self.idle: list[_Arguments] = []

    def queue(self, stream: int, addresses: Iterable[int], values: Iterable[tuple[int, bytes]] = ()) -> None:
        """Put the kernel on a stream of the current device; `values` take the place of arguments passed by value."""
        try:
            arguments = self.idle.pop()
        except IndexError:
            arguments = _Arguments(self._parts, self._sizes, self._overlaps)
        self._fill(arguments.memory, 0, *addresses)
        for index, value in values:
            arguments.put(index, value)
        _STREAM.pack_into(arguments.memory, arguments.stream, stream)
        status = self._launch(arguments.config, self._pointer, arguments.table, None)
        if status:
            raise cupy.cuda.driver.CUDADriverError(status)
        self.idle.append(arguments)


class _Arguments:
    """Memory for one call at a time; the driver has read it when it has queued the kernel.

    Attributes:
        memory: addresses, then values, the table, the launch configuration and its attribute.
        table: the address of the table, which has the address of every argument.
        config: the address of the launch configuration.
        stream: the place of the stream in memory.
    """

    __slots__ = ("_places", "config", "memory", "stream", "table")

    def __init__(self, parts: Sequence[int | bytes], sizes: tuple[int, ...], overlaps: bool) -> None:
        end = _WORD * (1 + max(part for part in parts if isinstance(part, int)))
        self._places = []
        for part in parts:
            if isinstance(part, int):
                self._places.append(_WORD * part)
            else:
                place = _rounded(end, _ALIGNMENT)
                self._places.append(place)
                end = place + len(part)
        table = _rounded(end, _WORD)
        config = table + _WORD * len(parts)
        attribute = config + _CONFIG.size
        self.memory = bytearray(attribute + _ATTRIBUTE.size)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.table, self.config, self.stream = start + table, start + config, config + _STREAM_PLACE
        struct.pack_into(f"{len(parts)}Q", self.memory, table, *(start + place for place in self._places))
        _CONFIG.pack_into(self.memory, config, *sizes, 0, start + attribute, int(overlaps))
        _ATTRIBUTE.pack_into(self.memory, attribute, _STREAM_SERIALIZATION, 1)
        for index, part in enumerate(parts):
            if isinstance(part, bytes):
                self.put(index, part)

    def put(self, index: int, value: bytes) -> None:
        """Write an argument that is passed by value."""
        struct.pack_into(f"{len(value)}s", self.memory, self._places[index], value)


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
