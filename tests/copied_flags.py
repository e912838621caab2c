"""Flags that lie across the rows that are scanned, and their copies by the simulated kernel (flag_copies.cuh)."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from plans import request
from simulator import CODE, DeviceCode, Memory, assert_same, run_before
from views import view

from cuscan.planning.config import Preparation, Target
from cuscan.planning.preparations import preparations, prepared

Array = np.ndarray[Any, Any]

GPU = Target(90, 132)
FEWEST = "cuscan.planning.flag_copies.FEWEST"


class Across(NamedTuple):
    """Flags of a shape: the axes of their memory, the slowest first; what is cut from it; axes that have one flag."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    cut: tuple[slice, ...] = ()
    still: tuple[int, ...] = ()

    def memory(self, share: float = 0.6) -> Array:
        """Flags of which so many are true, in the order of memory, before the cut."""
        shape = [1 if a in self.still else self.shape[a] for a in self.order]
        cuts = self.cut or (slice(None),) * len(shape)
        sizes = [(n + (of.start or 0) - (of.stop or 0)) * abs(of.step or 1) for n, of in zip(shape, cuts, strict=True)]
        return np.random.default_rng(2).random(sizes) < share

    def seen(self, memory: Any) -> Any:
        """The flags in such memory."""
        return memory[self.cut].transpose(tuple(np.argsort(self.order).tolist()))

    def flags(self, share: float = 0.6) -> Array:
        return np.broadcast_to(self.seen(self.memory(share)), self.shape)


ODD, GAP, EVERY_OTHER, BACK = slice(1, None), slice(None, -1), slice(None, None, 2), slice(None, None, -1)
ACROSS = {
    "words": Across((128, 256), (1, 0)),
    "odd rows": Across((45, 257), (1, 0)),
    "rows that begin anywhere": Across((40, 131), (1, 0), (ODD, ODD)),
    "rows with gaps": Across((133, 129), (1, 0), (slice(None), GAP)),
    "every other one": Across((37, 70), (1, 0), (slice(None), EVERY_OTHER)),
    "backwards": Across((50, 70), (1, 0), (BACK, BACK)),
    "few rows": Across((9, 2100), (1, 0), (slice(None), slice(None, -30))),
    "close rows": Across((15, 1500), (1, 0), (slice(None), GAP)),
    "batches": Across((3, 33, 66), (0, 2, 1)),
    "a batch between": Across((33, 5, 66), (1, 2, 0)),
    "four axes of batches": Across((2, 3, 2, 2, 33, 40), (0, 5, 2, 1, 3, 4)),
    "short rows": Across((70, 11, 4), (1, 2, 0)),
    "short rows in batches": Across((3, 70, 11, 4), (0, 2, 3, 1), (slice(None), slice(None), slice(None), ODD)),
    "one for some": Across((4, 40, 3, 50), (3, 0, 2, 1), (), (0, 2)),
}


def values_for(case: Across) -> Array:
    return np.random.default_rng(1).integers(-9, 9, case.shape).astype(np.int32)


def copied(case: Across, given: Array | None = None) -> tuple[Preparation, tuple[int, ...]]:
    """The launch that copies such flags beside values in C order, and the strides of the copy."""
    flags = case.flags() if given is None else given
    with mock.patch(FEWEST, 0):
        asked = request(view(case.shape), mask=view(case.shape, "bool", flags.strides, flags.ctypes.data % 16))
        [made] = preparations(asked, GPU)
        copy = prepared(asked, GPU).mask
    assert made.role == "mask" and copy is not None
    return made, copy.strides


def check_copy(case: Across, code: DeviceCode = CODE) -> None:
    """The simulated kernel's copy of flags at the beginning of their memory, and at its end."""
    flags = case.flags()
    for seed, at_end in enumerate((False, True)):
        memory = Memory.like(flags, at_end=at_end)
        made, strides = copied(case, memory.array)
        copy = run_before(made, memory, 90, seed, code).array
        assert_same(np.lib.stride_tricks.as_strided(copy, case.shape, strides), flags.view(np.uint8))
