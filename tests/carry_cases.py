"""Calls with incoming and outgoing carries, and totals, for every kernel family."""

from __future__ import annotations

from typing import Any

from draws import draws
from feature_cases import FAMILIES, Case, of_family

from cuscan.operators import INDEXED

# Families that take no arrays beside the values. A tile of strips is a unit, a part of one, or several units.
NARROW: dict[str, dict[str, Any]] = {
    "strips": {"shape": (2, 700, 12), "axis": 1},
    "strips-own": {"shape": (300, 128), "axis": 0, "sms": 1},
    "strips-own-parts": {"shape": (700, 160), "axis": 0, "sms": 1},
    "strips-pairs": {"shape": (4500, 2), "axis": 0},
    "whole-rows": {"shape": (3, 700, 37), "axis": 1},
    "whole-rows-17": {"shape": (2600, 17), "axis": 0},
}
BACKWARDS, LEADING = {"reverse": True}, {"include_initial": True}
PRODUCTS = {"draw": draws("float32"), "call": {**BACKWARDS, "exclusive": True}}
MAX, MIN = INDEXED["max", "first"], INDEXED["min", "last"]


def named(family: str, name: str, op: Any = "add", carry: str = "both", **fields: Any) -> Case:
    made = of_family(family, name, op, carry=carry, seeds=1, **fields) if family in FAMILIES else None
    return made or Case(f"{family}-{name}", op, carry=carry, seeds=1, **{**NARROW[family], **fields})


def products(family: str) -> Case:
    """Reverse, exclusive products; panels get a mask, because without one strips would take the call."""
    return named(family, "mul", "mul", masked=family.startswith("panels"), **PRODUCTS)


def totals(family: str) -> Case:
    return named(family, "total", carry="total", masked=family.startswith("panels"))
