"""Run one small scan of every kernel family, access and chain length, for NVIDIA's compute-sanitizer:

    compute-sanitizer --tool memcheck --error-exitcode 1 python tests/sanitize.py
    compute-sanitizer --tool racecheck --error-exitcode 1 python tests/sanitize.py
    compute-sanitizer --tool initcheck --error-exitcode 1 python tests/sanitize.py
    compute-sanitizer --tool synccheck --error-exitcode 1 python tests/sanitize.py

Words after the command select the cases whose names contain one of them. Every array and every workspace has an
allocation of its own, so that memcheck detects access beyond its ends. Arrays are copied from the host, so that
initcheck treats them as initialised. The script compares results with those of the twin, and fails if they differ. It
prints the name of each case before the case runs.

memcheck and initcheck are clean. synccheck, which needs --num-cuda-barriers 8192, reports an error if the warps of a
block meet at a barrier from different places in the code, although each is on its way to its own task. racecheck
reports races between warps of panels that meet at such a barrier: reads of a turn before it, and writes after it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from copied_flags import ACROSS, FEWEST, Across
from features import FEATURES, LOG_SUMS, call_for, segments_for
from gpu import (
    COLUMNS_OF_ROWS,
    TURNED,
    WAYS,
    Call,
    Placement,
    Seen,
    check,
    check_call,
    config_of,
    cupy,
    need,
    numbers,
    rows_anywhere,
    small_units,
    turned,
    way,
)

import cuscan
from cuscan.backends import workspace
from cuscan.order import COLUMNS, CONTIGUOUS

Case = tuple[str, Callable[[], object]]

UNMASKED = ("strips", "whole_rows")  # panels take scans with a mask or a feature
# Beginnings of names. Panels take masked cases of shared strips.
STORED_IN_BULK = (
    "panels",
    "whole_rows",
    "strips-shared",
    *(f"strips, a chain of {n} units" for n in (1600, 2200, 4400)),
)


def scan(
    name: str, shape: tuple[int, ...], of: str = "float32", op: str = "add", *, masked: bool = False, **call
) -> Case:
    def run() -> None:
        mask = {"mask": numbers(shape, "bool")} if masked else {}
        check("cupy", numbers(shape, of, op), op, **mask, **call)

    return name, run


def every_way() -> Iterator[Case]:
    for kind in WAYS:
        shape, axis = way(kind)
        yield scan(f"{kind}, plain", shape, axis=axis)
        masked = not kind.startswith(UNMASKED)
        yield scan(f"{kind}, all flags", shape, axis=axis, masked=masked, reverse=True, exclusive=True, initial=1.5)


def long_chains() -> Iterator[Case]:
    for dtype in ("float32", "float64", "complex128"):
        unit = CONTIGUOUS[np.dtype(dtype).itemsize].unit
        for units in (40, 1030):
            name = f"tiles, a chain of {units} units of {dtype}"
            yield scan(name, (units * unit + 5,), dtype, reverse=units > 1000)
    for family, columns, units, dtype in (
        ("panels", 31, 40, "float32"),
        ("panels", 31, 1030, "float32"),
        ("panels", 31, 40, "complex128"),
        ("strips", 2, 40, "float32"),
        ("strips", 2, 1030, "float32"),
        ("strips", 2, 40, "complex128"),
        ("strips", 15, 40, "float32"),
        ("strips", 15, 1600, "float32"),
        ("strips", 5, 4400, "float16"),  # four walks of two warps, and of one
        ("strips", 14, 2200, "float16"),
        ("strips", 32, 30, "complex128"),
        ("whole_rows", 16, 300, "float32"),
        ("whole_rows", 33, 40, "float32"),
        ("whole_rows", 33, 1030, "float32"),
    ):
        name = f"{family}, a chain of {units} units of {columns} columns of {dtype}"
        shape = (units * COLUMNS.unit + 5, columns)
        yield scan(name, shape, dtype, axis=0, exclusive=units > 1000, masked=family == "panels")


def every_access() -> Iterator[Case]:
    """Elements one by one, mirrored, strided; results between other elements, results in place; masks of one row."""
    for kind in (
        "rows",
        "thread_rows",
        "staged_rows",
        "cluster aligned",
        "tiles-shared bulk",
        "panels wide",
        "strips-shared pairs",
        "strips-shared wide",
    ):
        shape, axis = way(kind)
        wider, wide = (*shape[:-1], shape[-1] + 1), (*shape[:-1], 2 * shape[-1])

        def case(name: str, base: tuple[int, ...], kind: str = kind, axis: int = axis, **call) -> Case:
            return f"{kind}, {name}", lambda: check("cupy", numbers(base), axis=axis, **call)

        yield case(
            "misaligned", wider, view=lambda x: x[..., 1:], mask=numbers(wider, "bool"), mask_view=lambda m: m[..., 1:]
        )
        yield case(
            "mirrored",
            shape,
            view=lambda x: x[..., ::-1],
            mask=numbers(shape, "bool"),
            mask_view=lambda m: m[..., ::-1],
        )
        yield case("every second", wide, view=lambda x: x[..., ::2], mask=numbers(shape[-1:], "bool"))
        yield case("into every second", shape, out=numbers(wide, seed=1), out_view=lambda out: out[..., ::2])
        yield case("misaligned in place", wider, view=lambda x: x[..., 1:], in_place=True, reverse=True)
    for name, view in (
        ("gaps", lambda x: x[..., :-1]),
        ("runs", lambda x: x[:, 3:-4]),
        ("both", lambda x: x[:, 3:, 1:]),
    ):
        mask = numbers((90, 47, 31), "bool")
        yield (
            f"thread_rows, {name}",
            lambda view=view, mask=mask: check(
                "cupy", numbers((90, 47, 31)), axis=-1, reverse=True, view=view, mask=mask, mask_view=view
            ),
        )
    for length, dtype in (
        (2, "float32"),
        (3, "int16"),
        (4, "float64"),
        (28, "float64"),
        (37, "float32"),
        (76, "bfloat16"),
    ):
        for name, flags in (("plain", {}), ("all flags", {"masked": True, "exclusive": True, "initial": 2})):
            yield scan(f"panels, an axis of {length} {dtype}, {name}", (length, 100_003), dtype, axis=0, **flags)
    for axis, order in ((0, (1, 2, 0)), (1, (2, 1, 0)), (2, (0, 2, 1))):
        turned = np.argsort(order)
        yield (
            f"panels, axis {axis}, results in the order {order}",
            lambda axis=axis, order=order, turned=turned: check(
                "cupy",
                numbers((300, 41, 37)),
                axis=axis,
                reverse=axis == 1,
                mask=numbers((300, 41, 37), "bool"),
                out=numbers(tuple((300, 41, 37)[a] for a in order)),
                out_view=lambda out: out.transpose(turned),
            ),
        )


def every_size() -> Iterator[Case]:
    for dtype, op, kind in (
        ("bool", "xor", "tiles-shared bulk"),
        ("uint8", "max", "tiles-shared rows"),
        ("int16", "mul", "panels-shared"),
        ("bfloat16", "add", "tiles-shared bulk"),
        ("float16", "min", "rows"),
        ("float64", "add", "cluster"),
        ("complex128", "mul", "cluster pairs"),
        ("int64", "add", "tiles-shared"),
        ("complex64", "mul", "panels-kept"),
        ("float16", "add", "strips-shared"),
        ("int64", "max", "strips-shared wide"),
        ("float16", "add", "whole_rows-shared"),
        ("complex128", "add", "tiles-shared rows"),
    ):
        shape, axis = way(kind, dtype)
        masked = not kind.startswith(UNMASKED)
        yield scan(f"{kind}, {op} of {dtype}", shape, dtype, op, masked=masked, axis=axis, dtype=dtype)


def every_feature() -> Iterator[Case]:
    """Each feature takes every third way, and the next feature others, so that all ways are taken."""
    kinds = list(WAYS)
    for number, (name, feature) in enumerate(FEATURES.items()):
        for kind in kinds[number % 3 :: 3]:
            family = "panels for " if kind.startswith(UNMASKED) else ""
            yield (
                f"{family}{kind}, {name}",
                lambda feature=feature, kind=kind: check_call("cupy", call_for(feature, kind)),
            )


def every_log_sum() -> Iterator[Case]:
    """Log sums are not compared, because their bits differ from the twin's."""
    for name, feature in LOG_SUMS.items():
        for kind in ("rows", "cluster", "tiles-shared bulk", "panels-shared"):
            yield (
                f"{kind}, {name}",
                lambda feature=feature, kind=kind: call_for(feature, kind).placed(Placement(need("cupy").device))(),
            )


