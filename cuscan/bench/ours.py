"""cuscan itself, called as a case says."""

from __future__ import annotations

from typing import Any

from cuscan.bench.buffers import Buffers
from cuscan.bench.calls import CALLS
from cuscan.bench.cases import Case
from cuscan.bench.machine import Run


def run_cuscan(case: Case, buffers: Buffers) -> Run:
    """The public function of the case, with `out`; keywords that a case does not use are left out."""
    keywords: dict[str, Any] = {"axis": case.axis}
    keywords |= {name: True for name in ("reverse", "exclusive", "skipna", "include_initial") if getattr(case, name)}
    if buffers.mask is not None:
        keywords["mask"] = buffers.mask
    if buffers.segments is not None:
        keywords[case.segments] = buffers.segments
    keywords["out"] = buffers.outs if len(buffers.outs) > 1 else buffers.out
    function, values = CALLS[case.op].function, buffers.values
    return lambda: function(*values, **keywords)
