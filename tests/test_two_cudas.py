"""torch for CUDA 13 beside CuPy for CUDA 12: each keeps its own compiler in one process. No GPU needed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

nvrtc = pytest.importorskip("cupy.cuda.nvrtc", reason="CuPy does not import, and with it the bindings of NVRTC")

# What torch for CUDA 13 does first, and what a scan does: to be run in any order.
LOAD_13 = """
import ctypes
other = ctypes.CDLL({library!r}, mode=ctypes.RTLD_GLOBAL)
major, minor = ctypes.c_int(), ctypes.c_int()
assert other.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0 and major.value == 13
{torch}
"""
COMPILE = """
from cupy.cuda import nvrtc
from test_module import CONFIG
from cuscan.compile import module
assert module.compile_source(module.make_source(CONFIG), 90)[0][:4] == b"\\x7fELF"
assert nvrtc.getVersion()[0] == 12, nvrtc.getVersion()
"""


def library_of_cuda_13() -> str:
    """The path of CUDA 13's NVRTC, which torch for CUDA 13 brings."""
    try:
        files = importlib.metadata.files("nvidia-cuda-nvrtc") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the package nvidia-cuda-nvrtc is not installed")
    found = [path for path in files if path.name == "libnvrtc.so.13"]
    if not found:
        pytest.skip("the package nvidia-cuda-nvrtc is not of CUDA 13")
    return str(found[0].locate())


@pytest.mark.parametrize("first", ["CUDA 12", "CUDA 13"])
def test_both_compile_in_one_process(first: str, tmp_path: Path) -> None:
    if nvrtc.getVersion()[0] != 12:
        pytest.skip("CuPy is not of CUDA 12")
    torch = "import torch" if importlib.util.find_spec("torch") else ""
    steps = [LOAD_13.format(library=library_of_cuda_13(), torch=torch), COMPILE]
    script = "".join(steps if first == "CUDA 13" else reversed(steps))
    folders = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": folders, "CUSCAN_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
