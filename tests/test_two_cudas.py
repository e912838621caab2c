"""NVRTC of CUDA 13, which torch brings, beside CuPy for CUDA 12: kernels compile in one process. Needs no GPU.

CuPy takes the NVRTC that was loaded first, and without one the newest among Python's packages. Any of them works, and
compiled files are stored by its version.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

module = pytest.importorskip("cuscan.compile.module", reason="CuPy does not import, and with it the bindings of NVRTC")

# What a library with its own NVRTC does, and a compilation for a scan; they run in any order.
LOAD = """
import ctypes
other = ctypes.CDLL({path!r}, mode=ctypes.RTLD_GLOBAL)
major, minor = ctypes.c_int(), ctypes.c_int()
assert other.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 and major.value == {major}
"""
COMPILE = """
from test_module import CONFIG
from cuscan.compile import module
assert module.compile_source(module.make_source(CONFIG), 90)[0][:4] == b"\\x7fELF"
print(module.nvrtc.getVersion()[0], module.kernel_path(CONFIG, 90))
"""


PACKAGES = {12: "nvidia-cuda-nvrtc-cu12", 13: "nvidia-cuda-nvrtc"}
# What is loaded before and after a kernel is compiled, and the major version of the NVRTC that compiles it.
ORDERS = {"CUDA 12 first": ([12], [13], 12), "CUDA 13 first": ([13], [12], 13), "CuPy first": ([], [12, 13], None)}


def library(major: int) -> str:
    """The path of an NVRTC."""
    try:
        files = importlib.metadata.files(PACKAGES[major]) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"the package {PACKAGES[major]} is not installed")
    found = [path for path in files if path.name == f"libnvrtc.so.{major}"]
    if not found:
        pytest.skip(f"the package {PACKAGES[major]} is not of CUDA {major}")
    return str(found[0].locate())


def compiled(order: str, folder: Path) -> tuple[int, str]:
    """The major version of the NVRTC that compiles a kernel in a process of its own, and the kernel's path."""
    before, after, _ = ORDERS[order]
    loads = {major: LOAD.format(path=library(major), major=major) for major in PACKAGES}
    script = "".join([*(loads[major] for major in before), COMPILE, *(loads[major] for major in after)])
    folders = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": folders, "CUSCAN_CACHE_DIR": str(folder)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, path = done.stdout.split()
    return int(version), path


@pytest.mark.parametrize("order", ORDERS)
def test_any_nvrtc_compiles(order: str, tmp_path: Path) -> None:
    version, expected = compiled(order, tmp_path)[0], ORDERS[order][2]
    assert version == expected or (expected is None and version in PACKAGES)


def test_files_are_stored_by_the_compiler_that_made_them(tmp_path: Path) -> None:
    """A kernel that CUDA 12 compiles is not loaded as one of CUDA 13."""
    assert len({compiled(order, tmp_path) for order in ("CUDA 12 first", "CUDA 13 first")}) == 2
