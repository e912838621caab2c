"""Combine several arrays into one message of bytes, since an exchange costs more than its bytes."""

from __future__ import annotations

from collections.abc import Sequence

_ALIGNMENT = 16  # bytes; no item is larger


def lay_out(sizes: Sequence[int]) -> tuple[list[slice], int]:
    """Return the places of arrays of the given sizes in bytes in a message, and the size of the message."""
    places, end = [], 0
    for size in sizes:
        places.append(slice(end, end + size))
        end = -(-(end + size) // _ALIGNMENT) * _ALIGNMENT
    return places, places[-1].stop if len(places) == 1 else end
