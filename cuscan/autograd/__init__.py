"""Calls whose arrays are followed by derivatives or transforms go through their framework; all others to a backend."""

from __future__ import annotations

from typing import Any

from cuscan import backends
from cuscan.call import Flags, Operands


def run(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    """Run one call; see `backends.run`."""
    for view in operands.views if operands.outs is None else operands.views + operands.outs:
        if view.traced:
            return _run_traced(flags, operands, initial)
    return backends.run(flags, operands, initial)


def _run_traced(flags: Flags, operands: Operands, initial: Any) -> tuple[Any, ...]:
    from cuscan.autograd.torch import run  # the only library with such arrays so far

    return run(flags, operands, initial)
