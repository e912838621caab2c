"""The cache of compiled kernels: found again by the next process, and never in the way. No GPU needed."""

import os
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed, and with it the bindings of NVRTC")
from nvrtc_plans import plan  # noqa: E402

from cuscan.compile import module  # noqa: E402

CONFIG = plan("rows-short").config


@pytest.fixture
def loaded(monkeypatch):
    """What is loaded, in place of a GPU: (path, code)."""
    files = []
    monkeypatch.setattr(module, "_load", lambda path, config: files.append((path, path.read_bytes())))
    return files


@pytest.fixture
def compiled(monkeypatch):
    """The architectures that something is compiled for."""
    calls, compile_source = [], module.compile_source
    monkeypatch.setattr(module, "compile_source", lambda *a: calls.append(a[1]) or compile_source(*a))
    return calls


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def test_a_kernel_is_compiled_once(cache, loaded, compiled):
    for _ in range(3):
        module.load_kernel(CONFIG, 90)
    module.load_kernel(CONFIG, 80)
    assert compiled == [90, 80] and len(loaded) == 4 and len(list(cache.iterdir())) == 2
    assert loaded[0][1][:4] == b"\x7fELF" and loaded[0] == loaded[1] == loaded[2]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in cache.iterdir())


def test_another_process_finds_it(cache, loaded, compiled):
    module.load_kernel(CONFIG, 90)
    script = """
import test_module
from cuscan.compile import module
module.compile_source = None
module._load = lambda path, config: print(path)
module.load_kernel(test_module.CONFIG, 90)
"""
    folders = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": folders},
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert run.stdout.strip() == str(loaded[0][0])


def test_edited_headers_are_noticed(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    monkeypatch.setattr("cuscan.compile.source.headers_digest", lambda: "other headers")
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90] and loaded[0][0] != loaded[1][0]


def test_a_damaged_file_is_compiled_again(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    whole = loaded[0][1]
    loaded[0][0].write_bytes(b"half a")

    class Damaged(Exception):
        """Stands for CUDADriverError, which only a driver can make."""

    def load(path, config):
        if path.read_bytes() != whole:
            raise Damaged
        loaded.append((path, whole))

    monkeypatch.setattr(module.cupy.cuda.driver, "CUDADriverError", Damaged)
    monkeypatch.setattr(module, "_load", load)
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90] and len(loaded) == 2


def test_no_cache_is_needed(loaded, compiled, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    module.load_kernel(CONFIG, 90)
    assert compiled == [90] and loaded[0][1][:4] == b"\x7fELF"


def test_a_large_cluster_is_allowed_for(monkeypatch, tmp_path):
    """A launch has no more than 8 blocks a cluster unasked."""
    asked = []
    kernel = SimpleNamespace(ptr=7)
    raw = SimpleNamespace(get_function=lambda name: SimpleNamespace(kernel=kernel))
    monkeypatch.setattr(module.cupy, "RawModule", lambda path: raw)
    monkeypatch.setattr(module.cupy.cuda.driver, "funcSetAttribute", lambda *call: asked.append(call))
    for layout, expected in (("rows-short", []), ("cluster", []), ("cluster-pairs", [(7, 14, 1)])):
        assert module._load(tmp_path, plan(layout).config) is kernel
        assert asked == expected


def test_the_cache_is_where_the_user_s_caches_are(monkeypatch, tmp_path):
    monkeypatch.delenv("CUSCAN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert module.cache_dir() == tmp_path / "cuscan"
