"""The oldest supported versions of array libraries, checked when the first array of a library arrives."""

from __future__ import annotations

import re

from cuscan.errors import MissingDependencyError

OLDEST = {
    "numpy": (1, 25),  # numpy.exceptions
    "cupy": (13, 0),  # the bindings of CUDA 12's driver and NVRTC
    "torch": (2, 4),  # torch.library.register_fake, uint16 to uint64
    "jax": (0, 6, 2),  # jax.experimental.buffer_callback
}


def check_version(library: str, found: str) -> None:
    """Raise `MissingDependencyError` if a library's version is too old."""
    oldest = OLDEST[library]
    numbers = re.match(r"\d+(\.\d+)*", found)
    if numbers and tuple(map(int, numbers[0].split("."))) < oldest:
        needed = ".".join(map(str, oldest))
        raise MissingDependencyError(
            f"arrays of {library} need {library} {needed} or later, and version {found} is installed: "
            f"pip install '{library}>={needed}'"
        )
