"""Chunks through a GPU against the bus: `python -m benchmarks.chunks` prints the share of the slower direction.

Chunks lie in pinned memory, or with `--file PATH` in a memory-mapped file of float32, for which the page cache decides.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import cupy
import cupyx
import numpy as np

import cuscan
from cuscan.bench.environment import environment

CHUNK = 1 << 26  # float32: 256 MiB
COUNT = 16


def main() -> None:
    """Measure the bus, then chunks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.chunks", description=__doc__)
    parser.add_argument("--file", type=Path, help="made if it is not there")
    options = parser.parse_args()
    pinned = [cupyx.empty_pinned(CHUNK, np.float32) for _ in range(4)]
    bus = {way: _gigabytes_per_second(way, pinned[0]) for way in ("to the GPU", "from the GPU")}
    for chunk in pinned:
        chunk[...] = 1
    chunks: Iterable[Any] = (pinned[i % len(pinned)] for i in range(COUNT))
    if options.file is not None:
        chunks = _mapped(options.file)
    list(cuscan.scan_chunks(pinned[:3], device="cuda"))  # kernels and pinned memory are there
    began, last = time.perf_counter(), 0.0
    for result in cuscan.scan_chunks(chunks, device="cuda"):
        last = float(result[-1])
    speed = CHUNK * 4 * COUNT / (time.perf_counter() - began) / 1e9
    if abs(last / (CHUNK * COUNT) - 1) > 1e-6:
        raise SystemExit(f"wrong: the sum of ones is {last}")
    found = {"bus_gb_per_s": bus, "chunks_gb_per_s": speed, "share": speed / min(bus.values())}
    print(json.dumps({**environment(), "file": str(options.file), **found}, indent=1))


def _gigabytes_per_second(way: str, host: Any) -> float:
    array, taken = cupy.empty(host.shape, host.dtype), []
    for _ in range(7):
        began = time.perf_counter()
        array.set(host) if way == "to the GPU" else array.get(out=host)
        cupy.cuda.runtime.deviceSynchronize()
        taken.append(time.perf_counter() - began)
    return float(host.nbytes / statistics.median(taken) / 1e9)


def _mapped(path: Path) -> Iterator[Any]:
    if not path.exists():
        whole = np.memmap(path, np.float32, "w+", shape=(COUNT, CHUNK))
        whole[...] = 1
        whole.flush()
    yield from np.memmap(path, np.float32, "r", shape=(COUNT, CHUNK))


if __name__ == "__main__":
    main()
