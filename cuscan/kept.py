"""Bounded caches of values computed once for equal calls, arrays or keys."""

from __future__ import annotations

from collections import OrderedDict as Table  # finding a dict's oldest entry takes a search over deleted ones
from typing import TypeVar

__all__ = ["MOST", "Table", "keep"]

Key = TypeVar("Key")
Value = TypeVar("Value")

MOST = 4096  # entries per table, so that a program that never repeats a shape does not grow without bound


def keep(table: Table[Key, Value], key: Key, value: Value) -> Value:
    """Add a value, drop the oldest entries beyond `MOST`, and return the value."""
    table[key] = value
    while len(table) > MOST:
        table.popitem(last=False)
    return value
