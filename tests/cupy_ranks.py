"""Ranks with CuPy arrays, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import traceback
from typing import Any

import cupy
import numpy as np
from cupyx.distributed import init_process_group
from sharding import agree, draw_sample

import cuscan.distributed


def scan_on_own_gpu(rank: int, pipe: Any) -> None:
    """Compare random scans on two ranks, of which this is one; send the error, or nothing."""
    try:
        compare(rank)
        pipe.send("")
    except Exception:
        pipe.send(traceback.format_exc())


def compare(rank: int) -> None:
    """Raise an error where the shard of this rank differs from the whole."""
    # CuPy starts its store in a process, and soon gives up waiting for it; a fork is there in time.
    multiprocessing.set_start_method("fork", force=True)
    cupy.cuda.Device(rank).use()
    comm, rng = init_process_group(2, rank), np.random.default_rng(2)
    for _ in range(40):
        sample = draw_sample(rng, (2,))
        values = [cupy.asarray(array) for array in sample.values_of(rank)]
        beside = {name: cupy.asarray(array) for name, array in sample.beside_of(rank).items()}
        keywords = sample.keywords_of(cupy.asarray)
        results = sample.function(cuscan.distributed)(*values, **beside, **keywords, comm=comm, validate=True)
        results = results if isinstance(results, tuple) else (results,)
        expected = [sample.result_piece(part, rank) for part in sample.whole()]
        agree([tuple(map(cupy.asnumpy, results))], expected, sample.axis)
