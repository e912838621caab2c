"""The kernel of a case: its plan, and the registers, shared memory and spills that the compiler reports."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from cuscan.bench.buffers import untouched_buffers
from cuscan.bench.cases import Case
from cuscan.call import Flags, Operands
from cuscan.interop import adopt
from cuscan.plan import Config, ScanPlan, Target, make_plan
from cuscan.request import make_request

_REPORT = ("--ptxas-options=-v",)
_FIELDS = {
    "registers": r"Used (\d+) registers",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "stack": r"(\d+) bytes stack frame",
    "static_shared": r"(\d+) bytes smem",
}


def plan_of(case: Case, target: Target) -> ScanPlan:
    """The plan that a case gets on a GPU; needs neither the GPU nor memory for the arrays."""
    x, mask, out = untouched_buffers(case).each(adopt)
    flags = Flags(case.op, case.axis, case.reverse, case.exclusive)
    return make_plan(
        make_request(
            flags,
            Operands((x,) if mask is None else (x, mask), ("x",) if mask is None else ("x", "mask"), (out,)),
            has_initial=False,
        ),
        target,
    )


def describe_kernel(case: Case, target: Target | None) -> dict[str, Any]:
    """The fields of a record that tell of its kernel; on the CPU there is none."""
    if target is None:
        return {"family": "host"}
    plan = plan_of(case, target)
    shape = {"grid": plan.grid, "block": plan.config.block, "dynamic_shared": plan.config.shared_bytes}
    return {"family": plan.config.family, "kernel": {**shape, **resources(plan.config, target.arch)}}


def resources(config: Config, arch: int) -> dict[str, int]:
    """Registers a thread, and bytes of spills, stack and static shared memory; kept on disk.

    The configuration is compiled once more, with a report. Nothing is known of a kernel that the driver compiles.
    """
    from cuscan.compile.module import cache_dir, compile_source
    from cuscan.compile.source import make_source

    source = make_source(config)
    key = hashlib.sha256(repr((source, arch, _FIELDS)).encode()).hexdigest()[:32]
    path = cache_dir() / "resources" / f"{key}.json"
    if not path.exists():
        write(path, json.dumps(parse(compile_source(source, arch, _REPORT)[1])).encode())
    found: dict[str, int] = json.loads(path.read_text())
    return found


def parse(log: str) -> dict[str, int]:
    """The numbers of a compiler's log, summed over its functions; empty where it reports none."""
    if "registers" not in log:
        return {}
    return {name: sum(map(int, re.findall(pattern, log))) for name, pattern in _FIELDS.items()}


def write(path: Path, content: bytes) -> None:
    """Write so that no other process ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(content)
    os.replace(file.name, path)
