"""Tables of what is made once for all like calls, arrays or keys."""

from __future__ import annotations

import contextlib
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST = 4096  # entries of a table; a program that never repeats a shape must not grow without end


def keep(table: dict[Key, Value], key: Key, value: Value) -> Value:
    """Keep a value, and drop the oldest of more than `MOST`."""
    table[key] = value
    while len(table) > MOST:
        with contextlib.suppress(RuntimeError, StopIteration):  # another thread adds or drops one meanwhile
            table.pop(next(iter(table)), None)
    return value
