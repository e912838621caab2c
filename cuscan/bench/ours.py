"""cuscan itself, called as a case says."""

from __future__ import annotations

from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.calls import CALLS
from cuscan.bench.cases import Case
from cuscan.bench.machine import Run


def run_cuscan(case: Case, buffers: Buffers) -> Run:
    """The public function of the case, with `out` unless results are fresh, and no keyword that it does not need."""
    keywords: dict[str, Any] = {"axis": case.axis}
    keywords |= {name: True for name in ("reverse", "exclusive", "skipna", "include_initial") if getattr(case, name)}
    if buffers.mask is not None:
        keywords["mask"] = buffers.mask
    if buffers.segments is not None:
        keywords[case.segments] = buffers.segments
    if not case.fresh:
        keywords["out"] = buffers.outs if len(buffers.outs) > 1 else buffers.out
    elif case.result is not None:
        keywords["dtype"] = case.result
    function, values = CALLS[case.op].function, buffers.values
    if case.decay == "scalar":
        values = (float(values[0][(0,) * len(case.shape)]), *values[1:])
    return lambda: function(*values, **keywords)
