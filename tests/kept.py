"""Compiler outputs, stored by content in pytest's cache folder: the second run of a test compiles nothing.

A key is everything that the result depends on: sources with all includes, options, the compiler's version. `pytest
--cache-clear` empties the folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import posixpath
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = (Path(__file__).resolve().parent.parent / ".pytest_cache" / "d" / "compiled").resolve()  # may be a link
_INCLUDE = re.compile(r'^#include "(.*)"', re.MULTILINE)
_UNUSED_SECONDS = 14 * 24 * 3600  # files that no test has used for two weeks are deleted


def kept(key: Any, suffix: str, make: Callable[[Path], None]) -> Path:
    """The file of a key; `make` writes it if it is missing. No process ever sees half a file."""
    path = FOLDER / (hashlib.sha256(repr(key).encode()).hexdigest()[:32] + suffix)
    if path.exists():
        os.utime(path)
        return path
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        made = Path(folder, path.name)
        make(made)
        made.replace(path)
    return path


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Let one process at a time into the block, where all would make the same file at once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def forget_unused() -> None:
    """Delete files that have not been used for long."""
    oldest = time.time() - _UNUSED_SECONDS
    for path in FOLDER.glob("*"):
        with contextlib.suppress(OSError):  # another process may have deleted it
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()


def included(texts: Mapping[str, str], name: str) -> str:
    """A digest of a header and of all headers that it includes."""
    names = [name]
    for header in names:
        for found in _INCLUDE.findall(texts[header]):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(header), found))
            if path not in names:
                names.append(path)
    return hashlib.sha256(repr([(name, texts[name]) for name in sorted(names)]).encode()).hexdigest()


@functools.cache
def version_of(compiler: str) -> str:
    """The version that a compiler prints."""
    return subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
