"""What graphs retain of cuscan's memory, and how their end is detected; a fake driver has the signatures of cuda.h."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

graphs = pytest.importorskip("cuscan.backends.graphs", reason="CuPy does not import")

DRIVER = r"""
#include <cstddef>
typedef void (*HostFn)(void*);
static void* kept = nullptr;
static HostFn at_end = nullptr;
static int held = 0;
extern "C" {
int refuses = 0;
int cuStreamGetCaptureInfo_v2(void* stream, int* status, unsigned long long* id, void** graph, const void** nodes,
                              size_t* count) {
    *status = stream == (void*)5;
    if (*status && graph) *graph = (void*)0x123456789abc;
    return id || nodes || count;
}
int cuUserObjectCreate(void** object, void* ptr, HostFn destroy, unsigned count, unsigned flags) {
    kept = ptr, at_end = destroy, held = count;
    *object = (void*)0xfedcba987654;
    return flags != 1;
}
int cuGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
    return refuses || graph != (void*)0x123456789abc || object != (void*)0xfedcba987654 || count != 1 || flags != 1;
}
int cuUserObjectRelease(void* object, unsigned count) {
    held -= count;
    if (!held) at_end(kept);
    return object != (void*)0xfedcba987654;
}
}
"""


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    source, library = tmp_path / "driver.cpp", tmp_path / "driver.so"
    source.write_text(DRIVER)
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    monkeypatch.setattr(graphs, "_driver", lambda: loaded)
    return loaded


def test_the_end_of_a_graph_is_heard_of_once(driver: Any) -> None:
    semaphore = graphs._semaphore()
    assert graphs._tie(5, semaphore) and not graphs._is_posted(semaphore)
    driver.cuUserObjectRelease(ctypes.c_void_p(0xFEDCBA987654), 1)
    assert graphs._is_posted(semaphore) and not graphs._is_posted(semaphore)


def test_what_cannot_be_tied_is_not_lent(driver: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    semaphore = graphs._semaphore()
    assert not graphs._tie(6, semaphore)  # stream 6 captures nothing
    ctypes.c_int.in_dll(driver, "refuses").value = 1
    assert not graphs._tie(5, semaphore) and not graphs._is_posted(semaphore)
    monkeypatch.setattr(graphs, "_driver", lambda: ctypes.CDLL(None))  # a driver without such functions
    assert not graphs._tie(5, semaphore)
