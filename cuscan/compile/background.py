"""Compile kernels in the background, while calls run with general ones. The result is in the cache."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor

from cuscan.compile.module import compile_kernel
from cuscan.kept import Table, keep
from cuscan.planning.config import AnyConfig

_THREADS = 2  # that compile at a time
_pool = ThreadPoolExecutor(_THREADS, "cuscan-compile")
_started: Table[tuple[AnyConfig, int], Future[None]] = Table()
_log = logging.getLogger("cuscan")


def compile_in_background(config: AnyConfig, arch: int) -> Future[None]:
    """Return the compilation of a kernel, which begins once for each; it is done whether or not it succeeds."""
    key = config, arch
    return _started.get(key) or keep(_started, key, _pool.submit(_compile, config, arch))


def _compile(config: AnyConfig, arch: int) -> None:
    if not threading.main_thread().is_alive():  # the interpreter waits for all that was submitted before it ends
        return
    try:
        compile_kernel(config, arch)
    except Exception:
        _log.exception("calls go on with a general kernel")
