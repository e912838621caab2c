"""Arrays without memory, and the operands of a call made from any views."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from cuscan.dtypes import DTYPES
from cuscan.interop.numpy import LIBRARY
from cuscan.interop.view import ArrayKind, ArrayView, Device
from cuscan.request.call import Operands


def view(
    shape: tuple[int, ...],
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
    pointer: int = 0,
    library: Any = LIBRARY,
) -> ArrayView:
    """An array without memory; C-contiguous unless strides, in elements, are given."""
    if strides is None:
        strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    kind = ArrayKind(library, DTYPES[dtype], tuple(shape), tuple(strides), Device("cuda", 0))
    return ArrayView(None, kind, pointer)


def of_another_kind(one: ArrayView, **changes: Any) -> ArrayView:
    """The same array with other attributes of its kind."""
    names = ("library", "dtype", "shape", "strides", "device", "readonly")
    kind = ArrayKind(**{name: changes.get(name, getattr(one.kind, name)) for name in names})
    return dataclasses.replace(one, kind=kind)


def operands(
    x: ArrayView | tuple[ArrayView, ...],
    mask: ArrayView | None = None,
    segments: tuple[str, ArrayView] | None = None,
    row_initial: ArrayView | None = None,
    out: ArrayView | tuple[ArrayView, ...] | None = None,
) -> Operands:
    """The operands of a call. `x` and `out` are one array or a tuple; `segments` is a kind and an array."""
    values = (x,) if isinstance(x, ArrayView) else x
    outs = (out,) if isinstance(out, ArrayView) else out
    kind, boundaries = segments or ("reset", None)
    beside = {"mask": mask, kind: boundaries, "initial": row_initial}
    given = {name: view for name, view in beside.items() if view is not None}
    return Operands((*values, *given.values()), ("x",) * len(values) + tuple(given), outs)
