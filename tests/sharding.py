"""Random scans of sequences in pieces, and ranks that are threads of one process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import cuscan
from cuscan.linearised import Call
from cuscan.operators import INDEXED, LINEAR_RECURRENCE
from cuscan.request.call import Flags

Array = np.ndarray[Any, Any]


# ---- a sequence, whole and in pieces ---------------------------------------------------------------------------------


@dataclass
class Sample:
    """A random scan. `values`: arrays by role, all of one shape; `beside`: the arrays beside them, by keyword.

    `keywords` are all other arguments of a call; of these only `initial` may be an array. `pieces`: where the pieces
    begin and end along the axis.
    """

    op: str
    values: dict[str, Array]
    beside: dict[str, Array]
    keywords: dict[str, Any]
    pieces: list[tuple[int, int]]

    @property
    def axis(self) -> int:
        axis: int = self.keywords["axis"]
        return axis

    def function(self, module: Any) -> Callable[..., Any]:
        """The function of a module that computes this scan of values."""
        if self.op == "linear_recurrence":
            return module.linear_recurrence
        if self.op in ("cummax", "cummin"):
            return lambda x, **keywords: getattr(module, self.op)(x, return_indices=True, **keywords)
        return lambda x, **keywords: module.scan(x, self.op, **keywords)

    def whole(self, convert: Callable[[Array], Any] = lambda array: array) -> tuple[Any, ...]:
        """The results of the whole in one call; `convert` turns NumPy arrays into another library's."""
        beside = {name: convert(array) for name, array in self.beside.items()}
        found = self.function(cuscan)(*map(convert, self.values.values()), **beside, **self.keywords_of(convert))
        return found if isinstance(found, tuple) else (found,)

    def keywords_of(self, convert: Callable[[Array], Any]) -> dict[str, Any]:
        return {k: convert(v) if isinstance(v, np.ndarray) else v for k, v in self.keywords.items()}

    def piece(self, array: Array, number: int, name: str = "") -> Array:
        """A piece of an array along the axis."""
        if name == "offsets":
            return array
        axis = 0 if name == "keys" else self.axis
        return array[(*(slice(None),) * axis, slice(*self.pieces[number]))]

    def values_of(self, number: int) -> list[Array]:
        return [self.piece(array, number) for array in self.values.values()]

    def beside_of(self, number: int) -> dict[str, Array]:
        return {name: self.piece(array, number, name) for name, array in self.beside.items()}

    def result_piece(self, result: Any, number: int) -> Any:
        """The part of a whole result that a rank returns."""
        lengths = [end - first for first, end in self.pieces]
        if self.keywords.get("include_initial"):
            behind = self.keywords["exclusive"] and bool({"reset", "keys", "offsets"} & set(self.beside))
            lengths[-1 if behind != self.keywords["reverse"] else 0] += 1
        first = sum(lengths[:number])
        return result[(*(slice(None),) * self.axis, slice(first, first + lengths[number]))]


def draw_sample(
    rng: np.random.Generator, sizes: Sequence[int], dtypes: Sequence[str] = (), longest: int = 12
) -> Sample:
    """A random scan; the number of its pieces is one of `sizes`."""
    names = ["add", "mul", "max", "logaddexp", "cummax", "cummin", "linear_recurrence", *(() if dtypes else ("xor",))]
    op = str(rng.choice(names))
    floats = op in ("logaddexp", "linear_recurrence")
    dtype = (
        "int32"
        if op == "xor"
        else str(rng.choice(dtypes or (["float32"] if floats else ["float32", "int16", "float64"])))
    )
    shape = tuple(rng.integers(rng.random() > 0.05, longest, rng.integers(1, 4)).tolist())
    axis = int(rng.integers(len(shape)))
    length, lines = shape[axis], shape[:axis] + shape[axis + 1 :]
    values = {"x": _draw(rng, shape, dtype)}
    keywords: dict[str, Any] = {"axis": axis, "reverse": bool(rng.integers(2))}
    beside: dict[str, Array] = {}
    if op == "linear_recurrence":
        values = {"a": _draw(rng, shape, dtype), "b": values["x"]}
        keywords["initial"] = _draw(rng, lines, dtype) if lines and rng.random() < 0.5 else None
    else:
        keywords |= {"exclusive": bool(rng.integers(2)), "include_initial": bool(rng.random() < 0.3)}
        keywords["initial"] = 2 if rng.random() < 0.4 else None
        if rng.random() < 0.3:
            beside["mask"] = rng.random(shape) < 0.7
    if op in ("cummax", "cummin"):
        keywords["ties"] = str(rng.choice(["first", "last"]))
    segments = {
        "reset": lambda: rng.random(shape) < 0.2,
        "keys": lambda: np.sort(rng.integers(0, 5, length)),
        "offsets": lambda: np.sort([0, *rng.integers(0, length + 1, 4), length]),
    }
    kind = str(rng.choice(["", *segments]))
    if kind:
        beside[kind] = segments[kind]()
    return Sample(op, values, beside, keywords, _cuts(rng, length, int(rng.choice(sizes))))


