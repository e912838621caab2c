"""Copies of the tree with one mutant each, and what steps of their tests say."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutate.mutants import Mutant

_COPIED = ("cuscan", "tests", "benchmarks", "docs")  # folders; files beside them are copied, too
_COMPILED = Path(".pytest_cache", "d", "compiled")
_PLANTED = re.compile(r"^E .* is \d+ times in \S+\.cuh$", re.MULTILINE)  # the mutant is in a planted mistake's line
_COMPILER_ERROR = re.compile(r"\.(cuh|cpp|hpp):\d+:\d+: (fatal )?error:")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - |$)", re.MULTILINE)
_BEGUN = re.compile(r"^(tests/(?:(?! PASSED| SKIPPED| XFAIL).)+?) *(?:Fatal .*)?$", re.MULTILINE)  # and not ended


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step: "passed", "noticed", "hung", "invalid" (does not compile), or "stopped" before its end."""

    status: str
    by: str = ""
    seconds: float = 0.0


class Tree:
    """A copy of a tree, with a mutant put into it. It shares the kernels that tests have compiled."""

    def __init__(self, source: Path, copy: Path, mutant: Mutant | None = None) -> None:
        self._copy = copy
        for path in source.iterdir():
            if path.is_dir() and path.name in _COPIED:
                shutil.copytree(path, copy / path.name)
            elif path.is_file():
                copy.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, copy / path.name)
        (source / _COMPILED).mkdir(parents=True, exist_ok=True)
        (copy / _COMPILED).parent.mkdir(parents=True)
        (copy / _COMPILED).symlink_to(source / _COMPILED)  # files are stored by content, so all trees can share them
        if mutant is not None:
            mutant.put_into(copy)
        self._children: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(self, step: Sequence[str], name: str, seconds: float) -> Outcome:
        """Run tests until one fails."""
        start = time.monotonic()
        left = list(step)
        while left:
            (self._copy / name).write_text("\n".join(left))
            code, output = self.pytest("-x", "-v", "--full", f"@{name}", seconds=seconds - (time.monotonic() - start))
            spent = time.monotonic() - start
            failed = _FAILED.search(output) or _BEGUN.search(output)  # _BEGUN: the test's process has died
            by = failed[1] if failed else ""
            if self._is_stopped:
                return Outcome("stopped")
            if code is None:
                return Outcome("hung", by, spent)
            if code in (0, 5):  # 5: nothing was selected
                return Outcome("passed", "", spent)
            if not _PLANTED.search(output) or by not in left:
                return Outcome("invalid" if _COMPILER_ERROR.search(output) else "noticed", by or step[0], spent)
            left.remove(by)
        return Outcome("passed", "", time.monotonic() - start)

    def collect(self, *options: str) -> list[str]:
        """The names of all tests."""
        code, output = self.pytest("--collect-only", "-q", *options, "tests", seconds=300)
        assert code == 0, output
        return re.findall(r"^tests/test_\w+\.py::.*$", output, re.MULTILINE)

    def pytest(self, *arguments: str, seconds: float) -> tuple[int | None, str]:
        """Exit status (None: the time was up) and output."""
        more = ["-n0"] if importlib.util.find_spec("xdist") else []
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *more, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self._copy), "OMP_NUM_THREADS": "1"}
        with self._lock:
            if self._is_stopped:
                return None, ""
            child = subprocess.Popen(
                command,
                cwd=self._copy,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            self._children.add(child)
        try:
            output, _ = child.communicate(timeout=max(seconds, 1))
            return child.returncode, output
        except subprocess.TimeoutExpired:
            _kill(child)
            return None, child.communicate()[0]
        finally:
            with self._lock:
                self._children.discard(child)

    def stop(self) -> None:
        """End running tests; no test begins any more."""
        with self._lock:
            self._is_stopped = True
            for child in self._children:
                _kill(child)

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self._copy, ignore_errors=True)


def _kill(child: subprocess.Popen[str]) -> None:
    """Kill a process and the compilers that it has started."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
