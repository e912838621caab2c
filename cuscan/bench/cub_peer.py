"""CUB as a peer: `cub::DeviceScan` through nvcc, and through the package cuda.compute. Both scan one dense row."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from cuscan.bench.buffers import Buffers
from cuscan.bench.cases import Case
from cuscan.bench.machine import Run
from cuscan.bench.peer import UnsupportedError, need_one_row, refuse_beyond
from cuscan.compile.cache import cache_dir, write
from cuscan.operators import OPERATORS

_SOURCE = """\
#include <cub/device/device_scan.cuh>
#include <cuda/functional>
#include <cuda/std/complex>
#include <cuda/std/cstdint>
#include <cuda/std/functional>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

using Value = {value};
using Result = {result};

extern "C" int cuscan_bench_cub(
    void* temporary, size_t* nbytes, const Value* x, Result* y, const int* keys, int n, void* stream) {{
    return cub::DeviceScan::{call}, static_cast<cudaStream_t>(stream));
}}
"""
_TYPES = {
    "bool": "bool",
    **{f"{sign}int{bits}": f"cuda::std::{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "__half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "cuda::std::complex<float>",
    "complex128": "cuda::std::complex<double>",
}
_OPERATORS = {"mul": "cuda::std::multiplies<>", "min": "cuda::minimum<>", "max": "cuda::maximum<>"}
_OPTIONS = ("-O3", "-std=c++17", "-shared", "-Xcompiler", "-fPIC")
_SECONDS = 150  # for one compilation


def cub_source(case: Case) -> str:
    """Return the translation unit for a case: the CUB call that a user would write for its types and operator."""
    need_one_row(case, "CUB")
    by_key = case.segments == "keys" and case.op == "add" and case.result_dtype.name == case.dtype
    refuse_beyond(case, "CUB", *(["segments"] if by_key else []))
    result = case.result_dtype.name
    if by_key:
        call = "InclusiveSumByKey(temporary, *nbytes, keys, x, y, n, cuda::std::equal_to<>{}"
    elif case.op == "add":
        call = "InclusiveSum(temporary, *nbytes, x, y, n"
        if result != case.dtype:  # CUB adds in the type of the initial value
            call = "InclusiveScanInit(temporary, *nbytes, x, y, cuda::std::plus<Result>{}, Result(0), n"
    elif case.op in _OPERATORS and result == case.dtype:
        call = f"InclusiveScan(temporary, *nbytes, x, y, {_OPERATORS[case.op]}{{}}, n"
    else:
        raise UnsupportedError(f"CUB is not measured on {case.op} of {case.dtype} to {result}")
    return _SOURCE.format(value=_TYPES[case.dtype], result=_TYPES[result], call=call)


def nvcc() -> str | None:
    """Return the path of the CUDA compiler, or None."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    return shutil.which("nvcc") or shutil.which(str(Path(home) / "bin" / "nvcc"))


def build(source: str, arch: int) -> Path:
    """Return the shared library of a translation unit, compiled unless it is already in the cache."""
    compiler = nvcc()
    if compiler is None:
        raise UnsupportedError("CUB needs nvcc, and there is none")
    version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=_SECONDS).stdout
    key = hashlib.sha256(repr((source, arch, _OPTIONS, version)).encode()).hexdigest()[:32]
    path = cache_dir() / "cub" / f"{key}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            unit, library = Path(folder) / "cub.cu", Path(folder) / "cub.so"
            unit.write_text(source)
            command = [compiler, *_OPTIONS, f"-arch=sm_{arch}", "-o", str(library), str(unit)]
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS)
            if done.returncode:
                raise RuntimeError(f"nvcc: {next((line for line in done.stderr.splitlines() if 'error' in line), '')}")
            write(path, library.read_bytes())
    return path


@functools.cache
def load(path: Path) -> ctypes.CDLL:
    """Load a compiled library; its function takes scratch memory and size, input, output, keys, length and stream."""
    library = ctypes.CDLL(str(path))
    pointer, size = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)
    library.cuscan_bench_cub.argtypes = [pointer, size, pointer, pointer, pointer, ctypes.c_int, pointer]
    return library


def run_cub(case: Case, buffers: Buffers) -> Run:
    """Return a run of `cub::DeviceScan` on CuPy's current stream, with scratch memory allocated once."""
    source = cub_source(case)
    import cupy

    scan = load(build(source, int(cupy.cuda.Device().compute_capability))).cuscan_bench_cub
    x, y, n = buffers.x.data.ptr, buffers.out.data.ptr, buffers.x.size
    keys = None if buffers.segments is None else buffers.segments.data.ptr
    if n >= 1 << 31:
        raise UnsupportedError("CUB is measured with 32-bit sizes")
    nbytes = ctypes.c_size_t()

    def queue(scratch: int | None) -> None:
        error = scan(scratch, ctypes.byref(nbytes), x, y, keys, n, cupy.cuda.get_current_stream().ptr)
        if error:
            raise RuntimeError(f"CUB: CUDA error {error}")

    queue(None)
    scratch = cupy.empty(max(nbytes.value, 1), cupy.uint8)
    return lambda: queue(scratch.data.ptr)


def run_cuda_compute(case: Case, buffers: Buffers) -> Run:
    """Return a run of `cuda.compute.inclusive_scan`."""
    need_one_row(case, "cuda.compute")
    refuse_beyond(case, "cuda.compute")
    compute = importlib.import_module("cuda.compute")
    names = {"add": "PLUS", "mul": "MULTIPLIES", "min": "MINIMUM", "max": "MAXIMUM"}
    if case.op not in names:
        raise UnsupportedError(f"cuda.compute is not measured on {case.op}")
    x, out = buffers.x.reshape(-1), buffers.out.reshape(-1)
    initial = np.array([OPERATORS[case.op].identity(case.result_dtype)], out.dtype)
    operator = getattr(compute.OpKind, names[case.op])
    return lambda: compute.inclusive_scan(d_in=x, d_out=out, op=operator, init_value=initial, num_items=x.size)
