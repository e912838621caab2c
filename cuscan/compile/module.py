"""From source text to a loaded kernel: NVRTC, a cache on disk, `cupy.RawModule`.

CuPy's own compile path flushes float32 denormals and does not notice edited headers, so the source
is compiled through the NVRTC bindings to a cubin file, and `cupy.RawModule(path=...)` loads that.
Needs no GPU up to the loading.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

import cupy
from cupy.cuda import nvrtc

from cuscan.compile.source import CUDA_DIR, entry_name, make_source
from cuscan.config import Config, StartsConfig
from cuscan.errors import CompileError

_DEFAULT_SHARED_BYTES = 48 * 1024  # what a launch may have unasked
_DEFAULT_CLUSTER = 8  # blocks
_LARGER_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
# No contraction to fused multiply-adds and no flushed denormals: the bits of a scan are defined.
_OPTIONS = ("--std=c++17", "--fmad=false", "--ftz=false", "-default-device")


def cache_dir() -> Path:
    """The folder of compiled kernels: $CUSCAN_CACHE_DIR, else cuscan in the user's cache folder."""
    chosen = os.environ.get("CUSCAN_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cuscan"


def compile_source(source: str, arch: int, options: tuple[str, ...] = ()) -> tuple[bytes, str]:
    """Compile to a cubin for `arch` (90 for sm_90): the cubin and the compiler's log.

    A GPU newer than NVRTC gets PTX for the newest architecture that NVRTC knows.
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


def kernel_path(config: Config | StartsConfig, arch: int) -> Path:
    """Where the compiled kernel of a configuration is kept."""
    key = hashlib.sha256(repr((make_source(config), arch, _OPTIONS, nvrtc.getVersion())).encode()).hexdigest()
    return cache_dir() / f"{entry_name(config)}-{key[:32]}.cubin"


def load_kernel(config: Config | StartsConfig, arch: int) -> Any:
    """The kernel of a configuration on the current device, compiled if no cache has it."""
    path = kernel_path(config, arch)
    with contextlib.suppress(OSError):  # where no cache is to be had, every process compiles for itself
        if path.exists():
            try:
                return _load(path, config)
            except cupy.cuda.driver.CUDADriverError:  # damaged on disk
                path.unlink(missing_ok=True)
    code = compile_source(make_source(config), arch)[0]
    with contextlib.suppress(OSError):
        write(path, code)
        return _load(path, config)
    with tempfile.TemporaryDirectory() as folder:
        lone = Path(folder, path.name)
        lone.write_bytes(code)
        return _load(lone, config)


def _load(path: Path, config: Config | StartsConfig) -> Any:
    raw = cupy.RawModule(path=str(path)).get_function(entry_name(config))
    if config.shared_bytes > _DEFAULT_SHARED_BYTES:
        raw.max_dynamic_shared_size_bytes = config.shared_bytes
    if config.cluster > _DEFAULT_CLUSTER:
        cupy.cuda.driver.funcSetAttribute(raw.kernel.ptr, _LARGER_CLUSTERS, 1)
    return raw.kernel


def write(path: Path, code: bytes) -> None:
    """Write so that no other process ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        file.write(code)
    os.chmod(file.name, 0o644)  # the folder may be shared
    os.replace(file.name, path)
