"""Tables of what is made once for all like calls, arrays or keys."""

from __future__ import annotations

from collections import OrderedDict as Table  # a dict looks for its oldest entry among the places of all dropped ones
from typing import TypeVar

__all__ = ["MOST", "Table", "keep"]

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST = 4096  # entries of a table; a program that never repeats a shape must not grow without end


def keep(table: Table[Key, Value], key: Key, value: Value) -> Value:
    """Keep a value, and drop the oldest of more than `MOST`."""
    table[key] = value
    while len(table) > MOST:
        table.popitem(last=False)
    return value
