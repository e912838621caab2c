"""What a call would do on a GPU: its plan, in words."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from cuscan import backends
from cuscan.backends import repeats
from cuscan.compile.source import entry_name
from cuscan.errors import ScanTypeError
from cuscan.planning import make_plan
from cuscan.planning.config import Preparation, ScanPlan, Target
from cuscan.planning.preparations import preparations
from cuscan.request import ScanRequest, make_request
from cuscan.request.call import Flags, Operands
from cuscan.specs import ArraySpec
from cuscan.warming import find_target

_SATURATING = 0.5  # the share of the SMs that keeps memory busy, if these are busy


@dataclass(frozen=True, repr=False)
class Explanation:
    """The plan of a call; it prints as text."""

    request: ScanRequest
    plan: ScanPlan | None  # None where there are no elements
    preparations: list[Preparation]
    target: Target

    @property
    def read_bytes(self) -> int:
        """The bytes of the arrays that are read, each once."""
        request = self.request
        segments = None if request.segments is None else request.segments.array
        arrays = (*request.values, request.mask, segments, request.row_initial, *request.carry_in)
        return sum(map(_bytes, arrays))

    @property
    def written_bytes(self) -> int:
        """The bytes of the arrays that are written."""
        results = () if self.request.only_carry else self.request.results
        return sum(map(_bytes, (*results, self.request.last, *self.request.carry_out)))

    @property
    def workspace_bytes(self) -> int:
        """Memory beside the arrays."""
        return (self.plan.workspace_bytes if self.plan else 0) + sum(before.nbytes for before in self.preparations)

    @property
    def expected_share(self) -> float:
        """Of a copy's speed, at most, where there are so few blocks that SMs have no work.

        It is a model, not a measurement: memory is kept busy by half of the SMs, so that a last wave of few blocks is
        soon over; and what a tile waits for is left out.
        """
        if self.plan is None:
            return 1.0
        return min(self.plan.grid / self.target.sm_count / _SATURATING, 1.0)

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {text}" for name, text in self._lines())

    def __repr__(self) -> str:
        return str(self)

    def _lines(self) -> Iterator[tuple[str, str]]:
        request, plan = self.request, self.plan
        dtypes = ", ".join(f"{v.dtype} {v.shape}" for v in request.values)
        results = ", ".join(dtype.name for dtype in request.kind.results)
        yield "scan", f"{request.op} of {dtypes} along axis {request.axis}, in {results}"
        if plan is None:
            yield "kernels", "none: there are no elements"
            return
        config = plan.config
        yield "family", config.family
        yield "tile", ", ".join(f"{name} {value}" for name, value in config.constants)
        yield "access", ", ".join(operand.access.value for operand in config.operands if operand.present)
        yield "carry", _carry(request, plan)
        for before in self.preparations:
            yield "kernels", _launch(entry_name(before.config), before.grid, before.config)
        yield "kernels", _launch(entry_name(config), plan.grid, config)
        yield "workspace", _size(self.workspace_bytes)
        read, written = self.read_bytes, self.written_bytes
        yield "bytes", f"{_size(read + written)}: {_size(read)} read, {_size(written)} written"
        yield "expected", f"at most {self.expected_share:.2f} of a copy's speed on {self.target.sm_count} SMs"


def explain(function: Callable[..., Any], *arguments: Any, arch: int | None = None, **keywords: Any) -> Explanation:
    """The plan of a call: family, tile, carry, kernels, workspace, bytes and expected share; nothing runs.

    Args:
        function: `cuscan.scan`, or another function of cuscan that scans.
        *arguments: those of the call.
        **keywords: those of the call.
        arch: the architecture that the plan is for, 90 for sm_90; then the arrays may be on the CPU. Without: that of
            the current GPU.

    Returns:
        An `Explanation`: print it, or read its attributes.

    Raises: as the call.
    """
    with _asked() as requests, contextlib.suppress(_Asked):
        function(*arguments, **keywords)
    if not requests:
        raise ScanTypeError(f"function must be one of cuscan that scans arrays; got {function!r}")
    target, [request] = find_target(arch), requests
    empty = 0 in request.shape or 0 in request.result.shape
    if empty:
        return Explanation(request, None, [], target)
    return Explanation(request, make_plan(request, target), preparations(request, target), target)


class _Asked(Exception):
    """The call went as far as it is of interest."""


@contextlib.contextmanager
def _asked() -> Iterator[list[ScanRequest]]:
    """Collect the request of this thread's call, and stop it; those of other threads run."""
    requests: list[ScanRequest] = []
    thread, run, repeat = threading.get_ident(), backends.run, repeats.repeat

    def take(flags: Flags, operands: Operands, initial: Any) -> Any:
        if threading.get_ident() != thread:
            return run(flags, operands, initial)
        requests.append(make_request(flags, operands, has_initial=initial is not None))
        raise _Asked

    def look(*call: Any) -> Any:
        return (None, None) if threading.get_ident() == thread else repeat(*call)

    with _one_at_a_time:
        backends.run, repeats.repeat = take, look  # type: ignore[assignment]
        try:
            yield requests
        finally:
            backends.run, repeats.repeat = run, repeat


_one_at_a_time = threading.Lock()


def _carry(request: ScanRequest, plan: ScanPlan) -> str:
    """What precedes a tile in its line, and where a block has that from."""
    config = plan.config
    kept = dict(config.constants).get("Kept", 0)  # panels count no units
    chained = plan.units > 1 or kept or (config.family == "panels" and config.grid)
    if not chained:
        return "none: a line ends in its tile"
    if config.grid:
        way = "looked up in the workspace: blocks share a line"
    elif config.cluster > 1:
        way = "handed on in the cluster that has the line"
    else:
        way = "kept by the block that has the line"
    return f"{request.carry}, {way}"


def _launch(name: str, grid: int, config: Any) -> str:
    return f"{name}: {grid} blocks of {config.block} threads, {_size(config.shared_bytes)} of shared memory each"


def _bytes(spec: ArraySpec | None) -> int:
    """What is moved of an array: axes along which it stands still count once."""
    if spec is None or spec.is_number:
        return 0
    nbytes = spec.dtype.itemsize
    for size, stride in zip(spec.shape, spec.strides, strict=True):
        nbytes *= size if stride else min(size, 1)
    return nbytes


def _size(nbytes: int) -> str:
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= step:
            return f"{nbytes / step:.1f} {unit}"
    return f"{nbytes} bytes"
