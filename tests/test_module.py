"""The cache of compiled kernels: the next process finds it, and it never causes a failure. Needs no GPU."""

import hashlib
import os
import re
import stat
import subprocess
import sys
from types import SimpleNamespace

import pytest

cupy = pytest.importorskip("cupy", reason="CuPy is not installed, and with it the bindings of NVRTC")
from nvrtc_plans import plan  # noqa: E402

from cuscan.compile import module  # noqa: E402
from cuscan.compile.cache import cache_dir, entries, read, shrink  # noqa: E402
from cuscan.errors import MissingDependencyError, MissingKernelError  # noqa: E402

CONFIG = plan("rows-short").config


@pytest.fixture
def loaded(monkeypatch):
    """The compiled code that is loaded; no GPU loads it."""
    codes = []
    monkeypatch.setattr(module, "_load", lambda code, config: codes.append(code))
    return codes


@pytest.fixture
def compiled(monkeypatch):
    """The architectures for which kernels are compiled."""
    calls, compile_source = [], module.compile_source
    monkeypatch.setattr(module, "compile_source", lambda *a: calls.append(a[1]) or compile_source(*a))
    return calls


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def hash_of(code):
    return hashlib.sha256(code).hexdigest()


def test_a_kernel_is_compiled_once(cache, loaded, compiled):
    for _ in range(3):
        module.load_kernel(CONFIG, 90)
    module.load_kernel(CONFIG, 80)
    assert compiled == [90, 80] and len(loaded) == 4 and len(list(cache.iterdir())) == 2
    assert loaded[0][:4] == b"\x7fELF" and loaded[0] == loaded[1] == loaded[2] != loaded[3]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o644 for path in cache.iterdir())


def test_another_process_finds_it(cache, loaded, compiled):
    module.load_kernel(CONFIG, 90)
    script = """
import test_module
from cuscan.compile import module
from test_module import hash_of
module.compile_source = None
module._load = lambda code, config: print(hash_of(code))
module.load_kernel(test_module.CONFIG, 90)
"""
    folders = os.pathsep.join(path for path in sys.path if path)
    run = subprocess.run([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": folders},
                         capture_output=True, text=True, check=True)  # fmt: skip
    assert run.stdout.strip() == hash_of(loaded[0])


@pytest.mark.parametrize(
    "what", [("source.headers_digest", lambda: "other headers"), ("module._OPTIONS", (*module._OPTIONS, "-lineinfo"))]
)
def test_edited_headers_and_other_options_are_noticed(cache, loaded, compiled, monkeypatch, what):
    module.load_kernel(CONFIG, 90)
    monkeypatch.setattr(f"cuscan.compile.{what[0]}", what[1])
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90] and len(list(cache.iterdir())) == 2


def test_a_damaged_file_is_compiled_again(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    [path], [whole] = cache.iterdir(), loaded
    path.write_bytes(b"half a")

    class Damaged(Exception):
        """Stands in for CUDADriverError, which only a driver can create."""

    def load(code, config):
        if code != whole:
            raise Damaged
        loaded.append(code)

    monkeypatch.setattr(module.cupy.cuda.driver, "CUDADriverError", Damaged)
    monkeypatch.setattr(module, "_load", load)
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90] and len(loaded) == 2


def test_no_cache_is_needed(loaded, compiled, monkeypatch, tmp_path, caplog):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("CUSCAN_CACHE_DIR", str(tmp_path / "file" / "kernels"))
    monkeypatch.setattr(module, "_unwritten", module.Table())
    assert not module.is_compiled(CONFIG, 90)
    for _ in range(2):  # the process keeps the kernel
        module.load_kernel(CONFIG, 90)
        assert module.is_compiled(CONFIG, 90)
    assert compiled == [90] and loaded[0][:4] == b"\x7fELF" and loaded[0] == loaded[1]
    [record] = caplog.records
    assert record.levelname == "WARNING" and "cuscan_rows" in record.getMessage() and "kept" in record.getMessage()


def test_a_file_appears_whole(cache, loaded, compiled, monkeypatch):
    """Other processes may look at any time, so the file is complete before it gets its name."""
    replace, seen = os.replace, []

    def watched(source, target):
        seen.append((os.path.getsize(source), stat.S_IMODE(os.stat(source).st_mode), target.exists()))
        replace(source, target)

    monkeypatch.setattr("cuscan.compile.cache.os.replace", watched)
    module.load_kernel(CONFIG, 90)
    assert seen == [(len(loaded[0]), 0o644, False)]


def test_processes_that_compile_the_same_do_no_harm(cache, loaded, compiled, monkeypatch):
    """The file of the slower process replaces the other one."""
    compile_source = module.compile_source

    def slower(*call):
        found = compile_source(*call)
        cache_file.parent.mkdir()
        cache_file.write_bytes(b"of the other process")
        return found

    cache_file = module.kernel_path(CONFIG, 90)
    monkeypatch.setattr(module, "compile_source", slower)
    module.load_kernel(CONFIG, 90)
    assert list(cache.iterdir()) == [cache_file] and cache_file.read_bytes() == loaded[0]


