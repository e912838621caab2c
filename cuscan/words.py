"""Kinds of call in the words of `cuscan.warm` and of its command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cuscan.operators import INDEXED
from cuscan.request import ScanRequest


@dataclass(frozen=True)
class Call:
    """A kind of call.

    Attributes:
        op: as for `scan`, or "linear_recurrence".
        dtype: of x.
        result: dtype of the result, as `dtype` of `scan`.
        reverse, exclusive, include_initial, skipna, return_carry: as for `scan`.
        mask: whether calls have one.
        initial: whether they have a number as `initial`.
        segments: how they give segments: "reset", "keys" (of int32) or "offsets" (of int64).
        carry: whether one comes in.
        return_indices, ties: as for `cummax`.
    """

    op: Any = "add"
    dtype: str = "float32"
    result: str | None = None
    reverse: bool = False
    exclusive: bool = False
    include_initial: bool = False
    skipna: bool = False
    mask: bool = False
    initial: bool = False
    segments: str | None = None
    carry: bool = False
    return_carry: bool = False
    return_indices: bool = False
    ties: str = "first"

    def command(self, arch: int) -> str:
        """The command that warms it."""
        words = [f"cuscan warm --op {self.op} --dtype {self.dtype}"]
        for field in fields(self)[2:]:
            value, name = getattr(self, field.name), field.name.replace("_", "-")
            if value != field.default:
                words.append(f"--{name}" if value is True else f"--{name} {value}")
        return " ".join([*words, f"--arch {arch}"])


def command_of(request: ScanRequest, arch: int) -> str:
    """What warms a call like a request: a line for the shell, or for Python where the operator is a user's own."""
    kind, op = request.kind, request.op
    if op.source:
        return f"cuscan.warm({op.name}, ..., arch={arch})"
    value, result = kind.values[-1].name, kind.results[0].name
    name, ties = next((key for key, row in INDEXED.items() if row is op), (op.name, "first"))
    call = Call(
        op=name,
        dtype=value,
        result=None if value == result else result,
        reverse=kind.reverse,
        exclusive=kind.exclusive,
        include_initial=kind.include_initial,
        skipna=kind.skip_nan,
        mask=request.mask is not None,
        initial=kind.has_initial and not request.carry_in,
        segments=kind.segments,
        carry=bool(request.carry_in),
        return_carry=kind.returns_carry,
        return_indices=op.indexed,
        ties=ties,
    )
    return call.command(arch)
