"""The element types, one row each. A new dtype needs a row here and a C++ type in `cuda/types.cuh`."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Kind(enum.Enum):
    """The families of element types that operators and promotion rules distinguish."""

    BOOL = "bool"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    FLOAT = "floating point"
    COMPLEX = "complex"


@dataclass(frozen=True, eq=False)
class DType:
    """An element type; one object per type, so identity is equality.

    Attributes:
        name: the name that NumPy (with ml_dtypes), CuPy and torch share; also the C++ type.
        kind: its family.
        itemsize: bytes per element.
        accumulator: name of the type of partial results within a tile.
        wide: name of the type in which sums and products are carried from tile to tile: wider than a result, where
            there is such a type, so that the rounding errors of many tiles do not show in it.
    """

    name: str
    kind: Kind
    itemsize: int
    accumulator: str
    wide: str

    def __repr__(self) -> str:
        return self.name

    @property
    def cpp(self) -> str:
        """The type's name in the device code."""
        return {"bool": "boolean"}.get(self.name, self.name)


_ROWS = (
    DType("bool", Kind.BOOL, 1, "uint32", "uint32"),
    DType("int8", Kind.SIGNED, 1, "int32", "int32"),
    DType("int16", Kind.SIGNED, 2, "int32", "int32"),
    DType("int32", Kind.SIGNED, 4, "int32", "int32"),
    DType("int64", Kind.SIGNED, 8, "int64", "int64"),
    DType("uint8", Kind.UNSIGNED, 1, "uint32", "uint32"),
    DType("uint16", Kind.UNSIGNED, 2, "uint32", "uint32"),
    DType("uint32", Kind.UNSIGNED, 4, "uint32", "uint32"),
    DType("uint64", Kind.UNSIGNED, 8, "uint64", "uint64"),
    DType("float16", Kind.FLOAT, 2, "float32", "float32"),
    DType("bfloat16", Kind.FLOAT, 2, "float32", "float32"),
    DType("float32", Kind.FLOAT, 4, "float32", "float64"),
    DType("float64", Kind.FLOAT, 8, "float64", "float64"),
    DType("complex64", Kind.COMPLEX, 8, "complex64", "complex128"),
    DType("complex128", Kind.COMPLEX, 16, "complex128", "complex128"),
)

DTYPES = {row.name: row for row in _ROWS}
INTEGERS = frozenset({Kind.SIGNED, Kind.UNSIGNED})
EXACT = INTEGERS | {Kind.BOOL}
INEXACT = frozenset({Kind.FLOAT, Kind.COMPLEX})
REAL = EXACT | {Kind.FLOAT}
EVERY = frozenset(Kind)