def wild_offsets() -> Iterator[Case]:
    """Offsets that lie anywhere; the results do not matter."""
    rng = np.random.default_rng(0)
    for kind in ("rows", "cluster", "tiles-shared", "panels-shared"):
        for name, low, high in (("anywhere", -(2**62), 2**62), ("near", -50, 5000)):
            shape, axis = way(kind)
            offsets = rng.integers(low, high, 700)

            def run(shape: tuple[int, ...] = shape, axis: int = axis, offsets: np.ndarray = offsets) -> None:
                call = Call(cuscan.scan, (numbers(shape),), {"axis": axis, "offsets": offsets, "reverse": True})
                call.placed(Placement(need("cupy").device))()

            yield f"{kind}, offsets {name}", run


def flags_of_all_lines() -> Iterator[Case]:
    """Flags and keys that become bits, as they do in larger arrays, of lengths around whole pieces."""
    rng, x = np.random.default_rng(0), numbers((3, 65_536))
    for length in (1, 31, 1024, 1025, 40_007, 65_536):
        flags = rng.random((1, length + 1)) < 0.1
        keys = np.cumsum(flags, axis=1) % 3
        for items in (flags, keys.astype(np.float32), keys, keys.astype(np.uint8)):
            for first in (0, 1):  # items at the beginning of their memory, or up to its end
                kind = "reset" if items is flags else "keys"

                def run(kind: str = kind, items: np.ndarray = items, first: int = first, length: int = length) -> None:
                    along = Seen(items, lambda memory: memory[:, first : first + length])
                    call = {"axis": 1, "reverse": bool(first), kind: along}
                    with mock.patch("cuscan.planning.segment_starts.FEWEST", 0):
                        check_call("cupy", Call(cuscan.scan, (x[:, :length],), call))

                yield f"flags of all lines, {length} {kind} of {items.dtype} from item {first}", run


