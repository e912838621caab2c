"""Mistakes in the device code, one line each, put there on purpose: the simulated kernels must notice every one.

A module of this package has `CASES`, what can notice mistakes, by name: functions that raise for a copy of the device
code with wrong results. And it has `MISTAKES`, each with the case that must notice it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from simulator import DeviceCode

Check = Callable[[DeviceCode], None]


class Kind(enum.Enum):
    """The kind of a mistake."""

    WAIT = "a thread does not wait, or waits for the wrong thing"
    ORDER = "operands or halves are swapped"
    BOUND = "one too many or too few, or beyond an array"
    PLACE = "the wrong address, element or word"
    STALE = "what an earlier launch or tile has left"
    LOST = "a total or a part of the work is left out"
    MEANING = "the operator or the segment means something else"


@dataclass(frozen=True)
class Mistake:
    """What is wrong, the case that must notice it, and the text of a header (`old`) that `new` replaces."""

    name: str
    kind: Kind
    case: str
    header: str
    old: str
    new: str
