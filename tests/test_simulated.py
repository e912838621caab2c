"""The kernels in the simulator, compared bit for bit with NumPy in the same order (`cuscan.backends.host`)."""

from __future__ import annotations

import contextlib
import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import simulator
from selection import covering, facets_of, pairs_of
from simulator import Memory, Simulation, assert_same, new_workspace, prepare, simulate, small_units

import cuscan
from cuscan.dtypes import DTYPES
from cuscan.interop.numpy import numpy_dtype
from cuscan.operators import OPERATORS
from cuscan.planning.config import Target

pytestmark = pytest.mark.skipif(
    not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing"
)

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A call, and how to simulate it. `units` are the (warps, vectors) of a small unit; None is the real tuning.

    `shifts`: bytes by which the array and the result lie beyond a multiple of 16. All rows do so if `pitch`, the bytes
    from one row to the next in both arrays, is a multiple of 16.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    op: str = "add"
    layout: str = "c"
    masked: bool | str = False
    in_place: bool = False
    shifts: tuple[int, int] | None = None
    pitch: int = 0
    units: tuple[int, int] | None = (2, 2)
    arch: int = 90
    sms: int = 4
    cluster: int = 0  # largest cluster, in blocks
    seeds: int = 3
    call: dict[str, Any] = field(default_factory=dict)

    def tuning(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.units is None else small_units(*self.units)

    def arrays(self) -> tuple[Array, dict[str, Any]]:
        """The array and all keywords of the call."""
        rng = np.random.default_rng(len(self.name))
        value = LAYOUTS[self.layout](numbers(rng, self.dtype, self.op), self.shape)
        keywords = {**self.call}
        if self.shifts is not None:
            value = self._placed(value, value.dtype, self.shifts[0])
            dtype = numpy_dtype(DTYPES[self.call.get("dtype") or self.dtype])
            keywords["out"] = self._placed(np.zeros(value.shape, dtype), dtype, self.shifts[1])
        if self.masked:
            shape = (value.shape[-1],) if self.masked == "broadcast" else value.shape
            keywords["mask"] = LAYOUTS[self.layout](lambda shape: rng.random(shape) < 0.7, shape)
        return value, keywords

    def _placed(self, array: Array, dtype: Any, shift: int) -> Array:
        pitch = self.pitch or array.shape[-1] * array.itemsize
        memory = Memory.empty(array.shape, (pitch, array.itemsize), dtype, shift)
        memory.array[...] = array
        return memory.array

    def prepare(self) -> Simulation:
        value, keywords = self.arrays()
        if self.in_place:
            keywords["out"] = value
        with self.tuning():
            return prepare(value, self.op, target=Target(self.arch, self.sms, cluster=self.cluster), **keywords)

    def expected(self) -> Array:
        value, keywords = self.arrays()
        if self.in_place:
            keywords["out"] = value
        with self.tuning():
            return cuscan.scan(value, self.op, **keywords)


# ---- data ----------------------------------------------------------------------------------------


def numbers(rng: np.random.Generator, dtype: str, op: str) -> Any:
    """A function that draws arrays of any shape: integers of any bits, floats whose products stay in range."""

    def draw(shape: tuple[int, ...]) -> Array:
        if dtype == "bool":
            return rng.choice(np.array([0, 1, 2, 255], np.uint8), shape).view(bool)
        if dtype.startswith(("int", "uint")):
            limits = np.iinfo(dtype)
            return rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
        real = rng.standard_normal(shape)
        if op == "mul":
            real = 1 + real / 64
        if dtype.startswith("complex"):
            return (real + 0.1j * rng.standard_normal(shape)).astype(dtype)
        return real.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)

    return draw


def _misaligned(draw: Any, shape: tuple[int, ...]) -> Array:
    count = int(np.prod(shape))
    return draw((count + 1,))[1:].reshape(shape)


def _padded_rows(draw: Any, shape: tuple[int, ...]) -> Array:
    return draw((*shape[:-1], shape[-1] + 3))[..., : shape[-1]]


def _broadcast_rows(draw: Any, shape: tuple[int, ...]) -> Array:
    return np.broadcast_to(draw(shape[-1:]), shape)


