"""cuscan itself, called as a case specifies."""

from __future__ import annotations

from typing import Any

import cuscan
from cuscan.bench.buffers import Buffers
from cuscan.bench.calls import CALLS
from cuscan.bench.cases import Case
from cuscan.bench.machine import Run
from cuscan.request.call import one_or_all


def run_cuscan(case: Case, buffers: Buffers) -> Run:
    """Return a run of the case's public function, with `out` unless results are fresh, and only necessary keywords."""
    keywords: dict[str, Any] = {"axis": case.axis}
    keywords |= {name: True for name in ("reverse", "exclusive", "skipna", "include_initial") if getattr(case, name)}
    if buffers.mask is not None:
        keywords["mask"] = buffers.mask
    if buffers.segments is not None:
        keywords[case.segments] = buffers.segments
    if case.carry == "in and out":
        keywords |= {"carry": one_or_all(buffers.carry), "return_carry": True}
    if buffers.outs:
        keywords["out"] = one_or_all(buffers.outs)
    elif case.result is not None:
        keywords["dtype"] = case.result
    function, values = CALLS[case.op].function, buffers.values
    if case.decay == "scalar":
        values = (float(values[0][(0,) * len(case.shape)]), *values[1:])
    if case.carry == "total":
        op: Any = case.operator if isinstance(case.operator, cuscan.Operator) else case.op
        return lambda: cuscan.total(one_or_all(values), op, **keywords)
    return lambda: function(*values, **keywords)


def with_results(case: Case, buffers: Buffers, returned: Any) -> Buffers:
    """Return the buffers of a run with what it returned: new results, and the outgoing carry."""
    results = returned if isinstance(returned, tuple) else (returned,)
    if case.carry == "total":
        return buffers._replace(behind=results)
    if case.carry:
        results, behind = results[:-1], results[-1]
        buffers = buffers._replace(behind=behind if isinstance(behind, tuple) else (behind,))
    return buffers._replace(outs=results) if case.fresh else buffers
