"""Kinds of call in the words of `cuscan.warm` and of its command line."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from cuscan.dtypes import INEXACT
from cuscan.operators import INDEXED
from cuscan.request import ScanRequest

SEGMENT_DTYPES = {"reset": "bool", "keys": "int32", "offsets": "int64"}  # by default


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
        segments: how they give segments: "reset", "keys" or "offsets".
        segment_dtype: of the keys or offsets; by default int32 keys and int64 offsets.
        carry: whether one comes in.
        total: whether only the totals are wanted, as `total` returns them.
        number: whether the decay of a recurrence is a number.
        initial_array: whether the `initial` of a recurrence is an array.
        return_last: as for `linear_recurrence`.
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
    segment_dtype: str | None = None
    total: bool = False
    number: bool = False
    initial_array: bool = False
    return_last: bool = False

    def command(self, arch: int, shape: tuple[int, ...], axis: int) -> str:
        """The command that warms it for a shape."""
        words = [f"cuscan warm --op {self.op} --dtype {self.dtype}"]
        for field in fields(self)[2:]:
            value, name = getattr(self, field.name), field.name.replace("_", "-")
            if value != field.default:
                words.append(f"--{name}" if value is True else f"--{name} {value}")
        return " ".join([*words, f"--shape {'x'.join(map(str, shape))} --axis {axis} --arch {arch}"])


def command_of(request: ScanRequest, arch: int) -> str:
    """What warms a call like a request: a line for the shell, or for Python where the operator is a user's own."""
    kind, op = request.kind, request.op
    if op.source:
        return f"cuscan.warm({op.name}, ..., shapes=[({request.shape}, {request.axis})], arch={arch})"
    value, result = kind.values[-1], kind.results[0]
    flags = kind.segments and request.segments and request.segments.array.dtype.name
    name, ties = next((key for key, row in INDEXED.items() if row is op), (op.name, "first"))
    call = Call(
        op=name,
        dtype=value.name,
        result=None if value is result and value.kind in INEXACT else result.name,
        reverse=kind.reverse,
        exclusive=kind.exclusive,
        include_initial=kind.include_initial,
        skipna=kind.skip_nan,
        mask=request.mask is not None,
        initial=kind.has_initial and not request.carry_in and not request.row_initial,
        segments=kind.segments,
        carry=bool(request.carry_in),
        return_carry=kind.returns_carry and not kind.only_carry,
        return_indices=op.indexed,
        ties=ties,
        segment_dtype=None if flags == SEGMENT_DTYPES.get(kind.segments or "") else flags,
        total=kind.only_carry,
        number=any(spec.is_number for spec in request.values),
        initial_array=request.row_initial is not None,
        return_last=kind.last is not None,
    )
    return call.command(arch, request.shape, request.axis)