# Functions that draw arrays with different layouts in memory.
LAYOUTS: dict[str, Any] = {
    "c": lambda draw, shape: draw(shape),
    "f": lambda draw, shape: np.asfortranarray(draw(shape)),
    "negative-rows": lambda draw, shape: draw(shape)[..., ::-1, :],
    "negative": lambda draw, shape: draw(shape)[..., ::-1],
    "every-third": lambda draw, shape: draw((*shape[:-1], 3 * shape[-1]))[..., ::3],
    "misaligned": _misaligned,
    "padded-rows": _padded_rows,
    "broadcast-rows": _broadcast_rows,
    "broadcast-elements": lambda draw, shape: np.broadcast_to(draw((*shape[:-1], 1)), shape),
}


# ---- cases ---------------------------------------------------------------------------------------

# One shape for each kernel family and way to share the work. All blocks share tiles, or one block takes all tiles
# ("alone"). Blocks share strips of columns or, where there are enough for all blocks, each block has its own.
FAMILIES = {
    "rows": {"shape": (37, 100)},
    "thread-rows": {"shape": (150, 27)},
    "staged-rows": {"shape": (37, 203), "units": None},
    "cluster-of-one": {"shape": (5, 500), "cluster": 16},
    "cluster": {"shape": (3, 2300), "cluster": 16},
    "cluster-pairs": {"shape": (2, 3100), "cluster": 4},
    "tile-a-row": {"shape": (5, 500)},
    "tiles-shared": {"shape": (3, 1700)},
    "tiles-alone": {"shape": (18, 1700), "sms": 1},
    "panels": {"shape": (4, 50, 9), "call": {"axis": 1}},
    "panels-shared": {"shape": (2, 700, 9), "call": {"axis": 1}},
    "panels-kept": {"shape": (12, 700, 9), "call": {"axis": 1}, "sms": 1},
    "strips": {"shape": (2, 700, 12), "call": {"axis": 1}},
    "strips-own": {"shape": (300, 128), "call": {"axis": 0}, "sms": 1},
    "strips-pairs": {"shape": (4500, 2), "call": {"axis": 0}},
    "whole-rows": {"shape": (3, 700, 37), "call": {"axis": 1}},
}


def of_family(family: str, name: str, call: dict[str, Any] | None = None, **fields: Any) -> Case:
    base = FAMILIES[family]
    return Case(f"{family}-{name}", **{**base, "call": {**base.get("call", {}), **(call or {})}, **fields})


def every_row_length() -> list[Case]:
    lengths = (1, 2, 3, 4, 5, 8, 16, 17, 31, 33, 64, 100, 127, 128, 129, 255, 256, 257, 511, 513, 1000, 1024)
    return [Case(f"rows-of-{n}", (rows, n), units=None) for n, rows in zip(lengths, itertools.cycle((1, 7, 150)))]


def unaligned_rows() -> list[Case]:
    """Rows through shared memory: lengths that are not multiples of words, stretches not multiples of pieces."""
    lengths = {
        "int8": (1, 2, 3, 5, 7, 15, 31, 101, 255, 257, 1001, 2047),
        "bfloat16": (1, 2, 3, 6, 7, 12, 31, 33, 100, 127, 129, 255, 1001),
        "float32": (1, 2, 3, 6, 7, 33, 63, 65, 66, 127, 255, 513, 1001),
        "complex64": (1, 3, 7, 31, 33, 65, 511),
    }
    turns = itertools.cycle(itertools.product((2, 67, 301), ("c", "misaligned"), (False, True), (False, True)))
    cases = []
    for dtype, lengths_of in lengths.items():
        for length, (rows, layout, reverse, masked) in zip(lengths_of, turns, strict=False):
            name = f"unaligned-{dtype}-{rows}x{length}-{layout}{'-reverse' * reverse}{'-masked' * masked}"
            call = {"reverse": reverse, "dtype": dtype, "exclusive": masked, "initial": 2 if masked else None}
            cases.append(Case(name, (rows, length), dtype, layout=layout, masked=masked, units=None, call=call))
    in_place = [
        Case(
            f"unaligned-in-place-{n}{'-reverse' * reverse}",
            (301, n),
            in_place=True,
            units=None,
            call={"reverse": reverse},
        )
        for n in (3, 31, 1001)
        for reverse in (False, True)
    ]
    return [*cases, *in_place]


