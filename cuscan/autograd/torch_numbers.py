"""Numbers in place of arrays: a decay that is a number, in autograd and in kernels."""

from __future__ import annotations

from typing import Any

import torch

from cuscan.derivatives import Call
from cuscan.dtypes import DTYPES
from cuscan.interop.torch import LIBRARY
from cuscan.interop.view import ArrayView, number_like
from cuscan.request.call import find_dtype

Array = Any


def to_number(array: Any) -> complex:
    """Return the number that stands in for an array, from its view if there is one."""
    number: complex = array.owner.item() if isinstance(array, ArrayView) else array
    return number


def with_view(call: Call, arrays: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return arrays with a decay that is a number converted to a view, the form for kernels."""
    if isinstance(arrays[0], torch.Tensor | ArrayView):
        return arrays
    dtype = find_dtype(call.flags.dtype or arrays[1].dtype)
    device = LIBRARY.device_of(arrays[1], call.roles[1])
    return (number_like(arrays[0], DTYPES[dtype.accumulator], LIBRARY, device), *arrays[1:])
