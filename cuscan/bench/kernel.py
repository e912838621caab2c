"""The kernel of a case: its plan, and the registers, shared memory and spills that the compiler reports.

The request comes from the case's own call: the call is made on arrays without memory, and stopped at the backend.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any

from cuscan import backends
from cuscan.backends import repeats
from cuscan.bench.buffers import untouched_buffers
from cuscan.bench.cases import Case
from cuscan.bench.ours import run_cuscan
from cuscan.planning import make_plan
from cuscan.planning.config import Config, ScanPlan, Target
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import Flags, Operands

_REPORT = ("--ptxas-options=-v",)
_FIELDS = {
    "registers": r"Used (\d+) registers",
    "spill_stores": r"(\d+) bytes spill stores",
    "spill_loads": r"(\d+) bytes spill loads",
    "stack": r"(\d+) bytes stack frame",
    "static_shared": r"(\d+) bytes smem",
}


def plan_of(case: Case, target: Target) -> ScanPlan:
    """Return the plan of a case on a GPU; this needs neither the GPU nor memory for the arrays."""
    return make_plan(request_of(case), target)


def request_of(case: Case) -> ScanRequest:
    """Return the request that the call of a case makes. Raises `cuscan.ScanError` if the case is inconsistent."""
    run = run_cuscan(case, untouched_buffers(case))
    with _intercepted() as requests:
        run()
    return requests[0]


@contextlib.contextmanager
def _intercepted() -> Iterator[list[ScanRequest]]:
    """Collect the requests of calls without running them: their arrays have no memory."""
    requests: list[ScanRequest] = []

    def take(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
        requests.append(make_request(flags, operands, has_initial=initial is not None))
        return tuple(out.owner for out in operands.outs) if operands.outs else (None,)

    kept = backends.run, repeats.repeat
    backends.run, repeats.repeat = take, lambda *call: (None, None)
    try:
        yield requests
    finally:
        backends.run, repeats.repeat = kept


def describe_kernel(case: Case, target: Target | None) -> dict[str, Any]:
    """Return the fields of a record that describe its kernel; on the CPU there is none."""
    if target is None:
        return {"family": "host"}
    plan = plan_of(case, target)
    shape = {"grid": plan.grid, "block": plan.config.block, "dynamic_shared": plan.config.shared_bytes}
    return {"family": plan.config.family, "kernel": {**shape, **resources(plan.config, target.arch)}}


def resources(config: Config, arch: int) -> dict[str, int]:
    """Return registers per thread, and bytes of spills, stack and static shared memory; cache them with the kernel.

    For a kernel compiled by the driver, nothing is known.
    """
    from cuscan.compile.cache import cache_dir, write
    from cuscan.compile.module import compile_source, kernel_path
    from cuscan.compile.source import make_source

    source = make_source(config)
    key = hashlib.sha256(repr((source, arch, _FIELDS)).encode()).hexdigest()[:32]
    path = cache_dir() / "resources" / f"{key}.json"
    if not path.exists():
        code, log = compile_source(source, arch, _REPORT)
        write(kernel_path(config, arch), code)
        write(path, json.dumps(parse(log)).encode())
    found: dict[str, int] = json.loads(path.read_text())
    return found


def parse(log: str) -> dict[str, int]:
    """Return the numbers in a compiler's log, summed over its functions; empty if it reports none."""
    if "registers" not in log:
        return {}
    return {name: sum(map(int, re.findall(pattern, log))) for name, pattern in _FIELDS.items()}