def every_length() -> list[Case]:
    """Lengths around the borders of vectors, warp tiles, units and groups of small units: 4, 256, 512, 16384."""
    lengths = (257, 260, 511, 512, 513, 767, 1023, 1024, 1025, 1026, 5 * 512 - 1, 32 * 512, 33 * 512 + 5, 65 * 512)
    clusters = (257, 260, 511, 512, 513, 1024, 1025, 2 * 512 + 257, 5 * 512 - 1, 9 * 512, 16 * 512, 16 * 512 + 1)
    clusters += (19 * 512 + 300, 31 * 512 - 5, 32 * 512)
    return [
        *(Case(f"tiles-of-{n}", (n,)) for n in lengths),
        *(Case(f"cluster-of-{n}", (n,), cluster=16, sms=16) for n in clusters),
    ]


def every_dtype() -> list[Case]:
    tiles = [
        of_family("tiles-shared", f"{op.name}-{dtype.name}", dtype=dtype.name, op=op.name, units=(2, 1))
        for op in OPERATORS.values()
        for dtype in DTYPES.values()
        if op.exact and dtype.kind in op.kinds
    ]
    others = [
        of_family(family, dtype.name, dtype=dtype.name)
        for family in (
            "rows",
            "thread-rows",
            "staged-rows",
            "cluster",
            "tiles-alone",
            "panels",
            "panels-shared",
            "panels-kept",
            "strips",
            "strips-own",
            "strips-pairs",
            "whole-rows",
        )
        for dtype in DTYPES.values()
    ]
    return tiles + others


def every_option() -> list[Case]:
    def named(family: str, reverse: bool, exclusive: bool, masked: bool, initial: bool) -> Case:
        chosen = zip(("reverse", "exclusive", "masked", "initial"), (reverse, exclusive, masked, initial), strict=True)
        call = {"reverse": reverse, "exclusive": exclusive, "initial": 2.5 if initial else None}
        return of_family(family, "-".join(n for n, on in chosen if on) or "plain", call, masked=masked)

    return [named(family, *on) for family in FAMILIES for on in itertools.product((False, True), repeat=4)]


def every_layout() -> list[Case]:
    layouts = [
        of_family(
            family,
            f"{layout}{'-reverse' * reverse}{'-masked' * masked}",
            {"reverse": reverse},
            layout=layout,
            masked=masked,
        )
        for family in FAMILIES
        for layout in LAYOUTS
        for reverse, masked in ((False, False), (True, True))
    ]
    in_place = [
        of_family(family, f"in-place-{layout}", {"exclusive": True}, layout=layout, in_place=True)
        for family in FAMILIES
        for layout in ("c", "negative", "padded-rows")
    ]
    masks = [of_family(family, "mask-broadcast", masked="broadcast") for family in FAMILIES]
    # Without bulk copies tiles stay in registers. Bulk copies would take lengths that are multiples of 4.
    older = [
        of_family(family, "before-bulk-copies", arch=80, masked=True, shape=(FAMILIES[family]["shape"][0], 1700))
        for family in ("tiles-shared", "tiles-alone")
    ]
    return layouts + in_place + masks + older


def every_conversion() -> list[Case]:
    pairs = (
        ("bool", "int64"),
        ("bool", "float32"),
        ("int8", "int16"),
        ("int64", "int8"),
        ("uint8", "float16"),
        ("int32", "bool"),
        ("float16", "float32"),
        ("float32", "bfloat16"),
        ("float64", "float16"),
        ("float64", "float32"),
        ("float32", "complex64"),
        ("int16", "complex128"),
        ("complex64", "complex128"),
    )
    return [
        of_family(family, f"{source}-to-{result}", {"dtype": result}, dtype=source)
        for source, result in pairs
        for family in ("thread-rows", "staged-rows", "cluster", "tiles-shared", "panels-shared", "strips", "strips-own")
    ]


