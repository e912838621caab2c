"""torch for CUDA 13 beside CuPy for CUDA 12: kernels compile in one process, in either order. Needs no GPU.

The dynamic linker gives CuPy the NVRTC that was loaded first. Either one works, and compiled files are stored by its
version.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

module = pytest.importorskip("cuscan.compile.module", reason="CuPy does not import, and with it the bindings of NVRTC")

# The first step of torch for CUDA 13, and a compilation for a scan; they run in any order.
LOAD_13 = """
import ctypes
other = ctypes.CDLL({library!r}, mode=ctypes.RTLD_GLOBAL)
major, minor = ctypes.c_int(), ctypes.c_int()
assert other.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 and major.value == 13
{torch}
"""
COMPILE = """
from test_module import CONFIG
from cuscan.compile import module
assert module.compile_source(module.make_source(CONFIG), 90)[0][:4] == b"\\x7fELF"
print(module.nvrtc.getVersion()[0], module.kernel_path(CONFIG, 90))
"""


def library_of_cuda_13() -> str:
    """The path of CUDA 13's NVRTC, which torch for CUDA 13 installs."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed")
    found = [path for path in files if path.name == "libnvrtc.so.13"]
    if not found:
        pytest.skip("the package nvidia-cuda-nvrtc is not of CUDA 13")
    return str(found[0].locate())


ORDERS = ("CUDA 12", "CUDA 13")  # the one that comes first


@pytest.mark.parametrize("first", ORDERS)
def test_both_compile_in_one_process(first: str, tmp_path: Path) -> None:
    assert in_one_process(first, tmp_path)


def in_one_process(first: str, tmp_path: Path) -> str:
    """The major version of the NVRTC that compiled a kernel, and the kernel's path."""
    if module.nvrtc.getVersion()[0] != 12:
        pytest.skip("CuPy is not of CUDA 12")
    torch = "import torch" if importlib.util.find_spec("torch") else ""
    steps = [LOAD_13.format(library=library_of_cuda_13(), torch=torch), COMPILE]
    script = "".join(steps if first == "CUDA 13" else reversed(steps))
    folders = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": folders, "CUSCAN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_files_are_kept_by_the_compiler_that_made_them(tmp_path: Path) -> None:
    """If a process compiles a kernel with CUDA 12, another process does not load it as one of CUDA 13."""
    shown = {order: in_one_process(order, tmp_path).split() for order in ORDERS}
    versions, paths = zip(*shown.values(), strict=True)
    assert len(set(paths)) == len(set(versions))
