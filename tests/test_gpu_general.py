"""General kernels on a GPU: calls of any shape run without a compiler, and go over to their own kernels."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from gpu import cupy

import cuscan
from cuscan.backends import kernel, repeats
from cuscan.bench import new_shapes
from cuscan.bench.check import check
from cuscan.bench.find import find_machine
from cuscan.compile.module import compile_kernel
from cuscan.kept import Table

pytestmark = pytest.mark.gpu


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty folder of kernels; none is loaded, and no call is stored."""
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernel, "_kernels", Table())
    monkeypatch.setattr(repeats, "launches", Table())
    monkeypatch.setattr(repeats, "latest", Table())
    return tmp_path


def test_calls_go_over_to_their_own_kernel(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = cuscan.warm("add", "float32", shapes=[((200_001, 7), 0)], general=True).kernels
    monkeypatch.setenv("CUSCAN_COMPILE", "background")
    array = np.random.default_rng(0).standard_normal((200_001, 7)).astype(np.float32)
    x, expected, until = cupy.asarray(array), cuscan.scan(array, axis=0), time.monotonic() + 60

    def loaded() -> list[str]:
        np.testing.assert_array_equal(cuscan.scan(x, axis=0).get(), expected)
        return [config.family for config, *_ in kernel._kernels]

    assert loaded() == ["panels"]
    while "strips" not in loaded():
        assert time.monotonic() < until
    assert loaded() == ["panels", "strips"] and len(list(folder.iterdir())) == few + 1


def test_without_kernels_an_error_says_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSCAN_COMPILE", "never")
    with pytest.raises(cuscan.MissingKernelError, match="compile it ahead of time: cuscan warm --op add"):
        cuscan.scan(cupy.ones((1000, 7), "float32"), axis=0)


@pytest.mark.full
@pytest.mark.parametrize("kind", new_shapes.KINDS)
def test_random_calls_need_few_kernels(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a shape, strides and an alignment of its own. Every tenth result is checked."""
    machine = find_machine()
    assert machine.target
    few = new_shapes.counted(kind, machine.target, general=True)
    for config in few:
        compile_kernel(config, machine.target.arch)
    monkeypatch.setenv("CUSCAN_COMPILE", "never")
    memory = machine.uniform(new_shapes.ROOM, 0), machine.xp.empty(new_shapes.ROOM, "float32")
    for number, case in enumerate(islice(new_shapes.draw(kind), new_shapes.CALLS)):
        run, buffers = new_shapes._run(case, machine, memory)
        run()
        if number % 10 == 0:
            check(case, machine.xp, buffers)
    assert len(list(folder.iterdir())) == len(few) <= 16