def packed_sums() -> list[Case]:
    """Small integers, several per word: any bits, every flag, lengths around words, vectors, warp tiles and units."""
    flags: tuple[dict[str, Any], ...] = (
        {},
        {"reverse": True},
        {"exclusive": True},
        {"reverse": True, "exclusive": True, "initial": 77},
        {"include_initial": True, "initial": 100},
    )
    families = ("rows", "staged-rows", "cluster", "tile-a-row", "tiles-shared", "tiles-alone")
    results = {"int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16"}
    turns = itertools.cycle(itertools.product((False, True), flags))
    cases = [
        of_family(family, f"sums-{dtype}-{masked}-{i}", {**call, "dtype": result}, dtype=dtype, masked=masked)
        for (dtype, result), family in itertools.product(results.items(), families)
        for i, (masked, call) in enumerate(itertools.islice(turns, 3))
    ]
    other_sign = {"int8": "uint8", "uint8": "int8", "int16": "uint16", "uint16": "int16"}
    lengths = (1, 3, 4, 15, 16, 17, 511, 513, 2047, 2048, 2049, 4097, 33 * 2048 + 3, 16384, 16 * 1024 + 1)
    cases += [
        Case(f"sums-of-{n}-{dtype}", (n,), dtype, masked=masked, call={**call, "dtype": result})
        for n, (dtype, result), (masked, call) in zip(lengths, itertools.cycle(other_sign.items()), turns, strict=False)
    ]
    cases += [
        of_family(
            family, f"sums-{dtype}-{layout}", {"dtype": dtype, "reverse": True}, dtype=dtype, layout=layout, masked=True
        )
        for family, dtype, layout in itertools.product(
            ("rows", "tiles-shared"), ("uint8", "int16"), ("misaligned", "negative", "broadcast-elements")
        )
    ]
    in_place = [
        of_family(family, f"sums-{dtype}-in-place", {"dtype": dtype, "exclusive": True}, dtype=dtype, in_place=True)
        for family, dtype in itertools.product(families, ("int8", "uint16"))
    ]
    real: dict[str, Any] = {"units": None, "seeds": 2, "masked": True}
    return [
        *cases,
        *in_place,
        Case("sums-uint8-real", (2 * 32768 + 77,), "uint8", call={"dtype": "uint8"}, **real),
        Case("sums-int8-real-mirrored", (3 * 32768,), "int8", call={"dtype": "int8", "reverse": True}, **real),
        Case("sums-int16-real-before-bulk-copies", (2, 9000), "int16", arch=80, call={"dtype": "int16"}, **real),
    ]


def packed_words() -> list[Case]:
    """The other operators that work on several small elements of a word: extrema, and operators on bits."""
    flags: tuple[dict[str, Any], ...] = (
        {},
        {"exclusive": True},
        {"reverse": True, "include_initial": True, "initial": 1},
        {"reverse": True, "exclusive": True},
        {"initial": 1},
    )
    families = ("rows", "staged-rows", "cluster", "tile-a-row", "tiles-shared", "tiles-alone")
    turns = itertools.cycle(itertools.product((False, True), flags))
    dtypes = ("int8", "uint8", "int16", "uint16", "bool")
    other_sign = {"int8": "uint8", "uint16": "int16"}
    cases = []
    for op in ("min", "max", "and", "or", "xor"):
        for (dtype, family), (masked, call) in zip(itertools.product(dtypes, families), turns, strict=False):
            name = f"{op}-{dtype}-{masked}-{'-'.join(call)}"
            cases.append(of_family(family, name, call, op=op, dtype=dtype, masked=masked))
        for dtype, result in other_sign.items():
            cases.append(of_family("tiles-shared", f"{op}-{dtype}-{result}", {"dtype": result}, op=op, dtype=dtype))
        next(turns)  # other flags for the next operator
    return cases


