"""Bits of segment starts from the simulated kernels, and from NumPy."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from plans import request
from simulator import CODE, DeviceCode, Memory, SimulationError, run_before
from views import view

from cuscan.planning.config import Preparation, StartsConfig, Target
from cuscan.planning.segment_starts import plan_starts

Array = np.ndarray[Any, Any]

GPU = Target(90, 132)
ENDS = np.iinfo(np.int64)
CHUNK = 32 * StartsConfig("int32").chunk  # positions


def starts(shape: tuple[int, ...], offsets: Any, axis: int = -1, target: Target = GPU, **flags: Any) -> Preparation:
    made = plan_starts(request(view(shape), axis=axis, segments=("offsets", offsets), **flags), target)
    assert made is not None
    return made


def bits_of(offsets: Array, length: int, reverse: bool) -> Array:
    """For each position, whether a segment starts there; the start of the row does not count."""
    inside = offsets[(offsets > 0) & (offsets < length)].astype(np.int64)
    marks = np.zeros(length, np.uint8)
    marks[length - inside if reverse else inside] = 1
    return marks


def surrounded(offsets: Array, stride: int, length: int) -> Memory:
    """Offsets in memory, `stride` entries apart; all other entries would be boundaries, too."""
    margin, span = 600, (offsets.size - 1) * abs(stride) + 1
    memory = np.random.default_rng(0).integers(1, max(length, 2), span + 2 * margin).astype(offsets.dtype)
    first = margin + (span - 1) * (stride < 0)
    raw = memory.view(np.uint8)
    placed = np.ndarray(offsets.shape, offsets.dtype, raw, first * offsets.itemsize, (stride * offsets.itemsize,))
    placed[...] = offsets
    return Memory(raw, placed)


def found(
    offsets: Array, length: int, *, reverse: bool, run: int = 1, stride: int = 1, seed: int = 0, code: DeviceCode = CODE
) -> Array:
    """The bits of the simulated kernel, with `run` pieces per warp."""
    made = starts((length,), view(offsets.shape, offsets.dtype.name, strides=(stride,)), reverse=reverse)
    return _marks(made, surrounded(offsets, stride, length), length, run, seed, code)


def found_in(
    given: str, items: Array, *, reverse: bool, run: int = 1, stride: int = 1, seed: int = 0, code: DeviceCode = CODE
) -> Array:
    """The same for `items`, the flags or keys of two lines; they are `stride` items apart."""
    length, of = items.size, view(items.shape, items.dtype.name, strides=(stride,))
    with mock.patch("cuscan.planning.segment_starts.FEWEST", 0):
        made = plan_starts(request(view((2, length)), axis=1, segments=(given, of), reverse=reverse), GPU)
    assert made is not None
    memory = Memory.like(items, at_end=reverse) if stride == 1 else surrounded(items, stride, length)
    return _marks(made, memory, length, run, seed, code)


def starts_in(given: str, items: Array, reverse: bool) -> Array:
    """For each position, whether a segment starts there."""
    turned = items[::-1] if reverse else items
    return turned.copy() if given == "reset" else np.concatenate([[False], turned[1:] != turned[:-1]])


def _marks(made: Preparation, memory: Memory, length: int, run: int, seed: int, code: DeviceCode) -> Array:
    count, step, *sizes, _, backwards = made.words
    assert isinstance(made.config, StartsConfig)
    pieces = made.nbytes * 8 // made.config.piece
    made = made._replace(
        grid=-(-pieces // (run * made.config.warps)), words=(count, step, *sizes, run * made.config.piece, backwards)
    )
    bits = run_before(made, memory, 90, seed, code)
    marks = np.unpackbits(bits.array.view(np.uint8), bitorder="little")
    if marks[length:].any():
        raise SimulationError("a segment starts beyond the end")
    return marks[:length]


def sorted_offsets(length: int) -> dict[str, Array]:
    """Sorted offsets; offsets outside of the axis do not count."""
    rng = np.random.default_rng(length)
    some = rng.integers(0, length + 1, length // 9 + 2)
    far = [ENDS.min, ENDS.min + 1, -1, length + 1, 2**40, ENDS.max - 1, ENDS.max]
    third = length // 3
    return {
        "ends": np.array([0, length]),
        "one": np.array([length // 2]),
        "outside": np.array(far),
        "each": np.arange(length + 1),
        "random": np.sort(some),
        "random-int32": np.sort(some).astype(np.int32),
        "far": np.sort(np.concatenate([far, some])),
        "far-int32": np.sort(np.concatenate([np.array([-(2**31), -1, 2**31 - 1]), some])).astype(np.int32),
        "equal": np.full(1000, length // 2),
        "empty": np.sort(
            np.repeat([0, min(5, length), third, third + 1, third + 3, length], [130, 1, 1000, 128, 129, 300])
        ),
        # Searches end on the entry behind a run of equal ones, and before it.
        "runs": np.concatenate([[*[20 * i + 5] * (200 + i), 20 * i + 6] for i in range(60)]),
    }