def flags_across_rows() -> Iterator[Case]:
    for name, case in ACROSS.items():

        def run(case: Across = case) -> None:
            with mock.patch(FEWEST, 0):
                call = {"axis": -1, "mask": Seen(case.memory(), case.seen), "reset": Seen(case.memory(0.1), case.seen)}
                check_call("cupy", Call(cuscan.scan, (numbers(case.shape),), call))

        yield f"flags across rows, {name}", run


def rows_that_begin_anywhere() -> Iterator[Case]:
    for name, call in rows_anywhere().items():
        yield f"rows anywhere, {name}", lambda call=call: check_call("cupy", call)


def columns_of_rows() -> Iterator[Case]:
    for name, make in COLUMNS_OF_ROWS.items():
        yield f"panels, columns of rows, {name}", lambda make=make: check_call("cupy", make())


def arrays_along_the_axis() -> Iterator[Case]:
    for name, arrays in TURNED.items():
        yield f"along the axis, {name}", lambda arrays=arrays: check_call("cupy", turned(*arrays))


def long_chains_of_features() -> Iterator[Case]:
    for name in ("offsets", "recurrence", "matrix_product", "positions"):
        call = FEATURES[name]((40 * 256 + 5,), 0, 0)
        yield f"tiles, a long chain, {name}", lambda call=call: check_call("cupy", call)
    for kind in ("reset", "offsets", "keys"):
        given = segments_for(kind, (0,), 0) if kind != "offsets" else {"offsets": np.zeros(3, np.int64)}
        call = Call(cuscan.scan, (numbers((0,)),), {"include_initial": True, **given})
        yield f"one result of no elements, {kind}", lambda call=call: check_call("cupy", call)


def written(nbytes: int) -> cupy.cuda.MemoryPointer:
    """Memory that has been written to, because initcheck does not see bulk stores."""
    memory = cupy.cuda.MemoryPointer(cupy.cuda.Memory(nbytes), 0)
    if nbytes:
        memory.memset(0xA5, nbytes)
    return memory


def main() -> int:
    workspace._SMALLEST = 1
    failed = []
    with small_units():
        assert config_of(np.empty(1030 * CONTIGUOUS[4].unit + 5, np.float32)).levels == 3
        cases = [*every_way(), *long_chains(), *every_access(), *every_size()]
        cases += [*every_feature(), *every_log_sum(), *wild_offsets(), *long_chains_of_features()]
        cases += [
            *flags_of_all_lines(),
            *flags_across_rows(),
            *rows_that_begin_anywhere(),
            *columns_of_rows(),
            *arrays_along_the_axis(),
        ]
        chosen = [case for case in cases if not sys.argv[1:] or any(word in case[0] for word in sys.argv[1:])]
        for name, run in chosen:
            workspace._workspaces.clear()
            cupy.cuda.set_allocator(written if name.startswith(STORED_IN_BULK) else None)  # None: no pool
            print(name, flush=True)  # the next reports belong to this case
            try:
                run()
            except AssertionError as error:
                failed.append(name)
                print(f"FAILED {name}: {error}", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} scans are right")
    return int(bool(failed) or not chosen)


if __name__ == "__main__":
    sys.exit(main())
