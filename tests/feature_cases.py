"""Calls of the wider features for simulated kernels, and their results by NumPy in the same order.

A `Case` names an operator, a way to share the work among blocks, and its arrays: values, mask, segments, initial
values. Cases that differ only in the contents of the arrays share a compiled kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from draws import NUMBERS, Array, Draw, carried, steps
from simulator import CODE, DeviceCode, Simulation, assert_same, prepare, small_units

from cuscan.backends.arrange import starts_of
from cuscan.backends.fields import Inputs
from cuscan.backends.host import evaluate
from cuscan.interop.numpy import numpy_dtype
from cuscan.operators import LINEAR_RECURRENCE, Monoid
from cuscan.planning.config import Target
from cuscan.request.initial import check_start

UNITS = (2, 2)  # warps and vectors of a small unit: 512 elements of 4 bytes, 256 steps of columns

# A shape for each kernel family and way to share the work. "alone": one block takes all tiles. "older": the hardware
# has no bulk copies, so tiles stay in registers.
FAMILIES: dict[str, dict[str, Any]] = {
    "rows": {"shape": (37, 100)},
    "thread-rows": {"shape": (40, 27)},
    "thread-rows-long": {"shape": (37, 101)},
    "staged-rows": {"shape": (29, 101)},
    "rows-long": {"shape": (37, 200), "units": (8, 1)},
    "staged-rows-long": {"shape": (37, 201), "units": (8, 1)},
    "cluster-of-one": {"shape": (5, 500), "cluster": 16},
    "cluster": {"shape": (3, 2300), "cluster": 16},
    "cluster-pairs": {"shape": (2, 3100), "cluster": 4},
    "tile-a-row": {"shape": (5, 500)},
    "tiles-shared": {"shape": (3, 1700)},
    "tiles-alone": {"shape": (18, 1700), "sms": 1},
    "tiles-older": {"shape": (3, 1700), "arch": 80},
    "panels": {"shape": (4, 50, 9), "axis": 1},
    "panels-shared": {"shape": (2, 2100, 9), "axis": 1},
    "panels-kept": {"shape": (3, 2100, 9), "axis": 1, "sms": 1},
}
SHORT = ("rows", "cluster", "tiles-shared", "panels-shared")  # one case of each family


# ---- segments ------------------------------------------------------------------------------------


def _edges(n: int) -> Array:
    """Positions at the borders of vectors, warp tiles and units, and next to them."""
    steps = {0, 4, 8, 120, *range(0, n + 1, 128), n // 2, n - 4, n}
    return np.array(sorted({p + d for p in steps for d in (-1, 0, 1) if 0 <= p + d <= n}))


def _empty_ones(n: int) -> Array:
    """Thousands of empty segments at the edge of a unit, some elsewhere; the last segment with elements is long."""
    places = [0, n // 3, 256, 512, n]
    counts = [40, 100, 33, 3000, 32]
    return np.sort(
        np.concatenate(
            [[0, 1, 2, *(min(p, n) for p in (257, 513, 514)), n], np.repeat([min(p, n) for p in places], counts)]
        )
    )


def _random_offsets(n: int) -> Array:
    return np.sort(np.concatenate([[0, n], np.random.default_rng(n).integers(0, n + 1, n // 10)]))


OFFSETS: dict[str, Callable[[int], Array]] = {
    "edges": _edges,
    "empty": _empty_ones,
    "one": lambda n: np.array([0, n]),
    "each": lambda n: np.arange(n + 1),
    "random": _random_offsets,
    "strided": lambda n: np.repeat(_random_offsets(n), 3)[::3],
    "backwards": lambda n: _random_offsets(n)[::-1].copy()[::-1],
}


def _thin(array: Array, shape: tuple[int, ...], axis: int) -> Array:
    """The array along the scanned axis, with size 1 along all others, so that it broadcasts."""
    return array.reshape([-1 if a == axis % len(shape) else 1 for a in range(len(shape))])


def _runs(rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> Array:
    return (1 + np.cumsum(rng.random(shape) < 0.03, axis)) % 5


def segments_of(name: str, rng: np.random.Generator, shape: tuple[int, ...], axis: int) -> dict[str, Array]:
    """The keyword of segments: `name` is their kind and, after a dash, a variant of it."""
    kind, _, special = name.partition("-")
    n = shape[axis]
    if not kind:
        return {}
    if kind == "offsets":
        narrow, _, made = special.rpartition("-")
        return {"offsets": OFFSETS[made or "edges"](n).astype(narrow or np.int64, copy=False)}
    if kind == "reset":
        if special in ("all", "none"):
            return {"reset": np.full(shape, special == "all")}
        if special == "rare":  # few vectors of a warp have one
            return {"reset": rng.random(shape) < 0.001}
        if special == "thin":
            return {"reset": _thin(rng.random(n) < 0.05, shape, axis)}
        if special == "still":  # the same along the axis
            lines = np.expand_dims(rng.random(np.delete(shape, axis)) < 0.5, axis)
            return {"reset": np.broadcast_to(lines, shape)}
        reset = rng.choice(np.array([0, 1, 2, 255], np.uint8), shape, p=[0.97, 0.01, 0.01, 0.01])
        np.moveaxis(reset, axis, -1)[..., _edges(n)[:-1] % n] |= rng.random(len(_edges(n)) - 1) < 0.3
        return {"reset": reset.view(bool)}
    if special == "full":
        return {"keys": _runs(rng, shape, axis)}
    keys = _runs(rng, (n,), 0)
    if special == "bool":
        return {"keys": (keys.astype(np.uint8) % 3).view(bool)}
    if special.startswith(("float", "bfloat")):
        keys = np.where(keys == 3, np.nan, np.where(keys == 0, -0.0, keys - 1.0))
    return {"keys": keys.astype(ml_dtypes.bfloat16 if special == "bfloat16" else special or "int32")}


# ---- a call --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A call, and how to simulate it. An `initial` of "rows" is an array with one value per row.

    `carry`: "in", "out", "both", or "total", which means both, without results.
    """

    name: str
    op: str | Monoid
    shape: tuple[int, ...]
    axis: int = -1
    sms: int = 4
    arch: int = 90
    shared_bytes: int = 228 * 1024  # per SM
    cluster: int = 0  # largest cluster, in blocks
    draw: Draw = NUMBERS
    masked: bool = False
    segments: str = ""
    initial: Any = None
    carry: str = ""
    in_place: int | None = None  # number of the value whose memory takes the result
    units: tuple[int, int] | None = UNITS  # None: the units of the real tuning
    seeds: int = 2
    call: dict[str, Any] = field(default_factory=dict)

    def prepare(self) -> tuple[Simulation, tuple[Array, ...]]:
        """The launch, and the results of the NumPy backend."""
        rng = np.random.default_rng(len(self.name))
        values = self.draw(rng, self.shape, self.axis)
        shape = np.broadcast_shapes(*(value.shape for value in values))
        rows = tuple(np.delete(shape, self.axis))
        initial = rng.standard_normal(rows).astype(values[-1].dtype) if self.initial == "rows" else self.initial
        with contextlib.nullcontext() if self.units is None else small_units(*self.units):
            call = {
                "axis": self.axis,
                "mask": rng.random(shape) < 0.7 if self.masked else None,
                "initial": initial,
                "out": None if self.in_place is None else values[self.in_place],
                "target": Target(self.arch, self.sms, self.shared_bytes, self.cluster),
                **segments_of(self.segments, rng, shape, self.axis),
                **self.call,
                "return_carry": self.carry in ("out", "both", "total"),
                "only_carry": self.carry == "total",
            }
            if self.carry in ("in", "both", "total"):
                fields = prepare(values, self.op, **{**call, "return_carry": True}).request.carry_out
                call["carry"] = tuple(carried(rng, rows, field.dtype.name) for field in fields)
            simulation = prepare(values, self.op, **call)
            return simulation, twin(simulation, None if self.initial == "rows" else initial)

    def check(self, code: DeviceCode = CODE) -> None:
        """Compare the results bit for bit."""
        simulation, expected = self.prepare()
        for seed in range(self.seeds):
            results = simulation.run_all(seed, code=code)
            for result, wanted in zip(results, expected, strict=True):
                assert_same(result, wanted)


