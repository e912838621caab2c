"""The matrix as data: cases, each with its floor (`must`) and aim, and the peers that it is measured beside.

Peers that compile for seconds (torch.compile, JAX, cuda.compute), CuPy, and torch where a group has many cells alike,
are measured on a few cells of each group.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from cuscan.bench.cases import Case
from cuscan.bench.layouts import VIEWS
from cuscan.bench.segments import KINDS, SPLITS

SQUARE = (32768, 32768)
GIB = 1 << 30
EAGER = ("torch", "cupy")
EVERYBODY = ("torch", "torch.compile", "cupy", "jax")
ONE_ROW = ("torch", "cub")
# Rows of a power of two, of vocabularies, of primes' neighbours, and of next to nothing.
LENGTHS = [2, 3, 7, 16, 31, 32, 33, 100, 128, 255, 256, 1000, 1001, 1024, 4096, 4097, 10000, 32768, 65537, 128256]
LENGTHS += [151936, 2**20 + 1, 2**24]


def _uses() -> Iterable[Case]:
    for flags in ({}, {"reverse": True}, {"exclusive": True}, {"masked": True}):
        yield Case(SQUARE, axis=1, must=0.85, aim=0.98, peers=("torch",), **flags)  # type: ignore[arg-type]
    yield Case((2**28,), must=0.7, aim=0.97, peers=ONE_ROW)
    yield Case(SQUARE, axis=0, must=0.7, aim=0.95, peers=("torch",))
    yield Case((2**20, 2), axis=0, must=0.1, aim=0.95, peers=("torch",))
    yield Case((2**22, 16), axis=1, must=0.1, aim=0.95, peers=("torch",))


def _rows() -> Iterable[Case]:
    floor: dict[str, Any] = {"axis": 1, "must": 0.95, "aim": 0.98}
    for dtype, peers in (("float32", EVERYBODY), ("bfloat16", ("torch",))):
        yield Case(SQUARE, dtype=dtype, peers=peers, **floor)
        yield Case(SQUARE, dtype=dtype, reverse=True, peers=("torch",), **floor)
        yield Case(SQUARE, dtype=dtype, exclusive=True, peers=("torch",), **floor)
        yield Case(SQUARE, dtype=dtype, reverse=True, exclusive=True, peers=("torch",), **floor)
        yield Case(SQUARE, dtype=dtype, masked=True, peers=peers, **floor)


def _long() -> Iterable[Case]:
    for power, must in ((26, 0.88), (28, 0.92), (30, 0.93)):
        for dtype in ("float32", "float64", "int32", "int64", "float16", "bfloat16", "complex64"):
            peers = ONE_ROW + (("cupy",) if power == 28 and dtype != "bfloat16" else ())
            peers += ("jax", "cuda.compute") if power == 28 and dtype == "float32" else ()
            yield Case((2**power,), dtype=dtype, result=dtype, must=must, aim=0.97, peers=peers)
    for op in ("min", "max", "mul"):
        yield Case((2**28,), op=op, must=0.92, aim=0.97, peers=ONE_ROW)


def _items() -> Iterable[Case]:
    for dtype in ("int8", "uint8", "int16"):
        yield Case((2**30,), dtype=dtype, result=dtype, must=0.85, aim=0.95, peers=ONE_ROW)
    for dtype, result in (("uint8", "int64"), ("bool", "int64"), ("int32", "int64"), ("float16", "float32")):
        yield Case((2**28,), dtype=dtype, result=result, must=0.85, aim=0.95, peers=(*ONE_ROW, "cupy"))


def _lengths() -> Iterable[Case]:
    for dtype, itemsize in (("float32", 4), ("bfloat16", 2)):
        for length in LENGTHS:
            few = length in (16, 1000, 32768)
            peers: tuple[str, ...] = EAGER if few and dtype == "float32" else ("torch",)
            peers = peers if few or dtype == "float32" else ()
            yield Case((GIB // itemsize // length, length), axis=1, dtype=dtype, must=0.85, aim=0.95, peers=peers)


def _few() -> Iterable[Case]:
    for rows in (1, 2, 3, 8, 64, 100):
        for power in range(22, 28):
            peers = ONE_ROW if rows == 1 else EAGER if power == 24 else ("torch",) if power in (22, 27) else ()
            yield Case((rows, 2**power), axis=1, must=0.88, aim=0.95, peers=peers)


def _axes() -> Iterable[Case]:
    floor: dict[str, Any] = {"must": 0.85, "aim": 0.95, "slack_us": 6}
    yield Case(SQUARE, axis=0, peers=EVERYBODY, **floor)
    yield Case(SQUARE, axis=0, dtype="bfloat16", peers=("torch",), **floor)
    for columns in (2, 3, 4, 8, 16, 32, 100):
        yield Case((2**20, columns), axis=0, peers=EAGER, **floor)
    yield Case((2**26, 2), axis=0, peers=("torch",), **floor)
    for rows in (65536, 16384):
        yield Case((rows, 256), axis=0, dtype="int32", result="int32", peers=EAGER, **floor)
    yield Case((8, 4096, 4096), axis=1, dtype="bfloat16", peers=("torch",), **floor)
    for shape in ((16, 16384, 1024), (4, 2048, 8, 1024), (29, 4099, 257)):
        yield Case(shape, axis=1, peers=EAGER, **floor)


def _views() -> Iterable[Case]:
    for name in ("x.T", "x[:, ::2]", "x[:, 1:]", "x[:, ::-1]", "broadcast"):
        peers = ("cupy",) if "-1" in name else EAGER
        yield Case((16384, 16384), axis=1, view=VIEWS[name], must=0.7, aim=0.9, peers=peers)


def _operators() -> Iterable[Case]:
    row = (2**28,)
    for case in (Case(row, peers=ONE_ROW), Case(SQUARE, axis=1, peers=("torch", "jax"))):
        yield dataclasses.replace(case, op="max", must=0.9, aim=0.97)
    yield Case(row, op="max with indices", must=0.85, aim=0.95, peers=("torch",))
    for shape in (row, (4096, 65536)):
        yield Case(shape, op="logaddexp", must=0.6, aim=0.85, peers=("torch", "jax"))
    floor: dict[str, Any] = {"must": 0.85, "aim": 0.95}
    yield Case(row, masked=True, peers=("torch",), **floor)
    yield Case(row, skipna=True, peers=("torch",), **floor)
    yield Case(row, include_initial=True, peers=("torch",), **floor)
    for op in ("and", "or", "xor"):
        yield Case(row, op=op, dtype="int32", peers=(), **floor)
    yield Case((2**27,), op="mul", dtype="complex64", peers=("torch",), **floor)
    for op in ("affine", "matrix_product"):
        yield Case((2**26,), op=op, must=0.8, aim=0.93, peers=())


def _recurrence() -> Iterable[Case]:
    everybody = ("accelerated-scan", "torch.compile")
    for shape in ((8, 1536, 4096), (8, 1536, 65536)):
        for dtype, must in (("float32", 0.93), ("bfloat16", 0.9)):
            peers = everybody if shape[2] == 4096 else everybody[:1]
            yield Case(shape, op="linear_recurrence", dtype=dtype, must=must, aim=0.97, peers=peers)
    yield Case((1, 512, 131072), op="linear_recurrence", must=0.93, aim=0.97, peers=everybody)
    yield Case((1, 2**27), axis=1, op="linear_recurrence", must=0.9, aim=0.97, peers=())
    yield Case((8, 4096, 2048), axis=1, op="linear_recurrence", dtype="bfloat16", must=0.9, aim=0.97, peers=())


def _segments() -> Iterable[Case]:
    for power in (26, 28):
        for split in SPLITS:
            for kind in KINDS:
                peers = ("cub",) if kind == "keys" else ()
                yield Case((2**power,), segments=kind, split=split, must=0.8, aim=0.93, peers=peers)


def _carry() -> Iterable[Case]:
    rows, long, columns = Case(SQUARE, axis=1), Case((2**28,)), [Case(SQUARE, axis=0), Case((2**20, 100), axis=0)]
    recurrences = [Case((8, 1536, 65536), op="linear_recurrence"), Case((8, 4096, 4096), 1, op="linear_recurrence")]
    beside: dict[str, Any] = {"how": "carry", "peers": ()}
    for case in (rows, long, *columns, *recurrences):
        yield dataclasses.replace(case, **beside, carry="in and out", must=0.98, aim=1.0)
    others = [dataclasses.replace(rows, dtype="bfloat16"), dataclasses.replace(long, op="max")]
    for case in (rows, long, *others, *columns, *recurrences):
        must = 0.9 if case in (rows, long, *others) else 0.7
        yield dataclasses.replace(case, **beside, carry="total", must=must, aim=0.97)


def _small() -> Iterable[Case]:
    floor: dict[str, Any] = {"how": "replay", "must": 1.0, "aim": 0.6}
    for power in range(8, 25):
        yield Case((2**power,), peers=ONE_ROW, **floor)
    yield Case((1, 151936), axis=1, peers=ONE_ROW, **floor)
    for shape in ((64, 128256), (512, 128256), (4096, 32), (16, 80, 8, 256)):
        yield Case(shape, peers=("torch",), **floor)
    yield Case((8192, 64), axis=0, peers=("torch",), **floor)


def _host() -> Iterable[Case]:
    for call, must in (("torch.cumsum(x, 0, out=y)", 0.75), ("torch.cumsum(x, 0)", 1.0)):
        yield Case((1000,), how="queue", call=call, must=must, aim=0.7)
    yield Case((1000,), how="queue", call="cupy.cumsum(x, 0, out=y)", must=0.4, aim=0.2)


def _first() -> Iterable[Case]:
    yield Case((1000,), how="first", must=150.0, aim=50.0)


def _training() -> Iterable[Case]:
    layer = (8, 4096, 2048)
    half: dict[str, Any] = {"axis": 1, "op": "linear_recurrence", "dtype": "bfloat16"}
    step: dict[str, Any] = {"how": "train", "label": "layer", "call": "torch.nn.Module, forward and backward"}
    yield Case(layer, must=1.0, aim=0.7, peers=("accelerated-scan", "torch"), **half, **step)
    floor: dict[str, Any] = {"how": "train", "call": "torch.autograd.grad beside the scan", "peers": ()}
    for label, must, aim in (("backward of b", 1.05, 1.0), ("backward", 2.2, 2.0)):  # of a, too: a scan, a product
        yield Case(layer, label=label, must=must, aim=aim, **half, **floor)
        yield Case((1024, 65536), axis=1, op="linear_recurrence", label=label, must=must, aim=aim, **floor)
    yield Case((8192, 32768), axis=1, label="backward", must=1.05, aim=1.0, **floor)
    yield Case(layer, axis=1, label="backward", must=1.05, aim=1.0, **floor)
    host: dict[str, Any] = {"how": "train", "label": "host", "call": "torch.cumsum(x, 0), forward and backward"}
    for op, must, aim in (("add", 1.2, 1.0), ("mul", 2.0, 1.2), ("linear_recurrence", 2.0, 1.2)):
        yield Case((1000,), op=op, must=must, aim=aim, **host)


def _programs() -> Iterable[Case]:
    jit: dict[str, Any] = {"how": "jax", "call": "jax.jit(cuscan.cumsum)", "label": "GPU", "must": 1.05, "aim": 1.0}
    yield Case(
        (1000,), how="jax", label="host", call="jax.jit of 16 scans, each", op="min", must=1.0, aim=0.6, peers=()
    )
    yield Case((2**28,), peers=("jax",), **jit)
    for axis in (0, 1):
        yield Case((8192, 16384), axis=axis, peers=("jax",), **jit)
    step: dict[str, Any] = {"how": "jax", "call": "jax.value_and_grad, in jax.jit", "label": "training"}
    layer: dict[str, Any] = {"axis": 1, "op": "linear_recurrence", "dtype": "bfloat16", "peers": ("jax",)}
    yield Case((8, 4096, 2048), must=0.8, aim=0.4, **layer, **step)


CELLS: dict[str, Callable[[], Iterable[Case]]] = {
    "uses": _uses,
    "rows": _rows,
    "long": _long,
    "items": _items,
    "lengths": _lengths,
    "few": _few,
    "axes": _axes,
    "views": _views,
    "operators": _operators,
    "recurrence": _recurrence,
    "segments": _segments,
    "carry": _carry,
    "small": _small,
    "host": _host,
    "first": _first,
    "training": _training,
    "programs": _programs,
}
