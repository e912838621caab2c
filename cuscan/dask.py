"""Lazy scans of Dask arrays: totals of blocks, a tree of carries, scans of blocks behind them. Imports Dask."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any, Literal

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.delayed import delayed
from dask.highlevelgraph import HighLevelGraph

from cuscan.custom import Operator
from cuscan.distributed.namespaces import ArrayNamespace
from cuscan.distributed.pieces import Arrays, Piece, Total, fold, positioned
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.interop.numpy import numpy_dtype
from cuscan.linearised import Call
from cuscan.operators import LINEAR_RECURRENCE, find_key
from cuscan.request.call import SEGMENTS, choose_extremum, find_operator, make_flags
from cuscan.request.checks import check_axis, check_offsets, lies_along
from cuscan.signatures import LAST, Op, Ties, choose_axis

__all__ = ["linear_recurrence", "scan"]

Array = Any


def scan(
    x: Any,
    op: Op | Literal["linear_recurrence"] = "add",
    *,
    axis: int = LAST,
    dim: int | None = None,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Any = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    return_indices: bool = False,
    ties: Ties = "first",
    dtype: Any = None,
) -> Any:
    """Scan a Dask array along one axis; return a Dask array. Nothing is computed yet.

    Args:
        x: a Dask array of NumPy or CuPy blocks with known sizes. For an `Operator` with several fields, a tuple of
            such arrays.
        op: as for `cuscan.scan`.
        axis: the axis to scan along; any axes may be chunked.
        dim: another name for axis.
        reverse: as for `cuscan.scan`.
        exclusive: as for `cuscan.scan`.
        include_initial: as for `cuscan.scan`; the first block in scan order is one element longer, or with `exclusive`
            and segments the last one.
        mask: as for `cuscan.scan`: a Dask array, or an array that is converted to one.
        skipna: as for `cuscan.scan`.
        initial: as for `cuscan.scan`.
        reset: flags as for `cuscan.scan`, in the form of mask.
        offsets: offsets of the whole axis: a list or a NumPy array.
        keys: keys as for `cuscan.scan`, in the form of mask.
        return_indices: for "max" and "min", return the tuple (values, indices), as `cuscan.cummax` does.
        ties: as for `cuscan.cummax`.
        dtype: as for `cuscan.scan`.

    Returns:
        A Dask array with the chunks of x, or a tuple of such arrays. Each block is read twice. Between the two reads,
        the carry of its lines passes through a tree of logarithmic depth (Blelloch 1990).

    Raises: as `cuscan.scan`, before anything is computed; ScanValueError if chunk sizes are unknown.
    """
    axis = choose_axis(axis, dim)
    op = find_operator(choose_extremum(op, return_indices, ties))
    flags = make_flags(op, axis, reverse, exclusive, include_initial, skipna, dtype)
    values = x if isinstance(x, tuple) else (x,)
    results = _scan(flags, values, {"mask": mask, "reset": reset, "keys": keys}, offsets, initial, None)
    return results if len(results) > 1 or isinstance(x, tuple) else results[0]


def linear_recurrence(
    a: Any,
    b: Any,
    *,
    axis: int = LAST,
    dim: int | None = None,
    reverse: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    dtype: Any = None,
) -> Any:
    """Compute the recurrence h[t] = a[t] * h[t - 1] + b[t] along one axis of a Dask array; see `scan`.

    Args:
        a: a Dask array that broadcasts to b, or a number.
        b: a Dask array.
        axis: as for `scan`.
        dim: another name for axis.
        reverse: as for `scan`.
        initial: a number, or an array of b's shape without the axis.
        reset: as for `scan`.
        offsets: as for `scan`.
        keys: as for `scan`.
        dtype: as for `cuscan.linear_recurrence`.
    """
    flags = make_flags(LINEAR_RECURRENCE, choose_axis(axis, dim), reverse, dtype=dtype)
    number, array = (None, initial) if getattr(initial, "ndim", 0) else (initial, None)
    return _scan(flags, (a, b), {"reset": reset, "keys": keys}, offsets, number, array)[0]


def _scan(
    flags: Any, values: Arrays, beside: dict[str, Any], offsets: Any, initial: Any, lines: Any
) -> tuple[Array, ...]:
    main = _checked(values)
    shape, axis = main.shape, check_axis(flags.axis, "x", main.shape)
    flags = flags._replace(axis=axis)
    segments = [role for role in SEGMENTS if (offsets if role == "offsets" else beside.get(role)) is not None]
    if len(segments) > 1:
        raise ScanValueError(f"{' and '.join(segments)} exclude each other: pass one of them")
    given = {f"x[{i}]": _like(value, main) for i, value in enumerate(values)}
    if flags.op is LINEAR_RECURRENCE:
        given = dict(zip(LINEAR_RECURRENCE.inputs, given.values(), strict=True))
    for role, array in beside.items():
        if array is not None:
            given["reset" if role == "keys" else role] = _spread(array, role, main, axis, flags.reverse)
    if offsets is not None:
        given["reset"] = _boundaries(np.asarray(offsets), main, axis, flags.reverse)
    if lines is not None:
        chunks = main.chunks[:axis] + main.chunks[axis + 1 :]
        given["initial"] = da.broadcast_to(da.asarray(lines), shape[:axis] + shape[axis + 1 :]).rechunk(chunks)
    behind = flags.exclusive and bool(segments)
    call = Call(flags._replace(include_initial=False), tuple(given), initial)
    if flags.include_initial:
        call = call._replace(flags=call.flags._replace(exclusive=behind))
    return _Blocks(call, given, main, flags.include_initial, behind).results()


# ---- arrays in the chunks of x ---------------------------------------------------------------------------------------


def _checked(values: Arrays) -> Array:
    """Return the array whose chunks all values take: the one with the most dimensions, the last if several."""
    arrays = [value for value in values if isinstance(value, da.Array)]
    if not arrays or not isinstance(values[-1], da.Array):
        raise ScanTypeError(f"x must be a Dask array; got {type(values[-1]).__name__}: pass da.asarray(x)")
    for array in arrays:
        if any(np.isnan(size) for sizes in array.chunks for size in sizes):
            raise ScanValueError("x has chunks of unknown size: call x.compute_chunk_sizes() first")
    return max(arrays[::-1], key=lambda array: array.ndim)


def _like(value: Any, main: Array) -> Any:
    if not hasattr(value, "ndim") or not value.ndim:
        return value
    try:
        return da.broadcast_to(da.asarray(value), main.shape).rechunk(main.chunks)
    except ValueError as error:
        raise ScanValueError(f"an array of shape {value.shape} does not broadcast to {main.shape}") from error


def _spread(array: Any, role: str, main: Array, axis: int, reverse: bool) -> Array:
    """Return a mask or flags in the chunks of x; convert keys to flags where they change, in scan order."""
    array = da.asarray(array)
    if role == "keys":
        along = array.ndim == 1 and len(array) == main.shape[axis]
    else:
        along = lies_along(array.shape, main.shape, axis, role)
    if along:
        array = array.reshape(-1, *(1,) * (main.ndim - 1 - axis))
    whole = _like(array, main)
    if role != "keys":
        return whole
    cut = (slice(None),) * axis
    changes = whole[(*cut, slice(1, None))] != whole[(*cut, slice(None, -1))]
    border = da.zeros_like(whole[(*cut, slice(0, 1))], dtype=bool)
    return da.concatenate([changes, border] if reverse else [border, changes], axis).rechunk(main.chunks)


def _boundaries(offsets: Any, main: Array, axis: int, reverse: bool) -> Array:
    """Return one-dimensional flags, block by block."""
    length = main.shape[axis]
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu":
        raise ScanTypeError(f"offsets must be integers of one dimension; got {offsets.dtype} of shape {offsets.shape}")
    check_offsets(offsets, length)
    places = np.unique(offsets[(offsets > 0) & (offsets < length)]) - int(reverse)
    parts = []
    for first, end in itertools.pairwise(np.cumsum([0, *main.chunks[axis]]).tolist()):
        inside = places[(places >= first) & (places < end)] - first
        parts.append(da.from_delayed(delayed(_flags_at)(inside, end - first), (end - first,), bool))
    return _like(da.concatenate(parts).reshape(-1, *(1,) * (main.ndim - 1 - axis)), main)


def _flags_at(places: Any, length: int) -> Any:
    flags = np.zeros(length, np.bool_)
    flags[places] = True
    return flags


# ---- blocks ----------------------------------------------------------------------------------------------------------


class _Blocks:
    """A call on all blocks of arrays with the chunks of `main`, except for `initial`, which lacks the scanned axis.

    With `extra`, one block has an additional result: the first one in scan order, or with `behind` the last one.
    """

    def __init__(self, call: Call, given: dict[str, Any], main: Array, extra: bool, behind: bool) -> None:
        self.main, self.axis, self.reverse = main, call.flags.axis, call.flags.reverse
        self.count = main.numblocks[self.axis]
        self.extra = (0 if self.reverse == behind else self.count - 1) if extra else None
        metas = [array._meta if isinstance(array, da.Array) else array for array in given.values()]
        piece = _piece(call, tuple(metas))
        like = metas[call.roles.index("b") if "b" in call.roles else 0]
        none = (0,) * main.ndim
        self.metas = [np.empty_like(like, numpy_dtype(s.dtype), shape=none) for s in piece.request.results]
        op = piece.op if isinstance(piece.op, Operator) else piece.op.key  # workers find the operator by its key
        self.call = piece.call._replace(flags=piece.call.flags._replace(op=op))
        self.given = given
        self.starts = np.cumsum([0, *main.chunks[self.axis]]).tolist()
        sources = [x.name if isinstance(x, da.Array) else x for x in given.values()]
        self.token = tokenize(piece.op.key, piece.call.flags[1:], call.roles, call.initial, sources, extra, behind)

    def results(self) -> tuple[Array, ...]:
        """Return the results as Dask arrays."""
        tasks: dict[Any, Any] = {}
        for line in np.ndindex(self.main.numblocks[: self.axis] + self.main.numblocks[self.axis + 1 :]):
            self._add_line(line, tasks)
        sources = [x for x in self.given.values() if isinstance(x, da.Array)]
        shared = HighLevelGraph.from_collections(f"cuscan-{self.token}", tasks, dependencies=sources)
        return tuple(self._result(i, meta, shared) for i, meta in enumerate(self.metas))

    def _result(self, number: int, meta: Array, shared: HighLevelGraph) -> Array:
        """Return one of the results that the tasks of a graph return together."""
        name, common = f"cuscan-scan-{number}-{self.token}", f"cuscan-{self.token}"
        own = {
            (name, *place): (operator.getitem, self._key("scan", place), number)
            for place in np.ndindex(self.main.numblocks)
        }
        graph = HighLevelGraph({**shared.layers, name: own}, {**shared.dependencies, name: {common}})
        along = tuple(n + (k == self.extra) for k, n in enumerate(self.main.chunks[self.axis]))
        chunks = (*self.main.chunks[: self.axis], along, *self.main.chunks[self.axis + 1 :])
        return da.Array(graph, name, chunks, meta=meta)

    def _key(self, what: str, place: tuple[int, ...]) -> tuple[Any, ...]:
        return (f"cuscan-{what}-{self.token}", *place)

    def _add_line(self, line: tuple[int, ...], tasks: dict[Any, Any]) -> None:
        """Add the tasks of all blocks along the axis for one choice of the other axes."""
        total, join, scan = (functools.partial(f, self.call) for f in (_total, _join, _scan_block))
        order = range(self.count)[:: -1 if self.reverse else 1]
        places = [(*line[: self.axis], k, *line[self.axis :]) for k in order]
        arrays = [self._blocks(place, line) for place in places]
        totals = [self._key("total", place) for place in places[:-1]]
        for i, key in enumerate(totals):
            tasks[key] = (total, arrays[i], i == 0, self.starts[order[i]])

        def joined(one: Any, other: Any) -> Any:
            key = (f"cuscan-join-{self.token}", *line, len(tasks))
            tasks[key] = (join, one, other)
            return key

        for i, before in enumerate(_prefixes(totals, joined)):
            k = order[i]
            tasks[self._key("scan", places[i])] = (scan, arrays[i], before, k == self.extra, self.starts[k])

    def _blocks(self, place: tuple[int, ...], line: tuple[int, ...]) -> list[Any]:
        """Return the blocks of all arrays at a place, by their keys."""
        return [
            (x.name, *(line if role == "initial" else place)) if isinstance(x, da.Array) else x
            for role, x in self.given.items()
        ]


def _prefixes(totals: list[Any], join: Callable[[Any, Any], Any]) -> list[Any]:
    """Return what precedes each piece and the end: None, totals[0], totals[0] . totals[1], and so on."""
    if len(totals) < 2:
        return [None, *totals]
    pairs = [join(one, other) for one, other in zip(totals[::2], totals[1::2], strict=False)]
    before: list[Any] = []
    for i, prefix in enumerate(_prefixes(pairs, join)):
        before.append(prefix)
        if 2 * i < len(totals):
            before.append(totals[0] if prefix is None else join(prefix, totals[2 * i]))
    return before[: len(totals) + 1]


# ---- on workers ------------------------------------------------------------------------------------------------------


def _piece(call: Call, arrays: Arrays) -> Piece:
    op = call.flags.op
    if isinstance(op, str):
        call = call._replace(flags=call.flags._replace(op=find_key(op)))
    main = arrays[call.roles.index("b") if "b" in call.roles else 0]
    return Piece(call, _beside(main, arrays), _namespace(main))


def _beside(main: Any, arrays: Arrays) -> Arrays:
    """Move arrays to the device of `main`: boundaries are made on the host, and masks may come from there."""
    if isinstance(main, np.ndarray):
        return arrays
    import cupy

    return tuple(cupy.asarray(array) if isinstance(array, np.ndarray) else array for array in arrays)


def _namespace(array: Any) -> ArrayNamespace:
    if isinstance(array, np.ndarray):
        return ArrayNamespace(np)
    import cupy

    return ArrayNamespace(cupy)


def _total(call: Call, arrays: list[Any], first: bool, start: int) -> Total:
    piece = _piece(call, tuple(arrays))
    fields, restarts = piece.total(first=first)
    return Total(positioned(fields, piece.op, start, piece.xp), restarts)


def _join(call: Call, earlier: Total, later: Total) -> Total:
    xp = _namespace(earlier.fields[0])
    fields = tuple(xp.stack([one, other]) for one, other in zip(earlier.fields, later.fields, strict=True))
    op = find_key(call.flags.op) if isinstance(call.flags.op, str) else call.flags.op
    if earlier.restarts is None:
        return Total(fold(op, Total(fields, None), reverse=False, xp=xp), None)
    restarts = xp.stack([earlier.restarts, later.restarts])
    return Total(fold(op, Total(fields, restarts), reverse=False, xp=xp), restarts.any(0))


def _scan_block(call: Call, arrays: list[Any], before: Total | None, extra: bool, start: int) -> Arrays:
    call = call._replace(flags=call.flags._replace(include_initial=extra))
    return _piece(call, tuple(arrays)).scan(None if before is None else before.fields, start)
