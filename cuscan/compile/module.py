"""Compile source text with NVRTC, cache the result on disk, and load it as a CUDA module.

CuPy's own compile path flushes float32 denormals and does not notice edited headers, so the source is compiled to a
cubin through the NVRTC bindings and loaded from there. Only loading needs a GPU, and only cache misses need NVRTC.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import time
from pathlib import Path
from typing import Any

import cupy
from cupy.cuda import nvrtc
from cupy.cuda.function import Module

from cuscan.compile import cache
from cuscan.compile.source import CUDA_DIR, entry_name, make_source
from cuscan.errors import CompileError, MissingDependencyError, MissingKernelError
from cuscan.kept import Table, keep
from cuscan.planning.config import AnyConfig

_DEFAULT_SHARED_BYTES = 48 * 1024  # bytes per block without opt-in
_DEFAULT_CLUSTER = 8  # blocks per cluster without opt-in
_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LARGER_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
# No contraction to fused multiply-adds and no flushing of denormals: the bits of a scan are defined.
_OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "-default-device")
_NEVER, _BACKGROUND = "never", "background"  # values of $CUSCAN_COMPILE
_unwritten: Table[Path, bytes] = Table()  # kernels that no file keeps
_log = logging.getLogger("cuscan")


@functools.cache
def nvrtc_version() -> str | None:
    """Return the version of NVRTC, or None if it is missing."""
    try:
        return ".".join(map(str, nvrtc.getVersion()))
    except (ImportError, OSError, RuntimeError):  # CuPy does not find the library
        return None


def compile_source(source: str, arch: int, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Compile for `arch` (90 for sm_90); return the cubin and the compiler's log.

    A GPU newer than NVRTC gets PTX for the newest architecture that NVRTC supports.
    Raises `CompileError` with the log.
    """
    known = max((a for a in nvrtc.getSupportedArchs() if a <= arch), default=arch)
    exact = known == arch
    flags = (f"-arch={'sm' if exact else 'compute'}_{known}", f"-I{CUDA_DIR}", *_OPTIONS, *options)
    program = nvrtc.createProgram(source, "cuscan_kernel.cu", [], [])
    try:
        nvrtc.compileProgram(program, flags)
        code = nvrtc.getCUBIN(program) if exact else nvrtc.getPTX(program)
        return code if isinstance(code, bytes) else code.encode(), nvrtc.getProgramLog(program)
    except nvrtc.NVRTCError as error:
        raise CompileError(f"{error}\n{nvrtc.getProgramLog(program)}\n{source}") from error
    finally:
        nvrtc.destroyProgram(program)


def kernel_path(config: AnyConfig, arch: int) -> Path:
    """Return the cache path of a configuration's compiled kernel.

    Without NVRTC, return the path of a kernel that any version of NVRTC compiled.
    """
    key = hashlib.sha256(repr((make_source(config), arch, _OPTIONS)).encode()).hexdigest()[:32]
    stem, version = f"{entry_name(config)}-{key}", nvrtc_version()
    found = cache.find(f"{stem}-*{cache.SUFFIX}") if version is None else None
    return found or cache.cache_dir() / f"{stem}-{version}{cache.SUFFIX}"


def prefers_general() -> bool:
    """Whether calls take a general kernel if their own is missing: $CUSCAN_COMPILE says so, or there is no NVRTC."""
    return os.environ.get("CUSCAN_COMPILE") in (_NEVER, _BACKGROUND) or nvrtc_version() is None


def compiles_in_background() -> bool:
    """Whether a missing kernel is compiled in the background."""
    return os.environ.get("CUSCAN_COMPILE") == _BACKGROUND and nvrtc_version() is not None


def is_compiled(config: AnyConfig, arch: int) -> bool:
    """Whether a configuration's kernel needs no compiler."""
    path = kernel_path(config, arch)
    return path in _unwritten or cache.has(path)


def load_kernel(config: AnyConfig, arch: int) -> Any:
    """Return a configuration's kernel on the current device, compiled if the cache does not have it.

    A cache miss raises `MissingKernelError` if $CUSCAN_COMPILE is "never", and `MissingDependencyError` without NVRTC.
    """
    path = kernel_path(config, arch)
    code = _unwritten.get(path) or cache.read(path)
    if code is not None:
        try:
            return _load(code, config)
        except cupy.cuda.driver.CUDADriverError:  # damaged on disk
            with contextlib.suppress(OSError):
                path.unlink()
    return _load(compile_kernel(config, arch), config)


def compile_kernel(config: AnyConfig, arch: int) -> bytes:
    """Compile a configuration, and store the kernel in the cache if that is writable."""
    if os.environ.get("CUSCAN_COMPILE") == _NEVER:
        raise MissingKernelError(f"{_missing(config, arch)}, and $CUSCAN_COMPILE says never to compile one")
    if nvrtc_version() is None:
        raise MissingDependencyError(
            f"{_missing(config, arch)}, and CuPy finds no NVRTC to compile one: pip install nvidia-cuda-nvrtc-cu12 "
            "(nvidia-cuda-nvrtc for CUDA 13), or fill the folder on a machine that has NVRTC with `cuscan warm`"
        )
    start = time.perf_counter()
    code = compile_source(make_source(config), arch)[0]
    seconds = time.perf_counter() - start
    path = kernel_path(config, arch)
    _log.info("compiled %s for sm_%d in %.2f s: %s", entry_name(config), arch, seconds, path)
    try:
        cache.write(path, code)
    except OSError as error:  # every process compiles for itself
        _log.warning("%s cannot be kept: %s", path, error)
        keep(_unwritten, path, code)
    return code


def _missing(config: AnyConfig, arch: int) -> str:
    return f"{cache.cache_dir()} has no kernel {entry_name(config)} of this call for sm_{arch}"


def _load(code: bytes, config: AnyConfig) -> Any:
    cupy.cuda.runtime.memGetInfo()  # creates a context if the thread has none
    module = Module()
    module.load(code)
    function = module.get_function(entry_name(config))
    if config.shared_bytes > _DEFAULT_SHARED_BYTES:
        cupy.cuda.driver.funcSetAttribute(function.ptr, _SHARED_BYTES, config.shared_bytes)
    if config.cluster > _DEFAULT_CLUSTER:
        cupy.cuda.driver.funcSetAttribute(function.ptr, _LARGER_CLUSTERS, 1)
    return function