def of_family(family: str, name: str, op: str | Monoid, **fields: Any) -> Case:
    """A case with the shape of a family."""
    return Case(f"{family}-{name}", op, **{**FAMILIES[family], **fields})


# One block has 60 tiles, which three groups take in turn, through seven stages.
TURNS = Case("rows-of-one-tile", LINEAR_RECURRENCE, (60, 4096), sms=1, draw=steps(), units=None, seeds=3)


def twin(simulation: Simulation, initial: Any) -> tuple[Array, ...]:
    """The results of the NumPy backend, in the same order of combination; offsets are not checked."""
    request = simulation.request
    arrays = [a if a is None or a.dtype != ml_dtypes.bfloat16 else a.view(np.uint16) for a in simulation.arrays]
    count = len(request.values)
    mask, segments, rows, *carry = arrays[count:]
    rows = None if rows is None else rows.squeeze(request.axis)
    start = check_start(initial, request.op, request.result.dtype)
    fields = tuple(field.squeeze(request.axis) for field in carry)
    if request.segments is not None and request.segments.kind == "offsets":
        segments = starts_of(request, segments)
    results, last, behind = evaluate(request, Inputs(tuple(arrays[:count]), mask, segments, rows, fields), start)
    given = [result.view(numpy_dtype(spec.dtype)) for result, spec in zip(results, request.results, strict=False)]
    specs = request.carry_out
    behind = [field.view(numpy_dtype(spec.dtype)) for field, spec in zip(behind, specs, strict=True)]
    return (*given, *([] if request.last is None else [last]), *behind)