def samples_of_all_kinds(rng: np.random.Generator) -> dict[str, Sample]:
    """A random scan on three ranks with each of the arrays beside the values, and one with positions."""
    found: dict[str, Sample] = {}
    while len(found) < 5:
        sample = draw_sample(rng, (3,))
        if all(first < end for first, end in sample.pieces):
            for kind in sample.beside or (["positions"] if sample.op in ("cummax", "cummin") else []):
                found.setdefault(kind, sample)
    return found


def _draw(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers whose sums and products are exact in any order; in float64 any numbers."""
    if dtype == "float64":
        return rng.standard_normal(shape)
    return rng.integers(-2, 3, shape).astype(dtype)


def _cuts(rng: np.random.Generator, length: int, size: int) -> list[tuple[int, int]]:
    places = np.sort(rng.integers(0, length + 1, size - 1))
    if size > 2 and rng.random() < 0.5:  # one piece is empty, perhaps the first
        places[0] = rng.choice([0, places[1]])
    return list(itertools.pairwise([0, *places.tolist(), length]))


def agree(parts: Sequence[tuple[Any, ...]], whole: Sequence[Any], axis: int) -> None:
    """The joined parts of results equal the results of the whole."""
    for results, expected in zip(zip(*parts, strict=True), whole, strict=True):
        joined = np.concatenate([np.asarray(result) for result in results], axis)
        assert joined.dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(joined, np.asarray(expected), rtol=1e-5, atol=1e-6)


# ---- ranks -----------------------------------------------------------------------------------------------------------


class ThreadRanks:
    """See `cuscan.distributed.sharded.Ranks`; `stack` is the function of the arrays' library."""

    def __init__(self, rank: int, meeting: Meeting, stack: Callable[[Any], Any] = np.stack) -> None:
        self.rank, self.size, self._meeting, self._stack = rank, meeting.size, meeting, stack

    def gather(self, arrays: Sequence[Any]) -> list[Any]:
        everything = self._meeting.exchange(self.rank, [copy_of(array) for array in arrays])
        return [self._stack(parts) for parts in zip(*everything, strict=True)]


def copy_of(array: Any) -> Any:
    return array.detach().clone() if hasattr(array, "detach") else array.copy()


class Meeting:
    """The place where threads exchange arrays."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=60)
        self.brought: list[Any] = [None] * size

    def exchange(self, rank: int, arrays: Any) -> list[Any]:
        self.brought[rank] = arrays
        self.barrier.wait()
        everything = list(self.brought)
        self.barrier.wait()
        return everything


def on_threads(size: int, work: Callable[[Any], Any], stack: Callable[[Any], Any] = np.stack) -> list[Any]:
    """The results of `work`, one per rank; raises the first error."""
    meeting, results, errors = Meeting(size), [None] * size, []

    def run(rank: int) -> None:
        try:
            results[rank] = work(ThreadRanks(rank, meeting, stack))
        except Exception as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results


def call_of(
    sample: Sample, number: int, convert: Callable[[Array], Any] = lambda array: array
) -> tuple[Call, list[Any]]:
    """The call on a piece that the functions of `cuscan.distributed` make."""
    keywords = dict(sample.keywords)
    initial, ties = keywords.pop("initial"), keywords.pop("ties", None)
    op = LINEAR_RECURRENCE if sample.op == "linear_recurrence" else sample.op
    flags = Flags(INDEXED[sample.op[3:], ties] if ties else op, **keywords)
    given = dict(zip(sample.values, sample.values_of(number), strict=True)) | sample.beside_of(number)
    if isinstance(initial, np.ndarray):
        given["initial"], initial = initial, None
    return Call(flags, tuple(given), initial), [convert(array) for array in given.values()]
