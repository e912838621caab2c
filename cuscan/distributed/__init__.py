"""Scans of arrays whose scanned axis is sharded, with one shard on each rank; the functions are those of `cuscan`.

Each rank passes its shard, in the order of ranks, and gets its part of the result. torch tensors use a process group of
torch.distributed (`group=`), CuPy arrays a communicator of `cupyx.distributed` (`comm=`), and JAX arrays an axis of a
mesh inside `jax.shard_map` (`axis_name=`).
"""

from __future__ import annotations

import numbers
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cuscan.api import adopt_recurrence, adopt_scan
from cuscan.distributed.dtensors import takes_dtensors
from cuscan.distributed.header import raising_together
from cuscan.errors import ScanTypeError, ScanValueError
from cuscan.operators import LINEAR_RECURRENCE
from cuscan.request.call import Flags, Operands, choose_extremum, make_flags
from cuscan.signatures import LAST, Op, Ties, choose_axis, known, spells_keywords_of

__all__ = [
    "cummax", "cummin", "cumprod", "cumsum", "linear_recurrence", "logcumsumexp", "nancumprod", "nancumsum", "scan",
]  # fmt: skip

Run = Callable[[Flags, Operands, Any, Any], tuple[Any, ...]]


@takes_dtensors
def scan(
    x: Any,
    op: Op = "add",
    *,
    axis: int = LAST,
    dim: int | None = None,
    group: Any = None,
    comm: Any = None,
    axis_name: Any = None,
    reverse: bool = False,
    exclusive: bool = False,
    include_initial: bool = False,
    mask: Any = None,
    skipna: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    carry: Any = None,
    return_carry: bool = False,
    validate: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Return this rank's part of the scan of a sharded sequence: of `cuscan.scan` of all shards, joined.

    Args:
        x: this rank's shard, as for `cuscan.scan`. Shards may differ in length, and may be empty. The other axes, the
            dtype and all arguments that are not arrays must be the same on all ranks, which call together.
        op: as for `cuscan.scan`.
        axis: the axis that is sharded.
        dim: another name for axis.
        group: the process group for torch tensors; None is the default group.
        comm: the communicator for CuPy arrays, from `cupyx.distributed.init_process_group`.
        axis_name: for JAX arrays, inside `jax.shard_map`: the axis of the mesh along which the shards lie.
        reverse: scan from the end of the last rank's shard to the beginning of the first rank's.
        exclusive: as for `cuscan.scan`.
        include_initial: adds one element on the first rank in scan order: rank 0, or with `reverse` the last rank. With
            `exclusive` and segments, adds it on the last rank in scan order.
        mask: this rank's part, as for `cuscan.scan`.
        skipna: as for `cuscan.scan`.
        initial: as for `cuscan.scan`: precedes the first element of the first rank in scan order, and of every segment.
        reset: this rank's part. If its first element (in scan order) is True, a segment starts between two shards.
        offsets: offsets of the whole sequence, the same on all ranks. Offsets on the CPU are checked.
        keys: this rank's part. Its first key is compared with the last key of the previous rank.
        carry: what precedes the first rank in scan order, as for `cuscan.scan`; the same on all ranks.
        return_carry: also return the carry after the last rank, which is the same on all ranks. If a sequence comes in
            sharded chunks, it is the `carry` of the next chunk.
        validate: first compare the calls of all ranks, and wait: all ranks raise the same error if dtype, operator,
            flags or other axes differ. Also check offsets on a GPU. Without it, the caller guarantees all of this.
        dtype: as for `cuscan.scan`.
        out: the array for this rank's part, as for `cuscan.scan`.

    Returns:
        This rank's part of the result, as `cuscan.scan` returns it. Positions of extrema are counted from the beginning
        of the first rank's shard. The joined parts are the result of the whole: exactly if the operator is exact,
        otherwise up to rounding (see `cuscan.scan`). On a GPU everything is queued on the current stream, and nothing
        waits.

    Raises: as `cuscan.scan`; if a rank is missing, the transport's own timeout ends the call.

    x is read twice and written once. Between the two reads, one exchange sends the carry of each line from every rank.
    Autograd records the call on torch tensors: the backward is such a scan with the ranks in the other direction, so
    every rank must take part in it. `initial` of a recurrence gets its gradient on the first rank in scan order.
    """
    with raising_together(_teller(validate, x if isinstance(x, tuple) else (x,), group, comm, axis_name)):
        axis = choose_axis(axis, dim)
        flags = make_flags(op, axis, reverse, exclusive, include_initial, skipna, dtype, False, validate, return_carry)
        operands, structure = adopt_scan(x, op, out, carry, mask=mask, reset=reset, offsets=offsets, keys=keys)
        if structure is not None:
            raise ScanTypeError("x is a structured array; pass its fields as a tuple")
        run, ranks = _choose(operands, group, comm, axis_name)
    results = run(flags, operands, initial, ranks)
    behind = results[-1:] if return_carry else ()
    if out is not None:
        results = (out if isinstance(out, tuple) else (out,)) + behind
    as_tuple = isinstance(x, tuple) or isinstance(out, tuple)
    return results if len(results) > 1 or as_tuple else results[0]


@takes_dtensors
def linear_recurrence(
    a: Any,
    b: Any,
    *,
    axis: int = LAST,
    dim: int | None = None,
    group: Any = None,
    comm: Any = None,
    axis_name: Any = None,
    reverse: bool = False,
    initial: Any = None,
    reset: Any = None,
    offsets: Any = None,
    keys: Any = None,
    carry: Any = None,
    return_carry: bool = False,
    validate: bool = False,
    dtype: Any = None,
    out: Any = None,
) -> Any:
    """Return this rank's part of the recurrence h[t] = a[t] * h[t - 1] + b[t] over a sharded sequence.

    Args:
        a: this rank's part, as for `cuscan.linear_recurrence`; an array that does not vary along the axis must be the
            same on all ranks.
        b: this rank's shard.
        axis: the axis that is sharded.
        dim: another name for axis.
        group: as for `scan`.
        comm: as for `scan`.
        axis_name: as for `scan`.
        reverse: as for `scan`.
        initial: as for `cuscan.linear_recurrence`; only that of the first rank in scan order matters.
        reset: as for `scan`.
        offsets: as for `scan`.
        keys: as for `scan`.
        carry: as for `scan`; in place of `initial`.
        return_carry: as for `scan`.
        validate: as for `scan`.
        dtype: as for `cuscan.linear_recurrence`.
        out: the array for this rank's part.

    Returns: this rank's part of h.

    Raises: as `scan`.
    """
    with raising_together(_teller(validate, (a, b), group, comm, axis_name)):
        axis = choose_axis(axis, dim)
        flags = make_flags(LINEAR_RECURRENCE, axis, reverse, dtype=dtype, validate=validate, return_carry=return_carry)
        if initial is not None and carry is not None:
            raise ScanValueError("initial and carry exclude each other: both say what precedes the first element")
        number = initial if isinstance(initial, numbers.Number | np.generic) else None
        beside = {"reset": reset, "offsets": offsets, "keys": keys, "initial": initial if number is None else None}
        operands = adopt_recurrence(a, b, dtype, out, carry, **beside)
        run, ranks = _choose(operands, group, comm, axis_name)
    results = run(flags, operands, number, ranks)
    if out is not None:
        results = (out, *results[1:])
    return results if return_carry else results[0]


def _choose(operands: Operands, group: Any, comm: Any, axis_name: Any) -> tuple[Run, Any]:
    """Return the function that runs a call on shards of its library, and that library's argument for the ranks."""
    libraries = {view.library.name for view in operands.views}
    library = "jax" if "jax" in libraries else operands.values[-1].library.name  # NumPy arrays are converted
    run: Run
    names = {"torch": "group", "jax": "axis_name"}
    given = {"group": group, "comm": comm, "axis_name": axis_name}
    wanted = names.get(library, "comm")
    wrong = [name for name, value in given.items() if value is not None and name != wanted]
    if wrong or (given[wanted] is None and wanted != "group"):
        raise ScanTypeError(
            f"x is of {library}: group is for torch tensors, axis_name for JAX arrays, and CuPy arrays need comm"
        )
    if library == "torch":
        from cuscan.distributed.torch import run
    elif library == "jax":
        from cuscan.distributed.jax import run
    elif operands.views[-1].device.type == "cpu":
        raise ScanValueError("comm is for CuPy arrays, and x is on the CPU")
    else:
        from cuscan.distributed.cupy import run
    return run, given[wanted]


# ---- the other names -------------------------------------------------------------------------------------------------


@spells_keywords_of(scan)
def cumsum(x: Any, axis: int = LAST, **keywords: Any) -> Any:
    """Cumulative sum: `scan(x, "add", ...)`."""
    return scan(x, "add", axis=axis, **known(cumsum, keywords))


@spells_keywords_of(scan)
def cumprod(x: Any, axis: int = LAST, **keywords: Any) -> Any:
    """Cumulative product: `scan(x, "mul", ...)`."""
    return scan(x, "mul", axis=axis, **known(cumprod, keywords))


@spells_keywords_of(scan, "skipna")
def nancumsum(x: Any, axis: int = LAST, **keywords: Any) -> Any:
    """Cumulative sum in which NaN counts as 0."""
    return scan(x, "add", axis=axis, skipna=True, **known(nancumsum, keywords))


@spells_keywords_of(scan, "skipna")
def nancumprod(x: Any, axis: int = LAST, **keywords: Any) -> Any:
    """Cumulative product in which NaN counts as 1."""
    return scan(x, "mul", axis=axis, skipna=True, **known(nancumprod, keywords))


@spells_keywords_of(scan)
def logcumsumexp(x: Any, axis: int = LAST, **keywords: Any) -> Any:
    """log(cumsum(exp(x))) without overflow: `scan(x, "logaddexp", ...)`."""
    return scan(x, "logaddexp", axis=axis, **known(logcumsumexp, keywords))


@spells_keywords_of(scan)
def cummax(x: Any, axis: int = LAST, *, return_indices: bool = False, ties: Ties = "first", **keywords: Any) -> Any:
    """Running maximum: `scan(x, "max", ...)`; `return_indices` and `ties` as for `cuscan.cummax`."""
    return scan(x, choose_extremum("max", return_indices, ties), axis=axis, **known(cummax, keywords))


@spells_keywords_of(scan)
def cummin(x: Any, axis: int = LAST, *, return_indices: bool = False, ties: Ties = "first", **keywords: Any) -> Any:
    """Running minimum: `scan(x, "min", ...)`; `return_indices` and `ties` as for `cuscan.cummax`."""
    return scan(x, choose_extremum("min", return_indices, ties), axis=axis, **known(cummin, keywords))


def _teller(validate: Any, values: Any, group: Any, comm: Any, axis_name: Any) -> Callable[[str], None] | None:
    """Return a function that sends an error of this rank to the others, or None if they do not wait for its header.

    JAX runs one program on all ranks, so all of them raise the error anyway.
    """
    if validate is not True or axis_name is not None:
        return None
    torch = sys.modules.get("torch")
    are_tensors = torch is not None and any(isinstance(value, torch.Tensor) for value in values)
    if comm is not None and not are_tensors and "cupy" in sys.modules:
        from cuscan.distributed.cupy import tell as tell_comm

        return partial(tell_comm, comm=comm)
    if "torch.distributed" in sys.modules:
        from cuscan.distributed.torch import tell as tell_group

        return partial(tell_group, group=group, values=values)
    return None
