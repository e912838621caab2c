"""Fixtures and options of all tests.

Tests marked `gpu` run if CuPy finds a GPU, and are skipped otherwise. Tests marked `full` run with `pytest --full`.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# JAX presents its CPU as four devices, for the tests of arrays on several devices.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # otherwise JAX takes most of a GPU's memory
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"

sys.path.insert(0, str(Path(__file__).parent))
from kept import forget_unused
from selection import COLLECTED


@functools.cache
def has_gpu() -> bool:
    """Whether CuPy is installed and finds a GPU."""
    try:
        import cupy

        return bool(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # a missing package, driver or device: each raises its own error
        return False


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--full`."""
    parser.addoption("--full", action="store_true", help="run all tests; by default those marked `full` are left out")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Keep the folder of compiled kernels small."""
    if not hasattr(session.config, "workerinput"):
        forget_unused()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that only `--full` runs, and skip tests of a GPU where there is none."""
    config.stash[COLLECTED] = {item.nodeid: item.get_closest_marker("full") is not None for item in items}
    if not config.getoption("--full"):
        full = [item for item in items if item.get_closest_marker("full")]
        config.hook.pytest_deselected(items=full)
        items[:] = [item for item in items if not item.get_closest_marker("full")]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))
    elif marked:
        import cupy

        cupy.cuda.Device(0).use()  # modules that are collected may start JAX, which leaves its last GPU current


@pytest.fixture(scope="module")
def tables() -> Iterator[None]:
    """Fixed tuning tables: plans that are checked by hand stay the same when a kernel is tuned."""
    from plans import TABLE, WIDENED

    from cuscan.backends import repeats
    from cuscan.kept import Table
    from cuscan.planning import cluster, tuning
    from cuscan.request import layout

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout, "CONTIGUOUS", TABLE)
        patch.setattr(repeats, "calls", Table())
        patch.setattr(layout, "BYTES_TO_WORDS", WIDENED)
        patch.setattr(cluster, "TURN_UNITS", 4)
        patch.setattr(cluster, "MASKED_THREADS", 1024)
        for family in list(tuning.THREADS_PER_SM):
            patch.setitem(tuning.THREADS_PER_SM, family, 1024)
        yield


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A fake GPU (fake_gpu.py), for tests of the launch path."""
    from fake_gpu import fake_gpu

    yield from fake_gpu(monkeypatch)
