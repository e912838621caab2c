"""The derivative of each operator: decay and weight of one step of the linear recurrence; see `derivatives`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cuscan.dtypes import DTYPES
from cuscan.errors import ScanTypeError
from cuscan.linearised import Array, LinearisedScan, Shifted, Step
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.request.call import find_operator


def check_differentiable(op: object) -> None:
    """Raise `ScanTypeError` for a user's operator without a derivative."""
    operator = find_operator(op)
    if operator.source and operator.vjp is None:
        how = "its state has several fields" if operator.dtypes else "pass vjp= to its Operator"
        raise ScanTypeError(f"op={operator.name!r} has no derivative ({how}); detach its arrays (stop_gradient)")


def make_step(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    """Return the derivative of a step. `needs`: which arrays of the call have tangents, or need cotangents."""
    check_differentiable(scan.op)
    if scan.op.indexed or scan.op.name in ("max", "min"):
        return _extremum(scan)
    if scan.op.source:
        return _user_operator(scan)
    return _STEPS[scan.op.name](scan, needs)


def _sum(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    return Step(None, (None,), scan.chosen, scan.segments, scan.key)


def _product(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    return Step(scan.elements, (scan.before(),), scan.chosen, scan.segments, scan.key)


def _log_sum(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    """Use exponentials of differences from the result: they are at most 1, and 0 for elements that are -inf."""
    xp = scan.xp
    before, through = scan.before(), scan.through()
    if isinstance(before, Shifted):  # joining them takes longer than another scan
        (before,) = scan.again(exclusive=True)
    x = xp.cast(scan.elements, scan.number)

    def share(part: Array) -> Array:
        return xp.exp(xp.where(part == through, 0, part - through))

    weight = xp.where(x == -float("inf"), 0, share(x))
    return Step(share(before), (weight,), scan.chosen, scan.segments, scan.key)


def _extremum(scan: LinearisedScan) -> Step:
    """Pass on the tangent of the element that the index points to, until the index changes."""
    op = scan.op if scan.op.indexed else INDEXED[scan.op.name, "first"]
    xp, key, first = scan.xp, None, 0
    carry: tuple[Array, ...] = ()
    if scan.carry:  # the carry precedes the elements and wins ties, unless it stands for no element
        nothing = xp.cast(xp.zeros_like(scan.carry[0]), DTYPES["int64"])
        came_in = xp.where(scan.carry[1] < 0, -2, nothing) if scan.op.indexed else nothing
        carry = (scan.carry[0], came_in, nothing + 1)
        first = 0 if scan.flags.reverse else 1
        key = xp.where(came_in < 0, came_in, came_in + scan.shape[scan.axis]) if scan.flags.reverse else came_in
    index = scan.again(op, dtype=scan.dtype, carry=carry)[1]
    places = xp.positions(index, scan.axis)
    new = index == (places + first if first else places)
    if scan.flags.exclusive:  # the first result of a segment comes from no element
        return Step(xp.cast(~new, scan.number), (None,), new, scan.segments, scan.key)
    return Step(None, (None,), new, ("keys", index), key)


def _recurrence(scan: LinearisedScan, needs: Sequence[bool]) -> Step:
    before = scan.before() if needs[0] else None
    return Step(scan.given["a"], (before, None), None, scan.segments, scan.key)


def _user_operator(scan: LinearisedScan) -> Step:
    assert scan.op.vjp is not None
    (before,) = scan.again(exclusive=True)
    x = scan.xp.cast(scan.elements, scan.number)
    decay, weight = scan.op.vjp(before, x, scan.xp.ones_like(x))
    return Step(decay, (weight,), scan.chosen, scan.segments, scan.key)


_STEPS: dict[str, Callable[[LinearisedScan, Sequence[bool]], Step]] = {
    "add": _sum,
    "mul": _product,
    "logaddexp": _log_sum,
    LINEAR_RECURRENCE.name: _recurrence,
}
