"""The arguments of a kernel, in memory as the driver takes them.

CuPy converts every argument anew in every call. Here those that stay are written once, and a call writes addresses.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence

_WORD = 8  # bytes of an address
_ALIGNMENT = 16  # of what is passed by value


class Arguments:
    """Memory for the arguments of one call at a time; the driver has read it when it has queued the kernel.

    Args:
        parts: the arguments, in the order of the kernel: bytes are passed by value, and a number is the place of an
            address among those that calls write to the beginning of `memory`.

    Attributes:
        memory: addresses, then values, then the table.
        table: the address of the table, which has the address of every argument.
    """

    __slots__ = ("_places", "memory", "table")

    def __init__(self, parts: Sequence[int | bytes]) -> None:
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
        self.memory = bytearray(table + _WORD * len(parts))
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.table = start + table
        struct.pack_into(f"{len(parts)}Q", self.memory, table, *(start + place for place in self._places))
        for index, part in enumerate(parts):
            if isinstance(part, bytes):
                self.put(index, part)

    def put(self, index: int, value: bytes) -> None:
        """Write an argument that is passed by value."""
        struct.pack_into(f"{len(value)}s", self.memory, self._places[index], value)


def _rounded(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple
