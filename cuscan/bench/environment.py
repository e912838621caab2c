"""The environment of a measurement: GPU, driver, versions, commit; and what is missing to run on a GPU."""

from __future__ import annotations

import hashlib
import importlib.metadata
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import cuscan
from cuscan.compile.cache import cache_dir

INSTALL_CUPY = "pip install 'cuscan[cuda12]'  (CUDA 13: 'cuscan[cuda13]')"


def version(package: str) -> str | None:
    """Return the version of an installed package without importing it, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def cupy_version() -> str | None:
    """Return the version of CuPy, under any of its package names."""
    return next(filter(None, map(version, ("cupy-cuda12x", "cupy-cuda13x", "cupy"))), None)


def environment() -> dict[str, Any]:
    """Return the environment as fields of the JSON files."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "cuscan": cuscan.__version__,
        "cupy": cupy_version(),
        "torch": version("torch"),
        "jax": version("jax"),
        "numpy": version("numpy"),
        "commit": commit(),
        "code": code(),
    }
    gpus = devices()
    if not gpus:
        return {"gpu": None, "cpu": platform.processor() or platform.machine(), **facts}
    import cupy

    runtime = cupy.cuda.runtime
    return {
        "gpu": gpus[int(cupy.cuda.Device())]["name"],
        "driver": driver(),
        "cuda_driver": runtime.driverGetVersion(),
        "cuda_runtime": runtime.runtimeGetVersion(),
        "nvrtc": nvrtc(),
        "nvcc": nvcc(),
        **facts,
    }


def commit() -> str | None:
    """Return the commit of cuscan's source tree, with "-dirty" if it has changes; None outside of a source tree."""
    root = Path(cuscan.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    return _output(["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"])


def code() -> str:
    """Return a digest of the code that decides results and speed: the package without benchmark and command line."""
    root = Path(cuscan.__file__).parent
    found = sorted(path for suffix in ("py", "cuh") for path in root.rglob(f"*.{suffix}"))
    digest = hashlib.sha256()
    for path in found:
        name = path.relative_to(root).as_posix()
        if not name.startswith("bench/") and name not in ("cli.py", "__main__.py"):
            digest.update(f"{name}\0{len(path.read_bytes())}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def devices() -> list[dict[str, Any]]:
    """Return every GPU that CuPy finds: name, architecture, SMs, shared memory of each, memory."""
    try:
        import cupy

        runtime = cupy.cuda.runtime
        found = list(enumerate(map(runtime.getDeviceProperties, range(runtime.getDeviceCount()))))
    except Exception:  # no package, no driver, or no device; `missing` distinguishes them
        return []
    return [
        {
            "name": properties["name"].decode(),
            "arch": f"sm_{properties['major']}{properties['minor']}",
            "sms": properties["multiProcessorCount"],
            "shared": cupy.cuda.Device(index).attributes["MaxSharedMemoryPerMultiprocessor"],
            "memory": properties["totalGlobalMem"],
        }
        for index, properties in found
    ]


def driver() -> str | None:
    """Return the version of the NVIDIA driver, or None."""
    text = _output(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return text.splitlines()[0] if text else None


def nvrtc() -> str | None:
    """Return the version of the run-time compiler that CuPy loads, or None."""
    try:
        from cupy.cuda import nvrtc as library

        return ".".join(map(str, library.getVersion()))
    except Exception:  # CuPy or the compiler's library is missing
        return None


def nvcc() -> str | None:
    """Return the version of the CUDA compiler, or None."""
    from cuscan.bench.cub_peer import nvcc as find

    found = re.search(r"release [\d.]+, V([\d.]+)", _output([find() or "nvcc", "--version"]) or "")
    return found[1] if found else None


def cache_folder() -> str:
    """Return the folder of compiled kernels."""
    return str(cache_dir())


def missing() -> list[tuple[str, str]]:
    """Return what prevents scans on the GPU, each with its remedy."""
    if cupy_version() is None:
        return [("CuPy", INSTALL_CUPY)]
    lacks = []
    cuda12 = version("cupy-cuda13x") is None
    if nvrtc() is None:
        lacks.append(("NVRTC", f"pip install {'nvidia-cuda-nvrtc-cu12' if cuda12 else 'nvidia-cuda-nvrtc'}"))
    runtime = "nvidia-cuda-runtime-cu12" if cuda12 else "nvidia-cuda-runtime"
    if version(runtime) is None and not _toolkit():
        lacks.append(("CUDA headers", f"pip install {runtime}"))
    if not devices():
        lacks.append(("a CUDA GPU", "CuPy finds none; arrays on the CPU are scanned by NumPy"))
    return lacks


def _toolkit() -> bool:
    """Return whether CuPy finds an installed CUDA toolkit."""
    cupy = sys.modules["cupy"]
    return cupy.cuda.get_cuda_path() is not None


def _output(command: list[str]) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