def shifted_rows() -> list[Case]:
    """Tiles of rows that begin anywhere: staged with the bytes around them, and stored in pieces that lanes share.

    The first and the last tile reach exactly to the ends of the array. Rows have one tile, several, or only whole ones.
    """
    flags = itertools.cycle(itertools.product((False, True), repeat=3))
    sizes = {"uint8": 1, "bfloat16": 2, "int32": 4, "float64": 8}
    cases = []
    for (dtype, size), reverse in itertools.product(sizes.items(), (False, True)):
        tile = 2 * 2 * 32 * 16 // size
        for shift, length in zip(range(0, 16, size), itertools.cycle((tile, tile + 77, 3 * tile, 2 * tile + 5))):
            for other in {(5 * shift + 3 * size) % 16, shift}:
                exclusive, masked, initial = next(flags)
                chosen = {"reverse": reverse, "exclusive": exclusive, "initial": 2 if initial else None, "dtype": dtype}
                name = f"shifted-{dtype}-by-{shift}-{other}-{length}{'-reverse' * reverse}"
                pitch = (length * size // 16 + 2) * 16 * (shift % 3 > 0)
                more: dict[str, Any] = {"masked": masked, "shifts": (shift, other), "pitch": pitch, "seeds": 2}
                op = "max" if dtype == "bfloat16" else "add"
                cases.append(Case(name, (3, length), dtype, op, call=chosen, **more))
    in_place = [
        of_family(family, f"shifted-in-place-{layout}-{dtype}", call, dtype=dtype, layout=layout, in_place=True, **more)
        for family, more in {"tiles-shared": {"shape": (5, 1701)}, "tiles-alone": {"shape": (18, 1701)}}.items()
        for layout in ("misaligned", "padded-rows", "negative")
        for dtype in ("uint8", "float16", "float32", "complex64")
        for call in ({"reverse": layout == "padded-rows", "dtype": dtype},)
    ]
    conversions = [
        of_family(
            "tiles-shared",
            f"shifted-{source}-to-{result}{'-reverse' * reverse}",
            {"dtype": result, "reverse": reverse},
            dtype=source,
            shape=(3, 1701),
            layout="misaligned",
        )
        for source, result in (
            ("uint8", "int64"),
            ("int64", "int8"),
            ("float64", "float16"),
            ("float16", "float64"),
            ("float32", "complex128"),
            ("complex64", "complex128"),
        )
        for reverse in (False, True)
    ]
    real: dict[str, Any] = {"units": None, "seeds": 2}
    others = [
        Case("shifted-last-tile-of-nothing", (3, 1024 + 512), layout="padded-rows", call={"include_initial": True}),
        Case("real-shifted-4097", (3, 4097), **real),
        Case("real-shifted-4097-reverse", (3, 4097), "bfloat16", layout="misaligned", call={"reverse": True}, **real),
        Case("real-shifted-two-loaders", (61, 2049), "bfloat16", sms=2, **real),
        Case("real-shifted-two-loaders-masked", (40, 4097), "bfloat16", masked=True, sms=1, **real),
        Case("real-shifted-16385", (2, 16385), masked=True, **real),
        Case("real-shifted-bytes", (2, 16384 + 5), "uint8", layout="misaligned", call={"dtype": "uint8"}, **real),
    ]
    return [*cases, *in_place, *conversions, *others]


def long_chains() -> list[Case]:
    """Chains of one group of units, of many groups, and of more than one section of groups."""
    tiny: dict[str, Any] = {"units": (1, 1), "seeds": 10}
    return [
        Case("chain-of-32-units", (32 * 128,), **tiny),
        Case("chain-of-33-units", (33 * 128 - 1,), **tiny),
        Case("cluster-of-32-units-of-one-warp", (32 * 128,), cluster=16, call={"initial": 0.5}, **tiny),
        Case("cluster-of-31-units-complex128", (31 * 32 - 1,), "complex128", cluster=16, **tiny),
        Case("clusters-one-after-the-other", (9, 5 * 128), cluster=16, sms=8, **tiny),
        Case("chain-of-100-units-initial", (2, 100 * 128 + 7), call={"initial": 0.5}, **tiny),
        Case("chain-of-100-units-complex128", (100 * 32,), "complex128", **tiny),
        Case("chain-of-3-sections", (2500 * 128,), **tiny),
        Case("chain-of-3-sections-complex128", (2049 * 32 + 5,), "complex128", **tiny),
        Case("chain-of-3-sections-initial", (2500 * 64,), "int64", call={"initial": 9}, **tiny),
        Case("chain-of-3-sections-exclusive", (1100 * 128,), call={"exclusive": True}, **tiny),
        Case("many-chains-of-33-units", (9, 33 * 128 - 1), sms=1, units=(1, 1), seeds=5),
        Case(
            "many-chains-of-100-units-initial",
            (9, 100 * 128),
            sms=1,
            call={"initial": 0.5, "reverse": True},
            units=(1, 1),
            seeds=3,
        ),
        Case("many-chains-of-3-sections", (9, 2050 * 128), sms=1, units=(1, 1), seeds=2),
        Case("chain-of-40-column-units", (40 * 256 + 3, 5), call={"axis": 0}, seeds=5),
        Case(
            "chain-of-4100-column-units", (4100 * 256, 2), "int32", call={"axis": 0, "dtype": "int32"}, arch=80, seeds=2
        ),
        Case("strips-chain-of-40-units", (40 * 256 + 3, 3), call={"axis": 0}, seeds=5),
        Case("strips-chain-of-300-units", (299 * 256 + 3, 12), call={"axis": 0}, seeds=3),
        Case("strips-chains-of-70-units", (70 * 256, 264), "float16", call={"axis": 0}, seeds=2),
        Case("strips-chain-of-4100-units", (4100 * 256 + 2, 2), call={"axis": 0}, seeds=2),
        Case("strips-chain-of-8200-units-initial", (8200 * 256, 1, 2), call={"axis": 0, "initial": 0.5}, seeds=1),
        Case("whole-rows-chain-of-150-units", (150 * 256 + 3, 35), call={"axis": 0}, seeds=2),
        Case("whole-rows-chain-of-300-units-of-18-columns", (300 * 256 + 3, 18), call={"axis": 0}, seeds=3),
        Case(
            "whole-rows-chain-of-150-units-of-17-columns", (150 * 256, 17), "bfloat16", call={"axis": 0, "initial": 2}
        ),
        Case("whole-rows-chain-of-75-units-initial", (75 * 256, 131), call={"axis": 0, "initial": 0.5}, seeds=1),
        Case(
            "whole-rows-chain-of-20-units-of-300-columns",
            (20 * 256 - 7, 300),
            "int16",
            call={"axis": 0, "dtype": "int16"},
            seeds=1,
        ),
        Case("whole-rows-of-70-slabs", (70, 515, 33), call={"axis": 1, "reverse": True}, seeds=2),
        Case("whole-rows-in-place", (3, 1300, 45), in_place=True, call={"axis": 1, "exclusive": True}),
        Case("own-chains-of-40-column-units", (8, 40 * 256 + 3, 5), call={"axis": 1}, sms=1),
        Case("own-strips-of-40-units", (40 * 256 + 3, 160), call={"axis": 0, "initial": 0.5}, sms=1, seeds=3),
        Case(
            "own-chains-of-4100-column-units",
            (2, 4100 * 256, 2),
            "int32",
            call={"axis": 1, "dtype": "int32"},
            arch=80,
            sms=1,
            seeds=1,
        ),
        Case("wide-shared-columns", (300, 300), call={"axis": 0}),
        Case("wide-own-columns", (300, 300), call={"axis": 0}, sms=1),
        Case("many-short-chains", (200, 600), call={"axis": 1}),
    ]


def clusters_in_turn() -> list[Case]:
    """More rows than fit on an SM at once: of two to four units, two for inexact sums; masked ones of four bytes."""
    flags: tuple[dict[str, Any], ...] = (
        {},
        {"reverse": True},
        {"exclusive": True},
        {"initial": 2},
        {"reverse": True, "exclusive": True, "initial": 2},
    )
    one_sm: dict[str, Any] = {"sms": 1, "cluster": 16, "seeds": 4}
    cases = []
    for units, (dtype, size) in itertools.product(
        (2, 3, 4), (("uint8", 1), ("int16", 2), ("float32", 4), ("int64", 8))
    ):
        for call, masked in itertools.product(flags, (False, True) if size == 4 else (False,)):
            name = "-".join(["in-turn", str(units), dtype, *call, *["masked"] * masked])
            length = units * 2 * 2 * 32 * 16 // size - 16 * units  # the last unit is incomplete
            cases.append(Case(name, (9, length), dtype, masked=masked, call={**call, "dtype": dtype}, **one_sm))
    real: dict[str, Any] = {**one_sm, "units": None, "seeds": 2}
    return [
        *cases,
        Case("in-turn-batches", (3, 3, 1500), op="max", **one_sm),
        Case("in-turn-in-place", (9, 1500), "int32", in_place=True, call={"dtype": "int32"}, **one_sm),
        Case("in-turn-3-sms", (40, 1024), "int32", call={"dtype": "int32"}, **{**one_sm, "sms": 3}),
        Case("in-turn-real", (3, 3 * 8192 - 4), "int32", call={"dtype": "int32"}, **real),
        Case("in-turn-real-masked", (5, 2 * 8192), masked=True, call={"reverse": True}, **real),
    ]


def real_tuning() -> list[Case]:
    real: dict[str, Any] = {"units": None, "seeds": 2}
    return [
        Case("real-cluster-of-one", (3, 4000), cluster=16, **real),
        Case("real-cluster", (3 * 8192 + 77,), cluster=16, sms=16, masked=True, **real),
        Case("real-cluster-odd", (2, 8192 + 3), "float64", cluster=16, sms=16, call={"reverse": True}, **real),
        Case("real-cluster-complex128", (2, 7 * 1024), "complex128", cluster=4, sms=32, **real),
        Case("real-cluster-uint8", (2 * 32768,), "uint8", cluster=16, call={"dtype": "uint8"}, **real),
        Case("real-tile-a-row", (3, 8192), **real),
        Case("real-half-a-tile-a-row", (3, 4096), **real),
        Case("real-tiles", (3 * 8192 + 77,), **real),
        Case("real-tiles-masked", (2, 2 * 8192 + 77), masked=True, **real),
        Case("real-tiles-mirrored", (2 * 8192 + 64,), masked=True, call={"reverse": True}, **real),
        Case("real-tiles-before-bulk-copies", (2 * 8192 + 77,), masked=True, arch=80, **real),
        Case("real-tiles-bool", (16384 + 1,), "bool", **real),
        Case("real-tiles-uint8", (2 * 32768,), "uint8", call={"dtype": "uint8"}, **real),
        Case("real-tiles-complex128", (2, 3000), "complex128", **real),
        Case("real-tiles-uint8-to-int64", (2, 2 * 6144 + 77), "uint8", **real),
        Case("real-rows-uint8-to-int64", (7, 700), "uint8", **real),
        Case("real-rows-bool-to-int64", (7, 768), "bool", **real),
        Case("real-cluster-int8-to-float64", (2 * 6144 + 80,), "int8", cluster=16, call={"dtype": "float64"}, **real),
        Case("real-strips-2", (2 * 4096 + 77, 2), call={"axis": 0}, **real),
        Case("real-strips-3-masked", (2, 2 * 2048 + 7, 3), masked=True, call={"axis": 1}, **real),
        Case("real-strips-7-reverse", (3 * 1024, 7), call={"axis": 0, "reverse": True}, **real),
        Case("real-strips-12", (5 * 512 + 8, 12), call={"axis": 0}, **real),
        Case("real-strips-15-float16", (3 * 512 + 8, 15), "float16", call={"axis": 0}, **real),
        Case("real-whole-rows-17", (2, 5 * 512 + 9, 17), call={"axis": 1, "exclusive": True}, **real),
        Case("real-whole-rows-32-float16", (9 * 256 + 8, 32), "float16", call={"axis": 0}, **real),
        Case("real-whole-rows-19-complex64", (1030, 19), "complex64", call={"axis": 0, "reverse": True}, **real),
        Case("real-whole-rows-100", (1300, 100), call={"axis": 0}, **real),
        Case("real-whole-rows-257-reverse", (2, 600, 257), "bfloat16", call={"axis": 1, "reverse": True}, **real),
        Case("real-whole-rows-65-complex64", (700, 65), "complex64", call={"axis": 0}, **real),
        Case("real-strips-of-parts", (40 * 256 + 3, 40), call={"axis": 0, "dtype": "float64", "initial": 0.5}, **real),
        Case("real-strips-of-parts-reverse", (2, 9 * 256, 52), "int32", call={"axis": 1, "reverse": True}, **real),
        Case("real-strips-of-words", (2, 5 * 256 + 3, 37), call={"axis": 1, "include_initial": True}, **real),
        Case("real-strips-of-words-2", (4500, 2), layout="misaligned", call={"axis": 0, "reverse": True}, **real),
        Case("real-strips-of-words-of-bytes", (700, 28), "bool", call={"axis": 0, "exclusive": True}, **real),
        Case("real-strips-8-complex128", (700, 8), "complex128", call={"axis": 0}, **real),
        Case("real-strips-16-uint8-to-int64", (1030, 16), "uint8", call={"axis": 0}, **real),
        Case("real-strips-40-int16-to-int64", (1030, 40), "int16", call={"axis": 0}, **real),
    ]


CASES = [
    *every_row_length(),
    *unaligned_rows(),
    *every_length(),
    *every_dtype(),
    *every_option(),
    *every_layout(),
    *every_conversion(),
    *packed_sums(),
    *packed_words(),
    *shifted_rows(),
    *long_chains(),
    *clusters_in_turn(),
    *real_tuning(),
]


@pytest.mark.parametrize(
    "case", covering(CASES, lambda case: facets_of(case, FAMILIES), lambda case: pairs_of(case, FAMILIES))
)
def test_scan(case: Case) -> None:
    expected, simulation = case.expected(), case.prepare()
    for seed in range(case.seeds):
        assert_same(simulation.run(seed), expected)


def test_clusters_take_rows_in_turn() -> None:
    """The cases of clusters in turn test what they are for."""
    for case in clusters_in_turn():
        plan = case.prepare().plan
        assert plan.config.family == "cluster", case.name
        assert plan.grid == math.prod(case.shape[:-1]) * plan.config.cluster, case.name
        assert plan.grid > case.sms * plan.config.blocks_per_sm, case.name


@pytest.mark.parametrize("columns", [2, 3, 4, 5])
def test_a_column_has_the_same_bits_in_any_batch(columns: int) -> None:
    """Tiles of a few columns hold as many units as fit."""
    x = np.random.default_rng(columns).standard_normal((40 * 256 + 3, 5)).astype(np.float32)
    expected = cuscan.scan(x, axis=0)[:, :columns]

    with small_units():
        simulation = prepare(x[:, :columns].copy(), axis=0)
    assert simulation.plan.config.family == "strips"
    assert_same(simulation.run(columns), expected)


def test_small_units_of_one_size_are_not_those_of_another() -> None:
    """A call is stored with its units, so that a similar call with other units is not taken for it."""
    x = np.random.default_rng(0).standard_normal((3, 1700)).astype(np.float32)
    with small_units(2, 2):
        one = cuscan.scan(x)
    with small_units(2, 1):
        other = cuscan.scan(x)
        assert_same(simulate(x), other)
    assert (one != other).any()


# ---- the workspace -------------------------------------------------------------------------------


def chained(length: int) -> tuple[Simulation, Array]:
    """A chained scan with units of 128 elements, and its result."""
    value = np.arange(length, dtype=np.float32)
    with small_units(1, 1):
        return prepare(value), cuscan.scan(value)


def test_workspace_is_ready_for_the_next_launch() -> None:
    simulation, expected = chained(2000)
    assert_same(simulation.run(launches=5), expected)


def test_workspace_serves_launches_of_all_sizes() -> None:
    (large, large_result), (small, small_result) = chained(40 * 128), chained(3 * 128)
    workspace = new_workspace(large.plan.workspace_bytes)
    for seed in range(3):
        assert_same(large.run(seed, workspace=workspace), large_result)
        assert_same(small.run(seed, workspace=workspace), small_result)


def test_workspace_forgets_all_tags_when_they_wrap() -> None:
    (large, large_result), (small, small_result) = chained(40 * 128), chained(3 * 128)
    workspace = new_workspace(large.plan.workspace_bytes)
    large.run(workspace=workspace)
    workspace.array[1] = 2**32 - 2
    assert_same(small.run(workspace=workspace), small_result)
    assert workspace.array[1] == 0
    assert not workspace.array[4:].any()
    assert_same(large.run(launches=2, workspace=workspace), large_result)


# ---- conversions, value by value -----------------------------------------------------------------


def test_every_float16_widens_exactly() -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).reshape(-1, 1)
    assert_same(simulate(halves, "max", dtype="float32"), halves.astype(np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_float32_rounds_to_nearest_even(name: str) -> None:
    narrow = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    every = np.arange(2**16, dtype=np.uint16).view(narrow).astype(np.float32)
    bits = every.view(np.uint32)[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001], np.uint32)
    floats = bits.view(np.float32).reshape(-1, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        expected = floats.astype(narrow)
    assert_same(simulate(floats, "max", dtype=name), expected)
