"""The matrix as data: groups of cases."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from cuscan.bench.cases import Case

SQUARE = (32768, 32768)


def _rows() -> Iterable[Case]:
    yield Case(SQUARE, axis=1)
    yield Case(SQUARE, axis=1, reverse=True)
    yield Case(SQUARE, axis=1, exclusive=True)
    yield Case(SQUARE, axis=1, masked=True)
    yield Case(SQUARE, axis=1, reverse=True, exclusive=True)
    yield Case(SQUARE, axis=1, dtype="bfloat16")


def _long() -> Iterable[Case]:
    for power in (26, 28, 30):
        yield Case((2**power,))
    for dtype in ("float64", "int64", "int32", "float16", "bfloat16", "complex64", "uint8", "int16"):
        yield Case((2**28,), dtype=dtype, result=dtype)
    yield Case((2**28,), dtype="uint8")
    for op in ("mul", "max"):
        yield Case((2**28,), op=op)


def _axes() -> Iterable[Case]:
    yield Case(SQUARE, axis=0)
    yield Case((2**20, 2), axis=0)
    yield Case((65536, 256), axis=0, dtype="int32", result="int32")
    yield Case((8, 4096, 4096), axis=1, dtype="bfloat16")
    yield Case((29, 4099, 257), axis=1)


def _short() -> Iterable[Case]:
    for rows, length in ((2**22, 16), (2**20, 128), (2**24, 7), (2**18, 1000), (2**22, 33), (2**16, 4097)):
        yield Case((rows, length), axis=1)


def _views() -> Iterable[Case]:
    for view in ("x[:, ::2]", "x[:, 1:]", "x.T", "x[:, ::-1]", "broadcast"):
        yield Case((16384, 16384), axis=1, view=view)


GROUPS = {"rows": _rows, "long": _long, "axes": _axes, "short": _short, "views": _views}
TITLES = {
    "rows": "(32768, 32768), along the rows",
    "long": "One long row",
    "axes": "Other axes",
    "short": "Many short rows",
    "views": "Views",
}


def cases(groups: Iterable[str], limit: int | None = None) -> list[Case]:
    """The cases of some groups; with `limit`, shrunk to so many elements."""
    found = [dataclasses.replace(case, group=group) for group in groups for case in GROUPS[group]()]
    if limit is not None:
        found = [dataclasses.replace(case, shape=shrink(case.shape, limit)) for case in found]
    return list({case.name: case for case in found}.values())


def shrink(shape: tuple[int, ...], limit: int) -> tuple[int, ...]:
    """The shape with its largest axis halved until it has no more than `limit` elements."""
    sizes = list(shape)
    while math.prod(sizes) > limit:
        largest = max(range(len(sizes)), key=sizes.__getitem__)
        sizes[largest] = -(-sizes[largest] // 2)
    return tuple(sizes)
