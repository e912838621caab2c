"""CuPy arrays on the ranks of a communicator of `cupyx.distributed`. Importing this module imports CuPy."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Any

import cupy

from cuscan.distributed import sharded
from cuscan.distributed.header import check_headers, compare, raising_together
from cuscan.distributed.messages import lay_out
from cuscan.distributed.namespaces import ArrayNamespace
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.linearised import Call
from cuscan.request.call import Flags, Operands

Array = Any


class CommRanks:
    """The ranks of a communicator; see `sharded.Ranks`. Arrays travel as bytes, in one message."""

    def __init__(self, comm: Any) -> None:
        if not hasattr(comm, "all_gather") or not hasattr(comm, "rank"):
            raise ScanTypeError(
                f"comm must be what cupyx.distributed.init_process_group returns; got {type(comm).__name__}"
            )
        self._comm = comm
        # CuPy stores the number of ranks under a private name.
        self.rank, self.size = comm.rank, comm._n_devices

    def gather(self, arrays: Sequence[Array]) -> list[Array]:
        parts = [cupy.ascontiguousarray(array).reshape(-1).view(cupy.uint8) for array in arrays]
        places, size = lay_out([part.size for part in parts])
        message = parts[0]
        if len(parts) > 1:
            message = cupy.empty(size, cupy.uint8)
            for part, place in zip(parts, places, strict=True):
                message[place] = part
        whole = cupy.empty((self.size, size), cupy.uint8)
        if size:
            self._comm.all_gather(message, whole, size)
        shapes = [(self.size, *array.shape) for array in arrays]
        rows = [cupy.ascontiguousarray(whole[:, place]) for place in places]
        pairs = zip(rows, arrays, shapes, strict=True)
        return [row.reshape(-1).view(array.dtype).reshape(shape) for row, array, shape in pairs]


def run(flags: Flags, operands: Operands, initial: Any, comm: Any) -> tuple[Array, ...]:
    """Run a call on this rank's shard; see `backends.run`."""
    device = operands.views[-1].device.ordinal
    arrays = tuple(view.owner.item() if view.kind.is_number else view.owner for view in operands.views)
    outs = None if operands.outs is None else tuple(out.owner for out in operands.outs)
    with raising_together(partial(tell, comm=comm) if flags.validate else None):
        ranks, xp, call = CommRanks(comm), ArrayNamespace(cupy), Call(flags, operands.roles, initial)
        if device != _device_of(comm):
            raise ScanValueError(f"x is on GPU {device}, and comm of this rank on GPU {_device_of(comm)}: move x there")
    with cupy.cuda.Device(device):
        if flags.validate:
            check_headers(call, arrays, ranks, xp, outs)
        key = sharded.last_key(call, arrays, ranks, xp) if sharded.returns_key(call) else None
        results = sharded.scan(*sharded.prepare(call, arrays, ranks, xp, outs), ranks, xp, outs)
        return sharded.with_carry(results, call, key)


def tell(message: str, comm: Any) -> None:
    """See `torch.tell`."""
    with contextlib.suppress(ScanTypeError):  # without a communicator there are no ranks
        ranks = CommRanks(comm)
        with cupy.cuda.Device(_device_of(comm)):
            compare({"error": message}, ranks, cupy.asarray)


def _device_of(comm: Any) -> int:
    """Return the GPU on which a communicator was made, which CuPy stores under a private name."""
    ordinal: int = comm._comm.device_id()
    return ordinal
