"""General kernels: few for a kind of call, with the bits of its own kernels, which calls wait for no longer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import simulator
from feature_cases import UNITS
from plans import H200
from simulator import assert_same, prepare

import cuscan
from cuscan.bench import new_shapes
from cuscan.bench.kernel import request_of
from cuscan.planning import make_plan
from cuscan.planning.config import AnyConfig, Target
from cuscan.warming import kernels
from cuscan.words import Call

MOST = 16  # general kernels of a kind of call
Array = np.ndarray[Any, Any]


@pytest.mark.parametrize("kind", new_shapes.KINDS)
def test_a_kind_of_call_has_few(kind: str) -> None:
    assert 1 < len(new_shapes.counted(kind, H200, general=True)) <= MOST


@pytest.mark.full
def test_without_shapes_random_calls_find_theirs() -> None:
    found = kernels(Call(), H200, general=True)
    assert len(found) < 150
    for kind in new_shapes.KINDS:
        calls = islice(new_shapes.draw(kind), new_shapes.CALLS)
        assert all(make_plan(request_of(case), H200, general=True).config in found for case in calls)


def drawn(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    rng = np.random.default_rng(len(shape))
    return (rng.standard_normal(shape) if dtype[0] == "f" else rng.integers(0, 99, shape)).astype(dtype)


CLUSTERS, TILES = Target(90, 24, 228 * 1024, 16), Target(90, 24, 228 * 1024, 0)
CALLS: dict[str, tuple[Array, dict[str, Any], Target, tuple[str, str]]] = {
    "one short row": (drawn((70,)), {}, CLUSTERS, ("rows", "rows")),
    "rows of few elements": (drawn((900, 3)), {}, TILES, ("thread_rows", "staged_rows")),
    "rows of some elements": (drawn((900, 28)), {}, TILES, ("rows", "rows")),
    "rows of more elements": (drawn((900, 124)), {"exclusive": True}, TILES, ("rows", "rows")),
    "rows of two vectors": (drawn((900, 200)), {}, TILES, ("rows", "rows")),
    "rows anywhere": (drawn((29, 101)), {"reverse": True}, TILES, ("staged_rows", "staged_rows")),
    "a row of a warp tile and more": (drawn((500,)), {"exclusive": True}, CLUSTERS, ("cluster", "cluster")),
    "a row of a few units": (drawn((2300,)), {}, CLUSTERS, ("cluster", "cluster")),
    "rows in turn": (drawn((150, 1100)), {}, CLUSTERS, ("cluster", "tiles")),
    "tiles of a row": (drawn((300, 500)), {"op": "max"}, TILES, ("tiles", "tiles")),
    "few columns": (drawn((4100, 5)), {"axis": 0}, TILES, ("strips", "panels")),
    "many columns": (drawn((2500, 336)), {"axis": 0, "reverse": True}, TILES, ("strips", "panels")),
    "whole rows": (drawn((2, 2500, 24), "int64"), {"axis": 1}, TILES, ("whole_rows", "panels")),
}


@pytest.mark.skipif(not simulator.HAS_COMPILER, reason="g++, which compiles the simulated kernels, is missing")
@pytest.mark.parametrize("name", CALLS)
def test_they_give_the_same_bits(name: str) -> None:
    array, call, target, families = CALLS[name]
    with simulator.small_units(*UNITS):
        own, general = (prepare(array, target=target, general=g, **call) for g in (False, True))
        assert (own.plan.config.family, general.plan.config.family) == families
        for one, other in zip(own.run_all(1), general.run_all(2), strict=True):
            assert_same(one, other)


# ---- calls whose kernel is missing -----------------------------------------------------------------------------------


class Cache:
    """The families whose kernels are on disk, and compilations in the background, which a test ends."""

    def __init__(self) -> None:
        self.compiled: set[str] = set()
        self.begun: dict[AnyConfig, Future[None]] = {}

    def is_compiled(self, config: AnyConfig, arch: int) -> bool:
        return config.family in self.compiled

    def compile_in_background(self, config: AnyConfig, arch: int) -> Future[None]:
        return self.begun.setdefault(config, Future())

    def end(self) -> None:
        [(config, future)] = self.begun.items()
        self.compiled.add(config.family)
        future.set_result(None)


@pytest.fixture
def cache(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> Cache:
    from cuscan.backends import cuda

    made = Cache()
    monkeypatch.setattr(cuda, "is_compiled", made.is_compiled)
    monkeypatch.setattr(cuda, "compile_in_background", made.compile_in_background)
    return made


@pytest.fixture
def columns(gpu: Any) -> Callable[[], list[str]]:
    """Scans columns, checks the result, and returns the families of the kernels loaded so far."""
    from fake_gpu import on_gpu

    array = drawn((4100, 5))
    there, expected = on_gpu(array), cuscan.scan(array, axis=0)

    def run() -> list[str]:
        np.testing.assert_array_equal(np.asarray(cuscan.scan(there, axis=0)), expected)
        return [config.family for config in gpu.loads]

    return run


def test_a_missing_kernel_is_compiled_in_the_background(
    gpu: Any, cache: Cache, columns: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSCAN_COMPILE", "background")
    assert columns() == columns() == ["panels"] and len(cache.begun) == 1
    cache.end()
    gpu.current_stream = 7
    gpu.capturing = {7}
    assert columns() == ["panels"]  # to load another kernel might end the capture
    gpu.capturing = set()
    assert columns() == columns() == ["panels", "strips"] and len(cache.begun) == 1


def test_a_compilation_that_fails_is_not_waited_for(
    cache: Cache, columns: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUSCAN_COMPILE", "background")
    columns()
    cache.end()
    cache.compiled.clear()
    assert columns() == columns() == ["panels"]


@pytest.mark.parametrize("there", [True, False])
def test_what_is_compiled_is_used_if_nothing_is_to_be(
    there: bool, cache: Cache, columns: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fake GPU loads whatever is asked for: without a general kernel, the call's own, which then is an error."""
    monkeypatch.setenv("CUSCAN_COMPILE", "never")
    cache.compiled = {"panels"} if there else set()
    assert columns() == ["panels" if there else "strips"] and not cache.begun


def test_otherwise_calls_wait_for_their_own_kernel(cache: Cache, columns: Callable[[], list[str]]) -> None:
    assert columns() == ["strips"] and not cache.begun


def test_a_machine_without_a_compiler_uses_them(
    cache: Cache, columns: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuscan.compile import module

    monkeypatch.setattr(module, "nvrtc_version", lambda: None)
    cache.compiled = {"panels"}
    assert columns() == ["panels"]


def test_the_background_compiles_each_kernel_once(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    background = pytest.importorskip("cuscan.compile.background", reason="CuPy is not installed")
    compiled = []

    def compile_kernel(config: str, arch: int) -> None:
        compiled.append((config, arch))
        if config == "wrong":
            raise RuntimeError("no such kernel")

    monkeypatch.setattr(background, "compile_kernel", compile_kernel)
    monkeypatch.setattr(background, "_started", background.Table())
    caplog.set_level(logging.ERROR, logger="cuscan")
    for config in ("one", "one", "wrong", "one"):
        background.compile_in_background(config, 90).result(10)  # a failure is logged, not raised
    assert compiled == [("one", 90), ("wrong", 90)]
    monkeypatch.setattr(background.threading, "main_thread", lambda: SimpleNamespace(is_alive=lambda: False))
    background.compile_in_background("late", 90).result(10)  # the interpreter ends
    assert compiled == [("one", 90), ("wrong", 90)]
    [record] = caplog.records
    assert "general kernel" in record.getMessage() and "no such kernel" in record.exc_text
