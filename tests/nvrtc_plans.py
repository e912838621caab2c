"""Configurations compiled by NVRTC, and the compiler's reports on them. Needs CuPy, but no GPU."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

from cupy.cuda import nvrtc
from kept import included, kept
from views import operands, view

from cuscan.compile import module
from cuscan.compile.source import headers, make_source
from cuscan.dtypes import DTYPES
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.order import CONTIGUOUS
from cuscan.planning import make_plan
from cuscan.planning.config import AnyConfig, ScanPlan, Target
from cuscan.request import make_request
from cuscan.request.call import Flags

ARCHS = (75, 80, 90, 100)
H200 = Target(90, 132)
BARRIERS = 64  # per SM, on sm_90


# A shape and an axis for each family, and for each way in which its blocks share the work.
LAYOUTS = {
    "rows-short": ((1000, 16), 1),
    "rows-long": ((1000, 1000), 1),
    "thread-rows": ((2**20, 31), 1),
    "staged-rows": ((2**20, 501), 1),
    "cluster-one": ((100, 8192), 1),
    "cluster": ((2**14,), 0),
    "cluster-pairs": ((18,), 0),  # number of units, which are shorter for wide items
    "cluster-odd": ((7, 3 * 8192 + 5), 1),
    "tiles-one": ((10000, 8192), 1),
    "tiles-block": ((32768, 32768), 1),
    "tiles-grid": ((2**28,), 0),
    "tiles-odd": ((2**14, 65537), 1),
    "panels-one": ((1000, 7, 64), 1),
    "panels-block": ((32768, 32768), 0),
    "panels-grid": ((2**18, 641), 0),
    "strips-own": ((32768, 32768), 0),
    "strips-shared": ((65536, 256), 0),
    "strips-unaligned": ((2**18, 641), 0),
    "strips-two": ((2**22, 2), 0),
    "strips-three": ((7, 2**20, 3), 1),
    "strips-fifteen": ((2**22, 15), 0),
    "whole-rows": ((2**22, 41), 0),
    "whole-rows-short": ((29, 4099, 257), 1),
    "whole-rows-seventeen": ((2**22, 17), 0),
}

SEGMENTS = {"reset": "bool", "keys": "int32", "offsets": "int64"}  # dtypes of the arrays that give them
MAX = INDEXED["max", "first"]
RECURRENCE = (LINEAR_RECURRENCE, "float32", "float32")  # the operator, and the dtypes of its values


def plan(
    layout: str,
    dtype: str = "float32",
    op: Any = "add",
    *,
    target: Target = H200,
    mask: bool = False,
    initial: bool = False,
    pointer: int = 0,
    strides: tuple[int, ...] | None = None,
    result: Any = None,
    **call: Any,
) -> ScanPlan:
    """The plan of a call in a layout."""
    shape, axis = LAYOUTS[layout]
    if layout == "panels-grid" and strides is None:
        strides = (2 * shape[1], 2)  # every second column, since strips take neighbours
    if layout == "cluster-pairs":
        shape = (shape[0] * CONTIGUOUS[DTYPES[dtype].itemsize].unit,)
    arrays = operands(view(shape, dtype, strides, pointer), view(shape, "bool") if mask else None)
    request = make_request(Flags(op, axis, dtype=result, **call), arrays, has_initial=initial)
    return make_plan(request, target)


def compiled(source: str, arch: int, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """`compile_source`, which stores kernels by content."""
    _, rest = source.split("\n", 1)  # the first line contains the digest of all headers
    family = re.search(r'#include "(kernels/.*)"', rest)
    assert family
    key = rest, included(headers(), family[1]), arch, options, nvrtc.getVersion(), module._OPTIONS

    def make(path: Path) -> None:
        path.write_bytes(pickle.dumps(module.compile_source(source, arch, options)))

    code, log = pickle.loads(kept(key, ".nvrtc", make).read_bytes())
    return code, log


def report(config: AnyConfig, arch: int) -> str:
    """The compiler's report on a configuration that it has compiled."""
    cubin, log = compiled(make_source(config), arch, ("--ptxas-options=-v",))
    assert cubin[:4] == b"\x7fELF"
    barriers = re.search(r"used (\d+) barriers", log)
    taken = config.blocks_per_sm * int(barriers[1] if barriers else 0)
    assert taken <= BARRIERS, "an SM has few barriers to share out among its blocks"
    return log


def figures(log: str) -> tuple[int, int]:
    """Number of registers, and bytes of spilled registers."""
    registers = re.search(r"Used (\d+) registers", log)
    spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    assert registers and spills, log
    return int(registers[1]), int(spills[1]) + int(spills[2])


def resources(config: AnyConfig, arch: int) -> tuple[int, int]:
    """The registers and spilled bytes of a compiled configuration."""
    return figures(report(config, arch))
