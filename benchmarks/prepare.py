"""Compile ahead, on all cores: the kernels of the cells that are to be measured, and CUB for those that name it."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from cuscan.bench.cases import Case
from cuscan.bench.cub_peer import build, cub_source, nvcc
from cuscan.bench.kernel import plan_of, resources
from cuscan.bench.new_shapes import counted
from cuscan.bench.peer import UnsupportedError
from cuscan.bench.peer_times import one_line
from cuscan.planning.config import Config, Target

PROCESSES = 16

Job = tuple[Callable[..., Any], Any]


def jobs(cases: Sequence[Case], peers: Sequence[str], target: Target) -> list[Job]:
    """What there is to compile, each thing once: functions and what they take beside the architecture."""
    found: dict[Any, Job] = {}
    for case in cases:
        try:
            if case.how in ("stream", "carry", "sample", "replay"):
                config = plan_of(case, target).config
                found[config] = (compile_kernel, config)
            if case.how == "shapes":
                found |= {config: (compile_kernel, config) for config in counted(case.label, target)}
            if "cub" in peers and "cub" in (case.peers or ()) and nvcc():
                source = cub_source(case)
                found[source] = (build, source)
        except Exception as error:  # the cell itself will say so
            if not isinstance(error, UnsupportedError):
                found[case] = (fail, f"{case.name}: {one_line(error)}")
    return sorted(found.values(), key=lambda job: job[0] is not build)  # what takes longest goes first


def run(found: Sequence[Job], arch: int) -> Iterator[str | None]:
    """Do the jobs; for each, None or what went wrong."""
    workers = min(os.cpu_count() or 1, PROCESSES)
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for future in as_completed([pool.submit(function, argument, arch) for function, argument in found]):
            error = future.exception()
            yield None if error is None else one_line(error)


def compile_kernel(config: Config, arch: int) -> None:
    """Fill the caches on disk: the kernel and its numbers. Needs no GPU."""
    resources(config, arch)


def fail(message: str, arch: int) -> None:
    """Report what could not even be planned."""
    raise RuntimeError(message)
