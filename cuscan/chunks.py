"""Scan a sequence that comes chunk by chunk; the carry stays on the device of the chunks."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from cuscan.api import linear_recurrence, scan
from cuscan.errors import MissingDependencyError, ScanTypeError, ScanValueError
from cuscan.interop import CUPY_MISSING, adopt
from cuscan.request.call import SEGMENTS, choose_extremum
from cuscan.request.checks import check_offsets
from cuscan.signatures import LAST, Op, Ties, choose_axis

Array = Any


class Chunk(NamedTuple):
    """The arrays of one chunk: its values, and the other arrays by keyword."""

    values: tuple[Array, ...]
    beside: dict[str, Array]
    is_last: bool


def scan_chunks(
    chunks: Iterable[Any],
    op: Op | Literal["linear_recurrence"] = "add",
    *,
    axis: int = LAST,
    dim: int | None = None,
    device: Any = None,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Iterable[Any] | None = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Iterable[Any] | None = None,
    offsets: Any = None,
    keys: Iterable[Any] | None = None,
    carry: Any = None,
    return_indices: bool = False,
    ties: Ties = "first",
    dtype: Any = None,
) -> Generator[Any, None, Any]:
    """Scan a sequence that comes in chunks: return a generator of the results of the whole, chunk by chunk.

    Args:
        chunks: arrays to join along the axis, with the same dtype and the same other axes; some may be empty. For a
            linear recurrence, tuples (a, b); for an `Operator` with several fields, tuples of its fields.
        op: as for `cuscan.scan`, or "linear_recurrence".
        axis: the axis along which the chunks follow each other.
        dim: another name for axis.
        device: the number of a GPU, or "cuda" for the current one, that scans NumPy chunks. Each chunk is copied to the
            GPU, scanned, and copied back to pinned memory, while the next chunk arrives and the previous one leaves.
            Chunks in pinned memory (`cupyx.empty_pinned`) and memory-mapped files are used directly. With None,
            chunks stay where they are.
        reverse: scan from the end; the last chunk comes first.
        exclusive: as for `cuscan.scan`.
        include_initial: adds one element to the first chunk, or with `exclusive` and segments to the last one.
        mask: an iterable of masks, one per chunk.
        skipna: as for `cuscan.scan`.
        initial: as for `cuscan.scan`, or `cuscan.linear_recurrence`.
        reset: an iterable of flags, one array per chunk.
        offsets: offsets of the whole sequence: a list, or an array on the CPU.
        keys: an iterable of keys, one array per chunk.
        carry: what precedes the first chunk, as for `cuscan.scan`.
        return_indices: for "max" and "min", also return positions, counted from the first chunk. With `reverse` they
            are counted from the beginning of the chunk that they come with.
        ties: as for `cuscan.cummax`.
        dtype: as for `cuscan.scan`.

    Yields:
        The results of `cuscan.scan` for each chunk, in the chunk's library; with `device`, arrays in pinned memory.

    Returns:
        The carry after the last chunk, as the value of the generator (`yield from`); None without chunks.

    Raises: as `cuscan.scan`, when the faulty chunk comes.
    """
    axis = choose_axis(axis, dim)
    flags = {"axis": axis, "reverse": reverse, "dtype": dtype}
    if op != "linear_recurrence":
        op = choose_extremum(op, return_indices, ties)
        flags |= {"exclusive": exclusive, "include_initial": include_initial, "skipna": skipna}
    elif exclusive or include_initial or skipna or return_indices or mask is not None:
        raise ScanTypeError("a linear recurrence takes no exclusive, include_initial, mask, skipna or return_indices")
    given = {"mask": mask, "reset": reset, "keys": keys}
    beside = {name: arrays for name, arrays in given.items() if arrays is not None}
    segments = [name for name in SEGMENTS if name in beside or (name == "offsets" and offsets is not None)]
    if len(segments) > 1:
        raise ScanValueError(f"{' and '.join(segments)} exclude each other: pass one of them")
    if offsets is not None:
        offsets = np.asarray(offsets)
        check_offsets(offsets, offsets[-1])
    looks_ahead = include_initial and exclusive and bool(segments)
    state = _State(op, flags, initial, carry, offsets, bool(segments))
    pieces = _together(chunks, beside, looks_ahead)
    through: Any = map
    if device is not None:
        through = _transfers().Passages(device)
        state.bring(through.brought)
    for results in through(state.scan, pieces):
        yield results[0] if len(results) == 1 else results
    return state.carry


class _State:
    """The position in a sequence: what precedes the next chunk."""

    def __init__(
        self, op: Any, flags: dict[str, Any], initial: Any, carry: Any, offsets: Any, has_segments: bool
    ) -> None:
        self._op, self._flags, self._initial, self.carry = op, flags, initial, carry
        self._offsets, self._done, self._first = offsets, 0, True
        self._has_segments, self._has_carry = has_segments, carry is not None

    def bring(self, brought: Callable[[Any], Any]) -> None:
        """Move arrays that precede the first chunk to the device of the chunks."""
        self._initial, self.carry = brought(self._initial), brought(self.carry)

    def scan(self, chunk: Chunk) -> tuple[Any, ...]:
        """Return the results of the next chunk."""
        flags, beside = self._flags | self._extra(chunk), dict(chunk.beside)
        if self._offsets is not None:
            beside["offsets"] = self._offsets_of(chunk)
        recur: Any = linear_recurrence  # the types depend on the caller
        if self._op == "linear_recurrence":
            initial = {"initial": self._initial} if self.carry is None else {"carry": self.carry}
            *results, self.carry = recur(*chunk.values, **flags, **beside, **initial, return_carry=True)
        else:
            x: Any = chunk.values if len(chunk.values) > 1 else chunk.values[0]
            given = {"initial": self._initial, "carry": self.carry, "return_carry": True}
            *results, self.carry = scan(x, self._op, **flags, **beside, **given)
        self._first = False
        return tuple(results)

    def _extra(self, chunk: Chunk) -> dict[str, bool]:
        """Return whether this chunk holds the element of `include_initial`, before the first element or at the end."""
        if not self._flags.get("include_initial"):
            return {}
        behind = self._flags["exclusive"] and self._has_segments
        return {"include_initial": chunk.is_last if behind else self._first, "exclusive": behind}

    def _offsets_of(self, chunk: Chunk) -> Any:
        """Return the offsets of a chunk, after an empty segment if one starts exactly with the chunk, in scan order."""
        view = adopt(chunk.values[-1], "chunks")
        length, reverse, whole = view.shape[self._flags["axis"]], self._flags["reverse"], int(self._offsets[-1])
        first = whole - self._done - length if reverse else self._done
        at_start = not self._done
        self._done += length
        if self._done > whole:
            raise ScanValueError(f"offsets end with {whole}, and the chunks so far have {self._done} elements")
        low, high = np.searchsorted(self._offsets, first, "right"), np.searchsorted(self._offsets, first + length)
        border = first + length if reverse else first
        boundaries = np.searchsorted(self._offsets, border, "right") - np.searchsorted(self._offsets, border)
        # The whole begins with a boundary in any case: a second one ends the segment that the user's carry left open.
        starts = boundaries > 1 and self._has_carry if at_start else boundaries > 0
        head, tail = [0] * (1 + (starts and not reverse)), [length] * (1 + (starts and reverse))
        made = np.concatenate([head, self._offsets[low:high] - first, tail]).astype(np.int64)
        return view.library.from_numpy(made, view.device)


def _together(chunks: Iterable[Any], beside: dict[str, Iterable[Any]], looks_ahead: bool) -> Iterator[Chunk]:
    """Yield each chunk with the arrays beside it; with `looks_ahead`, determine which one is the last."""
    missing = object()
    iterators = {name: iter(arrays) for name, arrays in beside.items()}
    before: Chunk | None = None
    for chunk in chunks:
        values = chunk if isinstance(chunk, tuple) else (chunk,)
        arrays = {name: next(iterator, missing) for name, iterator in iterators.items()}
        for name, array in arrays.items():
            if array is missing:
                raise ScanValueError(f"{name} has fewer arrays than there are chunks")
        if before is not None:
            yield before
        before = Chunk(values, arrays, is_last=False)
        if not looks_ahead:
            yield before
            before = None
    if before is not None:
        yield before._replace(is_last=True)


def _transfers() -> Any:
    """Return the module that passes chunks through a GPU."""
    try:
        from cuscan import transfers
    except MissingDependencyError:  # CuPy has an unsupported version
        raise
    except ImportError as error:
        raise MissingDependencyError(CUPY_MISSING.format(what="device")) from error
    return transfers
