"""Several arrays as one message of bytes, since an exchange costs more than what a message holds."""

from __future__ import annotations

from collections.abc import Sequence

_ALIGNMENT = 16  # bytes: no item is larger


def lay_out(sizes: Sequence[int]) -> tuple[list[slice], int]:
    """Where arrays of so many bytes lie in a message, and its size."""
    places, end = [], 0
    for size in sizes:
        places.append(slice(end, end + size))
        end = -(-(end + size) // _ALIGNMENT) * _ALIGNMENT
    return places, places[-1].stop if len(places) == 1 else end