def test_a_launch_has_all_that_its_kernel_needs(monkeypatch):
    """Without a request, a launch has at most 8 blocks per cluster, and 48 KiB of shared memory."""
    asked = []
    function = SimpleNamespace(ptr=7)
    monkeypatch.setattr(module, "Module", lambda: SimpleNamespace(load=list, get_function=lambda name: function))
    monkeypatch.setattr(module.cupy.cuda.runtime, "memGetInfo", tuple)
    monkeypatch.setattr(module.cupy.cuda.driver, "funcSetAttribute", lambda *call: asked.append(call))
    for layout, expected in (("rows-short", []), ("cluster", []), ("cluster-pairs", [(7, 14, 1)])):
        assert module._load(b"", plan(layout).config) is function
        assert asked == expected
    config = plan("tiles-grid").config
    module._load(b"", config)
    assert asked[1:] == [(7, 8, config.shared_bytes)]


def test_the_cache_is_where_the_user_s_caches_are(monkeypatch, tmp_path):
    monkeypatch.delenv("CUSCAN_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "cuscan"


def test_a_folder_that_is_read_only_is_read(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    for name in ("utime", "replace", "chmod"):
        monkeypatch.setattr(f"cuscan.compile.cache.os.{name}", refused)
    module.load_kernel(CONFIG, 90)
    module.load_kernel(CONFIG, 80)
    assert compiled == [90, 80] and loaded[0] == loaded[1]
    assert len(list(cache.iterdir())) == 1  # no half-written file is left


def refused(*arguments, **keywords):
    raise PermissionError


def test_the_code_of_another_user_is_never_run(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    [path] = cache.iterdir()
    monkeypatch.setattr("cuscan.compile.cache.os.getuid", lambda: path.stat().st_uid + 1)
    monkeypatch.setattr("cuscan.compile.cache._ROOT", -1)
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90]
    monkeypatch.setattr("cuscan.compile.cache._ROOT", path.stat().st_uid)  # all users may run this user's files
    module.load_kernel(CONFIG, 90)
    assert compiled == [90, 90]


def test_compiling_can_be_forbidden(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    monkeypatch.setenv("CUSCAN_COMPILE", "never")
    assert module.prefers_general() and not module.compiles_in_background()
    assert (module.is_compiled(CONFIG, 90), module.is_compiled(CONFIG, 80)) == (True, False)
    module.load_kernel(CONFIG, 90)
    with pytest.raises(MissingKernelError, match="cuscan_rows of this call for sm_80"):
        module.load_kernel(CONFIG, 80)
    assert compiled == [90] and len(loaded) == 2


def test_a_machine_without_a_compiler_runs_what_the_cache_has(cache, loaded, compiled, monkeypatch):
    module.load_kernel(CONFIG, 90)
    module.nvrtc_version.cache_clear()
    monkeypatch.setattr(module.nvrtc, "getVersion", failing)
    try:
        module.load_kernel(CONFIG, 90)
        with pytest.raises(MissingDependencyError, match="pip install nvidia-cuda-nvrtc-cu12"):
            module.load_kernel(CONFIG, 80)
    finally:
        module.nvrtc_version.cache_clear()
    assert compiled == [90] and loaded[0] == loaded[1]


def test_without_a_compiler_the_files_of_other_users_do_not_count(cache, loaded, compiled, monkeypatch):
    """Their names do not count, either: another version of NVRTC may have compiled the user's own file."""
    module.load_kernel(CONFIG, 90)
    [path] = cache.iterdir()
    other = path.with_name(path.name.replace(module.nvrtc_version(), "99.9"))
    other.write_bytes(b"another user's")
    is_trusted = module.cache.is_trusted
    monkeypatch.setattr(module.cache, "is_trusted", lambda facts: facts.st_size > 100 and is_trusted(facts))
    monkeypatch.setattr(module, "nvrtc_version", lambda: None)
    module.load_kernel(CONFIG, 90)
    assert compiled == [90] and loaded[0] == loaded[1]


def failing():
    raise RuntimeError("CuPy failed to load libnvrtc.so.12")


def test_every_compilation_is_logged_with_its_time(cache, loaded, compiled, caplog):
    caplog.set_level("INFO", logger="cuscan")
    for _ in range(2):
        module.load_kernel(CONFIG, 90)
    [record] = caplog.records
    assert re.fullmatch(r"compiled cuscan_rows for sm_90 in \d+\.\d\d s: .*\.cubin", record.getMessage())


def test_the_folder_is_limited_to_what_was_used_last(cache):
    cache.mkdir()
    for i in range(5):
        path = cache / f"{i}.cubin"
        path.write_bytes(bytes(100))
        os.utime(path, (i, i))
    assert read(cache / "0.cubin") == bytes(100)  # this uses the file now
    assert [entry.path.name for entry in entries()] == [f"{i}.cubin" for i in (0, 4, 3, 2, 1)]
    assert [entry.path.name for entry in shrink(250)] == ["3.cubin", "2.cubin", "1.cubin"]
    assert len(entries()) == 2 and len(shrink(0)) == 2 and not entries()
