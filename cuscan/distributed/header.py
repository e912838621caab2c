"""`validate=True`: ranks exchange descriptions of their calls, wait, and raise the same error if these differ."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cuscan.distributed.pieces import Arrays, Namespace, Piece
from cuscan.distributed.sharded import Ranks
from cuscan.errors import ScanError, ScanValueError
from cuscan.interop import adopt
from cuscan.linearised import Call

_BYTES = 1024  # bytes of a header; the rest of longer ones is not compared


def check_headers(call: Call, arrays: Arrays, ranks: Ranks, xp: Namespace, outs: Arrays | None) -> None:
    """Raise `ScanValueError` on all ranks if one call is wrong, or differs from the first."""
    try:
        described = _describe(call, Piece(call, arrays, xp, outs))
    except ScanError as error:
        described = {"error": str(error)}
    view = adopt(next(array for array in reversed(arrays) if hasattr(array, "shape")))
    compare(described, ranks, lambda header: view.library.from_numpy(header, view.device))


def compare(described: dict[str, Any], ranks: Ranks, put: Callable[[Any], Any]) -> None:
    """Raise the same error on all ranks if descriptions of calls differ; `put` makes the array to exchange."""
    lines = (f"{name}: {value}".replace("\n", " ") for name, value in described.items())
    text = "\n".join(lines).encode("ascii", "replace")[:_BYTES]
    (headers,) = ranks.gather([put(np.frombuffer(text.ljust(_BYTES), np.uint8).copy())])
    said = [dict(line.split(": ", 1) for line in _text(row).splitlines()) for row in headers.tolist()]
    for rank, of_rank in enumerate(said):
        if "error" in of_rank:
            raise ScanValueError(f"the call of rank {rank} is wrong: {of_rank['error']}")
    for rank, of_rank in enumerate(said):
        for name, value in of_rank.items():
            if said[0].get(name) != value:
                raise ScanValueError(f"ranks differ in {name}: rank 0 has {said[0].get(name)}, rank {rank} {value}")


@contextlib.contextmanager
def raising_together(tell: Callable[[str], None] | None) -> Iterator[None]:
    """Pass an error that this rank raises before it has a header to `tell`, if that is not None."""
    try:
        yield
    except ScanError as error:
        if tell is not None:
            tell(Exception.__str__(error))  # without the function's name, which the other ranks add themselves
        raise


def _text(row: list[int]) -> str:
    return bytes(row).decode("ascii").rstrip()


def _describe(call: Call, piece: Piece) -> dict[str, Any]:
    """Return everything that ranks must agree on, by its name in errors."""
    request, flags = piece.request, call.flags
    given = dict.fromkeys(call.roles)
    return {
        "op": request.op.key,
        "dtype of x": ", ".join(spec.dtype.name for spec in request.values),
        "dtype of the result": request.result.dtype,
        "axis": f"{piece.axis} of {len(request.shape)}",
        "the other axes": piece.lines,
        "flags": ", ".join(
            name
            for name in ("reverse", "exclusive", "include_initial", "skipna", "return_carry")
            if getattr(flags, name)
        ),
        "initial": call.initial,
        "arguments": ", ".join(given),
    }
