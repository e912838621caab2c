"""torch tensors. Importing this module imports torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad as _forward_ad

from cuscan.dtypes import DTYPES, DType, Kind
from cuscan.errors import ScanTypeError
from cuscan.interop.torch_internals import allocate, allocates, count_write, like, raw_stream
from cuscan.interop.view import ArrayKind, ArrayView, Device, Kinds, Like, WideIntegers
from cuscan.kept import Table, keep
from cuscan.specs import ALIGNMENT

_DTYPES = {getattr(torch, name): row for name, row in DTYPES.items() if hasattr(torch, name)}
_TORCH_DTYPES = {row: dtype for dtype, row in _DTYPES.items()}
_COMPLEX = Kind.COMPLEX
_CPU = Device("cpu", 0)
_DEVICES = [Device("cuda", index) for index in range(64)]
_TORCH_DEVICES = {_CPU: torch.device("cpu")} | {device: torch.device("cuda", device.ordinal) for device in _DEVICES}


_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
transforms_are_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_is_compiling: Callable[[], bool] = torch.compiler.is_compiling
_is_traced: Callable[[], bool] = torch.compiler.is_dynamo_compiling  # traces bytecode, not tensors
_count_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def to_torch(dtype: DType) -> Any:
    """Return the torch dtype of a row."""
    return _TORCH_DTYPES[dtype]


def from_torch(dtype: Any) -> DType:
    """Return the row of a torch dtype."""
    return _DTYPES[dtype]


def count_forward_levels() -> int:
    """Return the number of nested forward derivatives of torch.func."""
    functorch = torch._C._functorch
    if not hasattr(functorch, "get_interpreter_stack"):
        return 0
    levels = functorch.get_interpreter_stack() or ()
    return sum(level.key() == functorch.TransformType.Jvp for level in levels)


def is_plain(array: Any) -> bool:
    """Return whether an object is a plain torch tensor, or no tensor, with no tracing mode active."""
    return (type(array) in _PLAIN or not isinstance(array, torch.Tensor)) and not _count_modes()


def _may_be_traced() -> bool:
    """Return whether results may be tracked regardless of the tensors: batched, differentiated forward, or traced."""
    return _is_traced() or transforms_are_active() or _count_modes() > 0 or _forward_ad._current_level >= 0


def is_followed() -> bool:
    """Return whether results of plain tensors may be tracked in ways that guards do not detect."""
    return torch.is_grad_enabled() or _forward_ad._current_level >= 0 or _is_traced()


def _is_recorded(array: Any) -> bool:
    """Return whether derivatives of results of a plain tensor are recorded."""
    if array.requires_grad and torch.is_grad_enabled():
        return True
    return _forward_ad._current_level >= 0 and _forward_ad.unpack_dual(array).tangent is not None


class TorchLibrary(WideIntegers):
    """See `interop.view.HostLibrary` and `DeviceLibrary`."""

    name = "torch"

    def __init__(self) -> None:
        self._kinds: Kinds = Table()

    def look(self, arrays: tuple[Any, ...]) -> tuple[list[Any], list[int]] | None:
        """See `Library`. The last fact is for `autograd`: one bit per array that it records; 0 if it records none."""
        if _may_be_traced():
            return None
        facts: list[Any] = []
        pointers = []
        recorded, may_be_recorded = 0, torch.is_grad_enabled()
        for array in arrays:
            if type(array) is ArrayView:  # a number
                facts.append(array.kind)
                pointers.append(0)
                continue
            if type(array) not in _PLAIN or not array.is_cuda:
                return None
            dtype = array.dtype
            if array.is_neg() or (dtype.is_complex and array.is_conj()):
                return None
            try:
                pointer = array.data_ptr()
                facts += dtype, *array.shape, *array.stride(), array.get_device(), pointer % ALIGNMENT
            except RuntimeError:  # not strided
                return None
            pointers.append(pointer)
            recorded += recorded + (may_be_recorded and array.requires_grad)
        facts.append(recorded)
        return facts, pointers

    def mode(self, array: Any) -> int | None:
        # Guards detect the keys of transforms and of modes, but not forward derivatives.
        if _is_traced() or _forward_ad._current_level >= 0 or type(array) not in _PLAIN or not array.is_cuda:
            return None
        recorded: int = torch.is_grad_enabled() + 2 * array.requires_grad  # requires_grad, so that both are found fast
        return recorded

    def liken(self, arrays: tuple[Any, ...]) -> Like | None:
        return like(arrays)

    def adopt(self, array: Any, name: str) -> ArrayView:
        if _is_compiling() or transforms_are_active() or not is_plain(array):
            return ArrayView(array, self.kind_of(array, name), 0, traced=True)
        view = self.view(array, name)
        view.traced = _is_recorded(array)
        return view

    def view(self, array: Any, name: str) -> ArrayView:
        """View a tensor as memory, even if derivatives or transforms track it."""
        try:
            key = array.dtype, array.shape, array.stride(), array.device
            kind = self._kinds.get(key) or keep(self._kinds, key, self.kind_of(array, name))
            pointer = array.data_ptr()
        except RuntimeError:  # a sparse tensor has no strides, a nested one no shape, others no memory
            self.kind_of(array, name)
            raise
        if array.is_neg() or (kind.dtype.kind is _COMPLEX and array.is_conj()):
            if name == "out":
                raise ScanTypeError("out has its conjugate or negative bit set; pass a plain tensor")
            return self.view(array.resolve_conj().resolve_neg(), name)
        if not pointer and array.numel():
            raise ScanTypeError(f"{name} is a {type(array).__name__} without memory")
        return ArrayView(array, kind, pointer)

    def kind_of(self, array: Any, name: str) -> ArrayKind:
        dtype = _DTYPES.get(array.dtype)
        if array.is_nested:
            raise ScanTypeError(f"{name} is a nested tensor; pass its values(), and its offsets() as offsets=")
        if dtype is None or array.layout is not torch.strided:
            raise self._not_strided(array, name)
        device = self.device_of(array, name)
        return ArrayKind(self, dtype, tuple(array.shape), array.stride(), device)

    def device_of(self, array: Any, name: str) -> Device:
        """Return the device of a tensor."""
        if array.is_cuda:
            if torch.version.hip:
                raise ScanTypeError(f"{name} is on a ROCm GPU; cuscan works on CUDA GPUs and on the CPU")
            index: int = array.get_device()
            return _DEVICES[index]
        if array.device.type != "cpu":
            raise ScanTypeError(f"{name} is on device {array.device}; cuscan works on cuda and cpu")
        return _CPU

    def _not_strided(self, array: Any, name: str) -> ScanTypeError:
        advice = "" if array.layout is torch.strided else f"; pass {name}.to_dense()"
        return ScanTypeError(
            f"{name} is a tensor of dtype {array.dtype} and layout {array.layout}; supported: strided tensors of "
            f"{', '.join(DTYPES)}{advice}"
        )

    def maker(
        self, shape: tuple[int, ...], strides: tuple[int, ...], dtype: DType, device: Device
    ) -> Callable[[], Any]:
        where = {"dtype": _TORCH_DTYPES[dtype], "device": _TORCH_DEVICES[device]}
        if where["device"].type == "cuda" and allocates(where["device"]):
            return functools.partial(allocate, shape, strides, where["dtype"])
        return functools.partial(torch.empty_strided, shape, strides, **where)

    def from_numpy(self, array: Any, device: Device) -> Any:
        return torch.from_numpy(array).to(_TORCH_DEVICES[device])

    def written(self, array: Any) -> None:
        # Autograd must not use tensors that it saved from this memory.
        try:
            count_write((array,))
        except RuntimeError:
            if not array.is_inference():  # inference tensors have no version
                raise

    def sum_dtype(self, dtype: DType, *, standard: bool = False) -> DType:
        return super().sum_dtype(dtype) if standard else DTYPES["int64"]

    def put(self, array: Any, value: Any) -> None:
        # An assignment copies a number to a tensor without dimensions from the host, and waits for that.
        if isinstance(value, torch.Tensor):
            array.copy_(value)
        elif array.dtype == torch.uint64:  # fill_ takes no numbers beyond 63 bits
            array.view(torch.int64).fill_((int(value) + 2**63) % 2**64 - 2**63)
        else:
            array.fill_(value)

    def scratch(self, nbytes: int, device: Device) -> Any:
        return torch.empty(nbytes, dtype=torch.uint8, device=_TORCH_DEVICES[device])

    def scratch_of_graph(self, nbytes: int, device: Device) -> Any:
        return self.scratch(nbytes, device)  # from torch's pool for the graph

    def pointer(self, array: Any) -> int:
        pointer: int = array.data_ptr()
        return pointer

    def fetch(self, array: Any) -> Any:
        return array.detach().cpu().numpy()

    def stream(self, device: Device) -> int:
        return raw_stream(device.ordinal)

    def stream_owner(self, device: Device) -> Any:
        return None  # torch keeps its few streams alive

    def as_numpy(self, view: ArrayView) -> Any:
        tensor = view.owner.detach()
        if view.dtype.name == "bfloat16":
            return tensor.view(torch.int16).numpy().view(np.uint16)
        return tensor.numpy()


LIBRARY = TorchLibrary()
