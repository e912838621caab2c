"""Facts about memory in a DLPack capsule that the consuming libraries do not pass on."""

from __future__ import annotations

import ctypes
from typing import Any

_NAME = b"dltensor_versioned"
_OLD_NAME = b"dltensor"
_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
_MAJOR = 1  # the version whose layout this module supports


class _Managed(ctypes.Structure):
    """The head of DLManagedTensorVersioned, as defined by dlpack.h 1.0."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


_capsule = (ctypes.py_object, ctypes.c_char_p)
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, *_capsule)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, *_capsule)(("PyCapsule_GetPointer", ctypes.pythonapi))


def is_readonly(capsule: Any) -> bool | None:
    """Return whether an unconsumed capsule has read-only memory; None if it does not say, as before DLPack 1.0."""
    if not _is_valid(capsule, _NAME):
        return None
    managed = _Managed.from_address(_pointer(capsule, _NAME))
    return bool(managed.flags & _READ_ONLY) if managed.major == _MAJOR else None


def address(array: Any) -> int:
    """Return the address of an array with capsules older than DLPack 1.0, without taking it over."""
    capsule = array.__dlpack__()
    where = ctypes.c_void_p.from_address(_pointer(capsule, _OLD_NAME)).value  # the first field of the struct
    return where or 0


class Overheard:
    """Represents an array that is taken over, and stores what its capsule says.

    Attributes:
        readonly: see `is_readonly`; None before the capsule was made.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self.readonly: bool | None = None

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __dlpack__(self, **keywords: Any) -> Any:
        capsule = self._array.__dlpack__(**keywords)
        self.readonly = is_readonly(capsule)
        return capsule
